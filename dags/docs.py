"""What an operator reads in Airflow: what each task does, what it may cost, how to repeat it by hand. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dags.command import arguments, by_hand
from dags.form import DEFAULTS_VARIABLE
from dags.pipelines import Pipeline
from dags.steps import Step
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
    "bundle": "Makes the bundle for devices from the release. Files only: no device sees it yet.",
    "verify": "Checks the release's signature and every file.",
    "gate": "Holds the release back when its validation metrics are below the plan's share of the current one's.",
    "promote": "Makes the release current. The one before becomes the backup and goes on answering for its states.",
    "canary": "Lets a share of the users be served by the release; the first release of all needs no canary.",
    "watch_canary": "Watches the service while some users try the release.",
    "watch": "Watches the service: it serves the release, few answers are late or refused, no worse rungs.",
    "undo": "Runs only when a watch failed: the backup is current again, and the release is marked bad.",
    "rollout": "Offers the bundle to the plan's share of devices.",
    "choose": "Chooses the days, the newest first, and says which it leaves out.",
    "freshness": "Compares the age of every asset with the plan's `fresh_for` and `usable_for`.",
    "parity": "Compares the numbers of all tiers for the same users.",
    "dead_letters": "Asks the stream for the share of records that it could not use.",
    "drift": "Asks how many events are of items that the release does not know. *Skipped* means: no drift.",
}
REPEATED = {
    "data": "it writes the same files again: the stages after it then have nothing to do.",
    "watch": "it watches again.",
    "watch_canary": "it watches again.",
    "undo": "it finds another release current and changes nothing.",
}
NOTHING_TWICE = "it works once: nothing is done when its inputs are as they were."
_NAMED = ("file", "catalogue", "events", "release", "bundle")


def step_doc(step: Step, params: Mapping[str, Any]) -> str:
    """``doc_md`` of a task. ``params`` are the DAG's defaults, for the command."""
    tries = "is not tried again" if step.retries == 0 else "anything else is tried once more"
    lines = [
        ABOUT[step.id],
        f"**Limit** {human_seconds(step.limit_s)}, then it is stopped. A refused input fails at once; {tries}.",
        f"**Run twice**, {REPEATED.get(step.id, NOTHING_TWICE)}",
        f"**By hand** `{command_doc(step.id, params)}`",
    ]
    return "\n\n".join(lines)


def command_doc(step: str, params: Mapping[str, Any]) -> str:
    """The command as a person types it, with a word in place of what only a run names."""
    words = {name: params[name] or name.upper() for name in _NAMED if name in params}
    return by_hand(
        arguments(step, {**params, **words} if step != "data" or params["source"] != "completejourney" else params)
    )


def starts(pipeline: Pipeline) -> str:
    """When it runs, for people."""
    parts = []
    if pipeline.cron:
        parts.append(f"at {pipeline.cron} UTC")
    if pipeline.every_s:
        parts.append(f"every {human_seconds(pipeline.every_s)}")
    if pipeline.waits_for:
        parts.append(f"when {' and '.join(pipeline.waits_for)} {'is' if len(pipeline.waits_for) == 1 else 'are'} new")
    if pipeline.also_on:
        parts.append(f"when there is {' or '.join(pipeline.also_on)}")
    return ", ".join(parts) or "only by hand"


def pipeline_doc(pipeline: Pipeline) -> str:
    """``doc_md`` of the DAG."""
    rows = [
        f"| {step.id} | {', '.join(step.inputs) or '–'} | {', '.join(step.outputs) or '–'} "
        f"| {human_seconds(step.limit_s)} | {step.retries} |"
        for step in pipeline.steps
    ]
    lines = [
        f"{pipeline.about}.",
        "",
        f"**Starts** {starts(pipeline)}; one run at a time. "
        "Missed times are not caught up: only the newest data count.",
        f"**Alert** when a run has not ended {human_seconds(pipeline.deadline_s)} after it was queued.",
        *_freshness(pipeline),
        "",
        "| task | reads | makes | limit | tries again |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        "Order, limits and times come from `plan.toml`; change them there. "
        "Each task is safe to clear and to run again: "
        "it is keyed by the hash of its inputs, so what did not change is not done again.",
        "",
        f"Scheduled runs use the form's defaults; `{DEFAULTS_VARIABLE}` changes these. "
        "A run that an asset started takes the data set and the release from its event. "
        "`./beforehand dags show` prints all DAGs, `./beforehand release rollback --why …` undoes a promotion.",
    ]
    return "\n".join(lines)


def _freshness(pipeline: Pipeline) -> list[str]:
    if pipeline.asset is None:
        return []
    asset = pipeline.asset
    return [f"**Fresh for** {human_seconds(asset.fresh_for)}, usable for {human_seconds(asset.usable_for)}."]
