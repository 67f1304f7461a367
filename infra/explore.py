"""`./beforehand explain` and `ask`: they ask the running service, or one started for the length of the question.

After a demo everything is stopped, but Redis keeps its states on disk: so a look at a user needs Redis and the
service alone, which start in a second or two.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from infra import environments, processes
from infra.errors import LauncherError
from infra.paths import Layout
from infra.settings import verb_environment
from infra.stack import Stack
from infra.verb_runner import command


def explain(args: list[str]) -> int:
    """Hand over to `online explain`, with a service to ask."""
    return _ask_room("explain", args)


def ask(args: list[str]) -> int:
    """Hand over to `online ask`, with a service to ask."""
    return _ask_room("ask", args)


def _ask_room(verb: str, args: list[str]) -> int:
    layout = Layout.current()
    python = environments.ensure(layout, "online")
    words = [str(python), "-P", "-m", "online", verb, *args]
    if "--url" in args or {"-h", "--help"} & set(args):
        return _run(words, layout)
    with served(layout):
        return _run(words, layout)


def _run(words: list[str], layout: Layout) -> int:
    return subprocess.run(words, env=verb_environment(layout, "online"), check=False).returncode


@contextmanager
def served(layout: Layout) -> Iterator[None]:
    """The look-up service, and Redis behind it; what this call started is stopped again."""
    stack = Stack(layout.state)
    before = stack.environment()
    if "BEFOREHAND_ONLINE" in before:
        yield
        return
    if not (layout.state / "registry.db").exists():
        raise LauncherError("there is no release yet to ask", "./beforehand demo --small")
    print("starting Redis and the service for this question", file=sys.stderr)
    try:
        stack.up(("redis",))
        process = processes.start("online", command(["serve"]), layout.run / "online")
        processes.wait_until([process], lambda: answers(stack), timeout_s=60)
        yield
    finally:
        processes.stop(layout.run / "online")
        if "BEFOREHAND_REDIS" not in before:
            stack.down(("redis",))


def answers(stack: Stack) -> str | None:
    """None once the service has written its address; otherwise what is missing."""
    return None if "BEFOREHAND_ONLINE" in stack.environment() else "it has not written its address yet"
