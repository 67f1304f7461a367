"""`./beforehand VERB ARGUMENTS`: sets up what the verb needs and hands over to its room.

A verb with a tier replaces this process (`exec`), so signals and exit codes are the room's own.
Exit codes of the launcher itself: 1 something failed, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

from infra import environments, jars
from infra.errors import LauncherError
from infra.paths import Layout
from infra.settings import verb_environment
from infra.verbs import VERBS, Verb, nearest, overview


def main(argv: list[str]) -> int:
    """Never raises for an expected failure: it is told on stderr."""
    try:
        return dispatch(argv)
    except LauncherError as error:
        print(f"beforehand: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("beforehand: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone; point stdout elsewhere so that the exit does not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def dispatch(argv: list[str]) -> int:
    if not argv or (argv[0] in ("-h", "--help", "help") and len(argv) == 1):
        print(overview())
        return 0
    if argv[0] == "help":
        argv = [*argv[1:2], "--help"]
    name, args = argv[0], argv[1:]
    verb = VERBS.get(name)
    if verb is None:
        return unknown(name)
    layout = Layout.current()
    if verb.tier is None:
        return call(verb, name, args)
    if is_help(args) and environments.state(layout, verb.tier) == "absent":
        print(short_help(name, verb))
        return 0
    run_room(layout, name, verb, args)


def unknown(name: str) -> int:
    guess = nearest(name)
    hint = f"did you mean `./beforehand {guess}`?" if guess else "`./beforehand --help` lists the verbs"
    print(f"beforehand: there is no verb {name!r}\n  mend: {hint}", file=sys.stderr)
    return 2


def is_help(args: list[str]) -> bool:
    return any(arg in ("-h", "--help") for arg in args)


def short_help(name: str, verb: Verb) -> str:
    """Help must not cost a download of gigabytes: what the table knows, and how to get the rest."""
    return (
        f"./beforehand {name}: {verb.summary}\nexample: ./beforehand {verb.example}\n\n"
        f"Its options are shown once its environment is there: ./beforehand env {verb.tier}"
    )


def call(verb: Verb, name: str, args: list[str]) -> int:
    """A verb of the launcher itself: a function of the arguments that returns the exit code."""
    module_name, _, function = verb.module.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise LauncherError(
            f"the verb {name!r} is not part of this checkout ({module_name} is missing)", "git pull"
        ) from error
    return int(getattr(module, function)(args) or 0)


def run_room(layout: Layout, name: str, verb: Verb, args: list[str]) -> NoReturn:
    assert verb.tier is not None
    python = environments.ensure(layout, verb.tier)
    if verb.tier == "streaming" and not is_help(args) and jars.state(layout, "flink") != "no sources":
        jars.ensure(layout, "flink")
    environ = verb_environment(layout, verb.tier)
    if verb.program:
        command = [str(python.parent / verb.program), *args]
    else:
        # -P: the folder that the user stands in is for their files, not for imports.
        command = [str(python), "-P", "-m", verb.module, name, *args]
    sys.stdout.flush()
    os.execve(command[0], command, environ)  # noqa: S606 - the room takes this process over


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
