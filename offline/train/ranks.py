"""Several processes that train one generator: each takes its share of the batches, the gradients are averaged.

Started by torchrun, which sets RANK, WORLD_SIZE and the address to meet at; without it there is one process.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import distributed
from torch.nn import Parameter

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process's number and how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """The one that judges, writes and speaks."""
        return self.rank == 0

    def share(self, batches: Iterable[T], steps: int) -> Iterator[T]:
        """This process's batches of an epoch of ``steps``: every ``size``-th."""
        return itertools.islice(itertools.islice(batches, steps * self.size), self.rank, None, self.size)

    def average(self, parameters: Iterable[Parameter]) -> None:
        """Make every gradient the mean over all processes."""
        if self.size == 1:
            return
        told = list(parameters)
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in told])
        distributed.all_reduce(flat)
        parts = flat.div_(self.size).split([p.numel() for p in told])
        for parameter, part in zip(told, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def agree(self, value: float) -> float:
        """The first process's value, for all."""
        if self.size == 1:
            return value
        box = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(box, 0)
        return float(box)


def join() -> Ranks:
    """Meet the other processes, if torchrun started this one."""
    if "WORLD_SIZE" not in os.environ:
        return Ranks()
    if not distributed.is_initialized():
        # gloo carries CPU tensors; nccl, where it is built in, those on a GPU.
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Ranks(distributed.get_rank(), distributed.get_world_size())
