"""Both encoders: padding changes nothing, an event changes no older row, nothing is ever NaN."""

import numpy as np
import torch
from helpers_offline import generator_for

CODES = np.array([[a, b, 0] for a in range(4) for b in range(4)])


def rows(generator, items, width):
    window = torch.tensor([[0] * (width - len(items)) + [i + 1 for i in items]])
    kind = (window > 0).long() * 4
    with torch.no_grad():
        return generator.intent_encoder(window, kind, kind * 0.5, generator.item_in())


def test_the_last_row_does_not_depend_on_padding():
    generator = generator_for(CODES)
    short, long = rows(generator, [3, 1, 4], 3), rows(generator, [3, 1, 4], 6)
    assert torch.allclose(short[:, -1], long[:, -1], atol=1e-6)


def test_a_new_event_changes_no_older_row():
    generator = generator_for(CODES)
    before, after = rows(generator, [3, 1, 4], 3), rows(generator, [3, 1, 4, 9], 4)
    assert torch.allclose(before, after[:, :3], atol=1e-6)
    assert not torch.allclose(before[:, -1], after[:, -1])


def test_an_empty_window_gives_zeros():
    assert rows(generator_for(CODES), [], 6).abs().max() == 0


def test_no_local_events_do_not_depend_on_their_padding():
    generator = generator_for(CODES)
    clock = torch.zeros(1, 4)
    with torch.no_grad():
        one, three = (
            generator.prompt_encoder(
                torch.tensor([1]), clock, torch.full((1, n, 3), -1), torch.zeros(1, n).long(), torch.zeros(1, n)
            )
            for n in (1, 3)
        )
    assert torch.allclose(one, three, atol=1e-6)
    assert torch.isfinite(one).all()
