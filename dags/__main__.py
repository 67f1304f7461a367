"""``beforehand dags``: what Airflow will run, and one run of it without a scheduler."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from dags.airflow_home import enter, new_home
from dags.docs import ABOUT, command_doc, starts
from dags.form import FORM, Field, defaults_from, form
from dags.pipelines import Pipeline, derive_pipelines
from dags.steps import Step
from schemas.cli import console, emit, main, parser, say, verb
from schemas.errors import BeforehandError
from schemas.plan import load_plan
from schemas.units import human_seconds

if TYPE_CHECKING:
    from dags.trial import Trial


MARKS = {"success": ("✓", "green"), "skipped": ("–", "dim")}
NUMBERS: dict[str, type] = {"integer": int, "number": float}
PATHS = ("file", "catalogue", "events", "profiles")


def list_verb(_args: argparse.Namespace) -> dict[str, Any]:
    """``dags list``."""
    pipelines = derive_pipelines(load_plan())
    for one in pipelines:
        say(Text.assemble((f"{one.id:<14}", "bold"), f" {starts(one)}; {len(one.steps)} tasks"))
    return {"dags": [{"id": one.id, "starts": starts(one), "num_tasks": len(one.steps)} for one in pipelines]}


def show_verb(args: argparse.Namespace) -> dict[str, Any]:
    """``dags show``."""
    pipelines = derive_pipelines(load_plan(args.file, args.override))
    if known := [one.id for one in pipelines if args.dag in (None, one.id)]:
        shown = [one for one in pipelines if one.id in known]
    else:
        ids = ", ".join(one.id for one in pipelines)
        raise BeforehandError("no such DAG", where="dags show", value=args.dag, mend=f"There are: {ids}.")
    if not args.json:
        for one in shown:
            console.print(_tree(one))
    return {"dags": [_described(one) for one in shown]}


def _described(one: Pipeline) -> dict[str, Any]:
    tasks = [
        {
            "id": step.id,
            "after": list(step.after),
            "reads": list(step.inputs),
            "makes": list(step.outputs),
            "limit_s": step.limit_s,
            "retries": step.retries,
        }
        for step in one.steps
    ]
    return {"id": one.id, "starts": starts(one), "deadline_s": one.deadline_s, "tasks": tasks}


def _tree(one: Pipeline) -> Tree:
    top = Tree(f"[bold]{one.id}[/bold] {starts(one)} · alert after {human_seconds(one.deadline_s)}\n{one.about}")
    params = {name: field.default for name, field in form(defaults_from(os.environ), one.fields).items()}
    for step in one.steps:
        top.add(f"{_step_line(step)}\n{ABOUT[step.id]}\n[dim]{command_doc(step.id, params)}[/dim]")
    return top


def _step_line(step: Step) -> str:
    parts = [f"[cyan]{step.id}[/cyan]"]
    if step.after:
        parts.append(
            f"{'only when' if step.when_failed else 'after'} {(' or ' if step.when_failed else ', ').join(step.after)}"
        )
    if step.when_failed:
        parts[-1] += " failed"
    parts.append(f"limit {human_seconds(step.limit_s)}")
    if step.outputs:
        parts.append(f"makes {', '.join(step.outputs)}")
    return " · ".join(parts)


def test_verb(args: argparse.Namespace) -> None:
    """``dags test``: Airflow's words go to stderr, the result to stdout. Exit code 1 when a run failed."""
    begun = time.monotonic()
    home = new_home()
    try:
        trials = _trial(home, {name: value for name, value in vars(args).items() if name in FORM}, args.dag)
    finally:
        shutil.rmtree(home)
    for dag, trial in trials.items():
        for task, state in trial.tasks.items():
            say(Text.assemble(MARKS.get(state, ("✗", "red")), f" {dag} {task}: {state}"))
    failed = [dag for dag, trial in trials.items() if trial.state != "success"]
    if args.json:
        told = {dag: {"state": trial.state, "tasks": trial.tasks} for dag, trial in trials.items()}
        state = "failed" if failed else "success"
        emit({"state": state, "dags": told, "seconds": round(time.monotonic() - begun, 1)})
    if failed:
        say(Text.assemble((f"{failed[0]} failed", "red"), ": the lines above say why"))
        sys.exit(1)


def _trial(home: Path, params: dict[str, Any], names: list[str]) -> dict[str, Trial]:
    """Airflow takes its settings and its streams when it is imported: both are set before."""
    enter(home)
    with contextlib.redirect_stdout(sys.stderr):
        from dags.trial import run_trial  # noqa: PLC0415

        return run_trial(params, names)


def _add_option(sub: argparse.ArgumentParser, name: str, field: Field) -> None:
    """An option for one field of the form. One that is not given keeps the DAG's own default."""
    kind = field.schema["type"]
    how: dict[str, Any] = {"choices": field.schema.get("enum")}
    if kind == "boolean":
        how = {"action": "store_true"}
    elif isinstance(kind, str) and kind in NUMBERS:
        how = {"type": NUMBERS[kind]}
    elif "number" in kind:
        how = {"type": float}
    elif "array" in kind:
        how = {"action": "append", "metavar": "SECTION.KEY=VALUE"}
    elif name in PATHS:
        how = {"type": _absolute}
    sub.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, help=field.about, **how)


def _absolute(text: str) -> str:
    return str(Path(text).absolute())


def run() -> None:
    """The verbs of this room."""
    top, verbs = parser("dags", "Airflow's DAGs, derived from the plan.")
    room = verbs.add_parser("dags", help="list, show and try the DAGs of the plan")
    acts = room.add_subparsers(dest="act", required=True, metavar="list|show|test")
    verb(acts, "list", list_verb, "the DAGs and when they run", "dags list")
    show = verb(acts, "show", show_verb, "the tasks with their order, limits and commands", "dags show promote")
    show.add_argument("dag", nargs="?", help="one of them; all when none is named")
    show.add_argument("--file", type=Path, help="a plan other than $BEFOREHAND_PLAN or plan.toml")
    show.add_argument(
        "--set", dest="override", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a value"
    )
    about = "run DAGs once, in a throw-away Airflow without a scheduler"
    test = verb(acts, "test", test_verb, about, "dags test --data journey-small --small --watch-for 5s")
    test.add_argument("dag", nargs="*", help="in the order given; by default from the data to the current release")
    for name, field in FORM.items():
        _add_option(test, name, field)
    main(top)


if __name__ == "__main__":
    run()
