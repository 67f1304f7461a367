"""The release's decoder, step by step by Hugging Face's `generate` with a prefix function: `hf_generate.py < job.json`.

The usual way to serve a generative retriever: a beam search in Python, a forward pass for each code, a function that
names the codes that may follow a prefix. The weights are the release's own, read from its graph; the prompt joins, the
heads score and the item head orders what was found, as there. The neighbours, the exclusions and the allow-lists are
left out, which spares this side work.

In: {"release": FOLDER, "levels", "codes", "k", "requests"}.
Out: {"cpu_ms", "requests", "items", "transformers", "torch"}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

WARM = 5
Weights = Mapping[str, Tensor]


class Trie:
    """Which codes may follow a prefix, from the release's flat arrays; what was asked once is remembered."""

    def __init__(self, arrays: Path, levels: int) -> None:
        self._offset = [np.load(arrays / f"offset_{level}.npy", mmap_mode="r") for level in range(levels)]
        self._child = [np.load(arrays / f"child_{level}.npy", mmap_mode="r") for level in range(levels)]
        self._known: dict[tuple[int, ...], tuple[int, list[int]]] = {}

    def node(self, prefix: tuple[int, ...]) -> tuple[int, list[int]]:
        """The number of the prefix's node at its depth, and the codes of its children (none at a leaf)."""
        found = self._known.get(prefix)
        if found is None:
            found = self._known[prefix] = self._look(prefix)
        return found

    def _look(self, prefix: tuple[int, ...]) -> tuple[int, list[int]]:
        depth, number = len(prefix), 0
        if prefix:
            parent, siblings = self.node(prefix[:-1])
            number = int(self._offset[depth - 1][parent]) + siblings.index(prefix[-1])
        if depth == len(self._child):
            return number, []
        first, last = self._offset[depth][number : number + 2].tolist()
        return number, self._child[depth][first:last].tolist()


class Config(PretrainedConfig):
    """Sizes that `generate` asks for."""

    model_type = "beforehand-decoder"


class Decoder(PreTrainedModel, GenerationMixin):
    """A forward pass scores the code after the prefix that is there."""

    config_class = Config

    def __init__(self, config: Config, weights: Weights) -> None:
        super().__init__(config)
        self.weights = weights
        self.anchor = nn.Parameter(torch.zeros(1))  # a model without parameters has no device
        self.generation_config = GenerationConfig(pad_token_id=config.bos_token_id, bos_token_id=config.bos_token_id)

    def linear(self, name: str, value: Tensor) -> Tensor:
        return nn.functional.linear(value, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, name: str, value: Tensor) -> Tensor:
        # What was never trained is folded away at the export.
        return nn.functional.layer_norm(
            value, value.shape[-1:], self.weights.get(f"{name}.weight"), self.weights.get(f"{name}.bias")
        )

    def join(self, state: Tensor, prompt: Tensor) -> Tensor:
        """The query [B, d]."""
        hint = self.linear("decoder.prompt", prompt)
        gate = torch.sigmoid(self.linear("decoder.gate", torch.cat([state, hint], dim=-1)))
        return self.norm("decoder.norm", state + gate * hint)

    def forward(self, input_ids: Tensor, query: Tensor, **_: Any) -> CausalLMOutput:
        """Scores of the next code [B, 1, codes + 1]; the one past the codes is the start."""
        prefix = input_ids[:, 1:]
        head = f"decoder.heads.{prefix.shape[1]}"
        hidden = self.linear(f"{head}.query", query)
        for place in range(prefix.shape[1]):
            hidden = hidden + self.weights[f"{head}.prefix.{place}.weight"][prefix[:, place]]
        row = query + self.linear(f"{head}.back", nn.functional.gelu(hidden))
        scores = self.linear(f"{head}.out", self.norm(f"{head}.norm", row))
        return CausalLMOutput(logits=nn.functional.pad(scores, (0, 1), value=float("-inf")).unsqueeze(1))

    def prepare_inputs_for_generation(self, input_ids: Tensor, query: Tensor, **_: Any) -> dict[str, Tensor]:
        return {"input_ids": input_ids, "query": query}


def main() -> None:
    """Job on stdin, figures on stdout."""
    job: dict[str, Any] = json.load(sys.stdin)
    torch.set_num_threads(1)
    folder, levels, codes = Path(job["release"]), job["levels"], job["codes"]
    weights = read_weights(folder / "decoder.onnx")
    trie = Trie(folder / "arrays", levels)
    config = Config(vocab_size=codes + 1, bos_token_id=codes, num_hidden_layers=levels, is_encoder_decoder=False)
    model = Decoder(config, weights).eval()
    out, bias = (np.load(folder / "arrays" / f"item_{name}.npy", mmap_mode="r") for name in ("out", "bias"))
    draw = torch.Generator().manual_seed(1)
    states, prompts = (torch.randn(WARM + job["requests"], out.shape[1], generator=draw) for _ in range(2))
    begun, found = 0.0, 0
    for number, (state, prompt) in enumerate(zip(states, prompts, strict=True)):
        if number == WARM:
            begun = time.process_time()
        items = answer(model, trie, model.join(state[None], prompt[None]), job["k"], (out, bias))
        found += len(items) if number >= WARM else 0
    took_s = time.process_time() - begun
    report = {"cpu_ms": took_s / job["requests"] * 1000, "requests": job["requests"], "items": found / job["requests"]}
    json.dump(report | {"transformers": transformers.__version__, "torch": torch.__version__}, sys.stdout)


def read_weights(path: Path) -> Weights:
    """The decoder's weights by their names. Exits when the graph keeps none, as an int8 one does."""
    graph = onnx.load(path).graph
    found = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in graph.initializer}
    weights = {name: value for name, value in found.items() if name.startswith("decoder.")}
    # The exporter has turned some weights over and named them anew: they are told by the bias that follows.
    made = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        for product, bias in (node.input, reversed(node.input)) if node.op_type == "Add" else ():
            before = made.get(product)
            if bias in weights and before is not None and before.op_type == "MatMul" and before.input[1] in found:
                weights.setdefault(f"{bias.removesuffix('bias')}weight", found[before.input[1]].T.contiguous())
    if "decoder.heads.0.out.weight" not in weights or weights["decoder.heads.0.out.weight"].dtype != torch.float32:
        sys.exit("the graph's weights are not plain float32 ones: measure with another release")
    return weights


@torch.inference_mode()
def answer(
    model: Decoder, trie: Trie, query: Tensor, k: int, heads: tuple[np.ndarray, np.ndarray]
) -> list[tuple[int, float]]:
    """The best items by path and item score: number and score."""

    def allowed(_: int, prefix: Tensor) -> list[int]:
        return trie.node(tuple(prefix[1:].tolist()))[1]

    made = model.generate(
        torch.full((1, 1), model.config.bos_token_id),
        query=query,
        num_beams=k,
        num_return_sequences=k,
        max_new_tokens=model.config.num_hidden_layers,
        do_sample=False,
        prefix_allowed_tokens_fn=allowed,
        output_scores=True,
        return_dict_in_generate=True,
        length_penalty=0.0,
    )
    numbers = [trie.node(tuple(row))[0] for row in made.sequences[:, 1:].tolist()]
    out, bias = (torch.from_numpy(table[numbers]) for table in heads)
    affinity = out @ model.linear("decoder.item_query", query)[0] + bias
    scores = made.sequences_scores + affinity
    order = scores.argsort(descending=True).tolist()
    return [(numbers[place], float(scores[place])) for place in order]


if __name__ == "__main__":
    main()
