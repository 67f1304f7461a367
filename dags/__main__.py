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

from rich.tree import Tree

from dags.airflow_home import enter, new_home
from dags.chain import DAG_ID, Chain, Group, derive_chain
from dags.docs import ABOUT, command_doc
from dags.form import FORM, Field, defaults_from, form
from schemas.cli import console, emit, main, parser, say, verb
from schemas.plan import load_plan
from schemas.units import human_seconds

if TYPE_CHECKING:
    from dags.trial import Trial


def list_verb(_args: argparse.Namespace) -> dict[str, Any]:
    """``dags list``."""
    chain = derive_chain(load_plan())
    say(f"{DAG_ID}  {_when(chain)}  {len(chain.stages())} tasks")
    return {"dags": [{"id": DAG_ID, "schedule": chain.schedule, "num_tasks": len(chain.stages())}]}


def show_verb(args: argparse.Namespace) -> dict[str, Any]:
    """``dags show``."""
    chain = derive_chain(load_plan(args.file, args.override))
    if not args.json:
        console.print(_tree(chain))
    upstream = chain.upstream()
    tasks = [
        {"id": stage, "group": group.name, "after": upstream[stage], "limit_s": group.limit_s}
        for group in chain.groups
        for stage in group.stages
    ]
    return {"id": DAG_ID, "schedule": chain.schedule, "tasks": tasks}


def _when(chain: Chain) -> str:
    return f"at {chain.schedule} UTC" if chain.schedule else "only by hand"


def _tree(chain: Chain) -> Tree:
    top = Tree(f"[bold]{DAG_ID}[/bold] {_when(chain)}, one run at a time")
    params = {name: field.default for name, field in form(defaults_from(os.environ)).items()}
    for group in chain.groups:
        branch = top.add(_group_line(group))
        for stage in group.stages:
            branch.add(f"[cyan]{stage}[/cyan] {ABOUT[stage]}\n[dim]{command_doc(stage, params)}[/dim]")
    return top


def _group_line(group: Group) -> str:
    parts = [f"[bold]{group.name}[/bold]"]
    if group.after:
        parts.append(f"after {', '.join(group.after)}")
    parts.append(f"limit of each task {human_seconds(group.limit_s)}")
    if group.asset is not None:
        parts.append(f"fresh for {human_seconds(group.asset.fresh_for)}")
    return " · ".join(parts)


def test_verb(args: argparse.Namespace) -> None:
    """``dags test``: Airflow's words go to stderr, the result to stdout. Exit code 1 when the run failed."""
    begun = time.monotonic()
    home = new_home()
    try:
        trial = _trial(home, {name: value for name, value in vars(args).items() if name in FORM})
    finally:
        shutil.rmtree(home)
    for task, state in trial.tasks.items():
        say(f"{'[green]✓[/green]' if state == 'success' else '[red]✗[/red]'} {task}: {state}")
    if args.json:
        emit({"state": trial.state, "tasks": trial.tasks, "seconds": round(time.monotonic() - begun, 1)})
    if trial.state != "success":
        say(f"[red]{trial.state}[/red]: the lines above say why")
        sys.exit(1)


def _trial(home: Path, params: dict[str, Any]) -> Trial:
    """Airflow takes its settings and its streams when it is imported: both are set before."""
    enter(home)
    with contextlib.redirect_stdout(sys.stderr):
        from dags.trial import run_trial  # noqa: PLC0415

        return run_trial(params)


def _add_option(sub: argparse.ArgumentParser, name: str, field: Field) -> None:
    """An option for one field of the form. One that is not given keeps the DAG's own default."""
    kind = field.schema["type"]
    how: dict[str, Any] = {"choices": field.schema.get("enum")}
    if kind == "boolean":
        how = {"action": "store_true"}
    elif "array" in kind:
        how = {"action": "append", "metavar": "SECTION.KEY=VALUE"}
    elif "null" in kind:
        how = {"type": _absolute}
    sub.add_argument(f"--{name}", default=argparse.SUPPRESS, help=field.about, **how)


def _absolute(text: str) -> str:
    return str(Path(text).absolute())


def run() -> None:
    """The verbs of this room."""
    top, verbs = parser("dags", "Airflow's DAGs, derived from the plan.")
    room = verbs.add_parser("dags", help="list, show and try the DAGs of the plan")
    acts = room.add_subparsers(dest="act", required=True, metavar="list|show|test")
    verb(acts, "list", list_verb, "the DAGs and when they run", "dags list")
    show = verb(acts, "show", show_verb, "the tasks with their order, limits and commands", "dags show")
    show.add_argument("--file", type=Path, help="a plan other than $BEFOREHAND_PLAN or plan.toml")
    show.add_argument(
        "--set", dest="override", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a value"
    )
    about = "run the DAG once, in a throw-away Airflow without a scheduler"
    test = verb(acts, "test", test_verb, about, "dags test --data journey-small --small")
    for name, field in FORM.items():
        _add_option(test, name, field)
    main(top)


if __name__ == "__main__":
    run()
