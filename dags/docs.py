"""What an operator reads in Airflow: what each task does, what it may cost, how to repeat it by hand. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dags.chain import DATA, Chain, Group
from dags.command import arguments, by_hand
from dags.form import DEFAULTS_VARIABLE
from schemas.units import human_seconds

ABOUT: dict[str, str] = {
    "data": "Fetches or reads the catalogue, the events and the profiles, and keeps bad rows apart with their reasons.",
    "encode": "Turns the items' texts into vectors. Only new and changed texts are encoded.",
    "index": "Gives every item its semantic ID, and makes the trie and the neighbour lists.",
    "train": "Trains the generator: intent encoder, prompt encoder and decoder together.",
    "evaluate": "Measures recall and NDCG on events that training never saw, beside simpler methods.",
    "lists": "Makes the list of each cohort of users and the popular list: what stands in when a user has no state.",
    "export": "Writes the three graphs and checks that they give the numbers of training.",
    "publish": "Puts everything into one signed release and enters it in the registry as *future*.",
    "promote": "Makes the release current. The one before becomes the backup.",
}
DATA_TWICE = "**Run twice**, it writes the same files again: the stages after it then have nothing to do."
STAGE_TWICE = "**Run twice**, it works once: nothing is done when its inputs are as they were."
RETRIES = "A refused input (plan, data or release) fails at once; anything else is tried once more."


def stage_doc(stage: str, group: Group, params: Mapping[str, Any]) -> str:
    """``doc_md`` of a task. ``params`` are the DAG's defaults, for the command."""
    lines = [
        ABOUT[stage],
        f"**Limit** {human_seconds(group.limit_s)}, then it is stopped. {RETRIES}",
        DATA_TWICE if stage == DATA else STAGE_TWICE,
        f"**By hand** `{command_doc(stage, params)}`",
    ]
    return "\n\n".join(lines)


def command_doc(stage: str, params: Mapping[str, Any]) -> str:
    """The command as a person types it, with a word in place of a file that only a run names."""
    words = {name: params[name] or name.upper() for name in ("file", "catalogue", "events")} if stage == DATA else {}
    return by_hand(arguments(stage, {**params, **words}))


def group_doc(group: Group) -> str:
    """The tooltip of a task group."""
    if group.asset is None:
        return "the release: everything above, in one signed folder"
    asset = group.asset
    return f"fresh for {human_seconds(asset.fresh_for)}, usable for {human_seconds(asset.usable_for)}"


def chain_doc(chain: Chain) -> str:
    """``doc_md`` of the DAG."""
    when = f"Runs at `{chain.schedule}` (UTC)" if chain.schedule else "Runs only when somebody starts it"
    rows = [
        f"| {group.name} | {' → '.join(group.stages)} | {', '.join(group.inputs) or '–'} "
        f"| {human_seconds(group.limit_s)} | {_freshness(group)} |"
        for group in chain.groups
    ]
    return "\n".join(
        [
            "Builds what recall needs ahead of the requests and makes it the current release.",
            "",
            f"{when}, one run at a time. Missed times are not caught up: only the newest data count.",
            "",
            "| part | tasks | made from | limit of each task | fresh / usable for |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            "Order, limits and times come from `plan.toml`; change them there. "
            "Each task is safe to clear and to run again: it is keyed by the hash of its inputs, "
            "so what did not change is not done again, and the same inputs give the same release.",
            "",
            f"Scheduled runs use the form's defaults; `{DEFAULTS_VARIABLE}` changes these. "
            "`./beforehand dags show` prints this chain, `./beforehand release rollback --why …` undoes a promotion.",
        ]
    )


def _freshness(group: Group) -> str:
    if group.asset is None:
        return "–"
    return f"{human_seconds(group.asset.fresh_for)} / {human_seconds(group.asset.usable_for)}"
