"""The intent encoder one step at a time: new rows for new events, from the keys and values of the rows before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offline.model.intent_encoder import MASKED, Block, IntentEncoder


class IntentStep(nn.Module):
    """``schemas.graphs``: intent_step.onnx. It holds no weights of its own."""

    def __init__(self, encoder: IntentEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(  # noqa: PLR0917 — the graph's inputs, by place
        self, item: Tensor, kind: Tensor, gap: Tensor, past_key: Tensor, past_value: Tensor, item_in: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [B, n, d] of the new events, and their keys and values [B, layers, heads, n, d / heads].

        The same rows as the whole encoder gives for all S + n events, S of which are in the past.
        """
        encoder = self.encoder
        x = encoder.inputs(item, kind, gap, item_in)
        before, new = past_key.shape[3], item.shape[1]
        ago = (before + torch.arange(new)).unsqueeze(1) - torch.arange(before + new).unsqueeze(0)
        mask = torch.where((ago >= 0) & (ago < encoder.window), 0.0, MASKED)
        distance = ago.clamp(0, encoder.window - 1)
        keys, values = list[Tensor](), list[Tensor]()
        for layer, block in enumerate(encoder.blocks):
            assert isinstance(block, Block)
            query, key, value = block.parts(x)
            seen = torch.cat([past_key[:, layer], key], dim=2), torch.cat([past_value[:, layer], value], dim=2)
            x = block.mix(x, query, *seen, distance, mask)
            keys.append(key)
            values.append(value)
        return encoder.norm_out(x), torch.stack(keys, dim=1), torch.stack(values, dim=1)
