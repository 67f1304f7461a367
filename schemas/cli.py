"""What every verb has in common: arguments, --json, progress, errors, exit codes, Ctrl-C.

A verb prints what people read to stderr and its result to stdout: with ``--json`` exactly one JSON object, last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from schemas.errors import BeforehandError

T = TypeVar("T")
console = Console(stderr=True, highlight=False)
Result = dict[str, Any] | None
_DONE = "✓ "


def parser(room: str, about: str) -> tuple[argparse.ArgumentParser, Any]:
    """A room's parser and its sub-commands; add verbs with ``verb``."""
    top = argparse.ArgumentParser(prog="beforehand", description=about)
    return top, top.add_subparsers(dest="verb", required=True, metavar=f"{room} verb")


def verb(
    verbs: Any, name: str, run: Callable[[argparse.Namespace], Result], about: str, example: str
) -> argparse.ArgumentParser:
    """Add a verb: its help ends with an example, and it takes --json."""
    sub: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"example:\n  ./beforehand {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object with the result, last, on stdout")
    sub.set_defaults(run=run)
    return sub


def main(top: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> None:
    """Parse, run, print, exit. A ``BeforehandError`` becomes one line and its exit code; Ctrl-C becomes 130."""
    args = top.parse_args(argv)
    try:
        result = args.run(args)
    except BeforehandError as error:
        console.print(Text.assemble(("error", "red"), f" {error}"))
        if args.json:
            emit({"error": error.problem, "where": error.where, "mend": error.mend})
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        console.print("stopped")
        sys.exit(130)
    if args.json and result is not None:
        emit(result)


def emit(result: object) -> None:
    """One JSON object on one line of stdout."""
    try:
        line = msgspec.json.encode(result)
    except UnicodeEncodeError:  # a file's name that is not UTF-8: its bytes become escapes
        line = json.dumps(msgspec.to_builtins(result)).encode("ascii")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


def say(text: RenderableType) -> None:
    """A line, or a table, for people.

    A str is printed as it is, for it may hold what users or shops wrote; ``✓`` at its head is green. For other styles
    pass a ``Text``.
    """
    console.print(_plain(text) if isinstance(text, str) else text)


def _plain(text: str) -> Text:
    return Text.assemble((_DONE, "green"), text.removeprefix(_DONE)) if text.startswith(_DONE) else Text(text)


@contextmanager
def step(title: str) -> Generator[Callable[[str], None]]:
    """Time a step and say what it made: call the yielded function with the outcome.

    >>> with step("codes") as made:
    ...     made("12,101 items, all unique")
    """
    begun = time.monotonic()
    outcome: list[str] = []
    yield outcome.append
    say(f"{_DONE}{title}: {' '.join(outcome)} ({time.monotonic() - begun:.1f} s)")


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar; silent when stderr is not a terminal."""
    with bar() as progress:
        yield from progress.track(items, total=total, description=title)


def bar() -> Progress:
    """A progress bar to advance by hand: ``task = bar.add_task(title, total=n)``, ``bar.advance(task, k)``."""
    return Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
