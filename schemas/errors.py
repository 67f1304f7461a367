"""One small tree of errors: each says where, what value, why, and how to mend it."""

from __future__ import annotations


class BeforehandError(Exception):
    """An error that a person can act on.

    Args:
        problem: what is wrong, in one sentence without a final full stop.
        where: the file, field, key or record (``plan.toml:12 online.budget``).
        value: the offending value; shown shortened.
        mend: what to do about it.
    """

    exit_code = 1

    def __init__(self, problem: str, *, where: str = "", value: object = None, mend: str = "") -> None:
        self.problem = problem
        self.where = where
        self.value = value
        self.mend = mend
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.problem}" if self.where else self.problem]
        if self.value is not None:
            parts.append(f"(got {shorten(self.value)})")
        text = " ".join(parts)
        return f"{text}. {self.mend}" if self.mend else text


class PlanError(BeforehandError):
    """plan.toml can't be used as it is."""

    exit_code = 2


class DataError(BeforehandError):
    """Input data (catalogue, events, a record) breaks its contract."""

    exit_code = 3


class ReleaseError(BeforehandError):
    """A release is missing, damaged, unsigned, too new or from another model."""

    exit_code = 4


class StoreError(BeforehandError):
    """A store (Redis, registry, Kafka) refused or could not be reached."""

    exit_code = 5


def shorten(value: object, limit: int = 80) -> str:
    """``repr(value)`` cut to ``limit`` characters, so that a 5 MB record does not fill a log line."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
