"""The table of verbs: which room does the work, and in which tier's environment.

The help, the launcher, the documentation's checks and the tests all read this one table.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One verb of `./beforehand`.

    `tier` names the environment; None is the launcher's own Python, and then `module` is `package.module:function`.
    With a tier, `module` is run as `python -m MODULE VERB ARGS`, or `program` of that environment with ARGS alone.
    """

    tier: str | None
    module: str
    group: str
    summary: str
    example: str
    program: str | None = None


GROUPS: dict[str, str] = {
    "try": "Try it",
    "offline": "Offline (data platform)",
    "nearline": "Near-line (streaming)",
    "edge": "Edge (mobile and web)",
    "online": "Online (look-up service)",
    "operate": "Operate",
    "develop": "Develop",
}

VERBS: dict[str, Verb] = {
    "demo": Verb(None, "infra.demo:main", "try", "the whole chain, from raw data to a report", "demo --small"),
    "explain": Verb(
        None, "infra.explore:explain", "try", "one user: state, age, what each rung would answer", "explain USER"
    ),
    "report": Verb(None, "infra.report:main", "try", "show the last demo's result again", "report"),
    "data": Verb("offline", "offline", "offline", "fetch or make a catalogue and its events", "data --help"),
    "build": Verb("offline", "offline", "offline", "train the model and make a release", "build --help"),
    "items": Verb("offline", "offline", "offline", "items by id or by prefix of semantic IDs", "items --prefix 12,7"),
    "insert": Verb(
        "offline", "offline", "offline", "put new items into a release, without training", "insert --items new.csv"
    ),
    "release": Verb("offline", "offline", "offline", "list, promote, roll back releases", "release list"),
    "stream": Verb("streaming", "streaming", "nearline", "submit and run the Flink jobs", "stream --help"),
    "worker": Verb("nearline", "nearline", "nearline", "encode users' windows into Redis", "worker"),
    "replay": Verb(
        "nearline",
        "nearline",
        "nearline",
        "send recorded events through Kafka, at a rate",
        "replay events.jsonl --rate 500",
    ),
    "forget": Verb("nearline", "nearline", "nearline", "forget a user in every tier, with a report", "forget USER"),
    "catalogue": Verb(
        "nearline",
        "nearline",
        "nearline",
        "new and withdrawn items, served within a minute",
        "catalogue follow --data journey",
    ),
    "edge": Verb("edge", "edge", "edge", "make and try the bundle for devices", "edge --help"),
    "serve": Verb("online", "online", "online", "start the look-up service", "serve"),
    "ask": Verb(
        None, "infra.explore:ask", "online", "ask the service for users' items, and measure it", "ask --user USER"
    ),
    "plan": Verb("online", "infra.plan", "operate", "see, compare, explain, apply it; advise", "plan show"),
    "registry": Verb("dags", "infra.registry", "operate", "upgrade it; who did what, when, why", "registry acts"),
    "contracts": Verb("online", "schemas", "operate", "write or check the JSON Schemas", "contracts --help"),
    "quality": Verb(
        None,
        "infra.quality:main",
        "operate",
        "is everything fresh, equal and well? watch a release",
        "quality freshness",
    ),
    "parity": Verb(None, "infra.parity:main", "operate", "compare the numbers of all tiers", "parity --users 50"),
    "dags": Verb("dags", "dags", "operate", "list, show and run the DAGs of the plan", "dags --help"),
    "airflow": Verb("dags", "airflow", "operate", "Airflow's own command line", "airflow version", program="airflow"),
    "up": Verb(None, "infra.stack_verbs:up", "operate", "start Redis, Kafka and Flink on this machine", "up"),
    "down": Verb(None, "infra.stack_verbs:down", "operate", "stop them; their data stays", "down"),
    "status": Verb(None, "infra.stack_verbs:status", "operate", "what runs, where, since when", "status --json"),
    "env": Verb(None, "infra.env_verb:main", "develop", "set up environments ahead of need", "env --all"),
    "bench": Verb(None, "infra.bench:main", "develop", "the measurements that the docs quote", "bench online --json"),
    "check": Verb(None, "infra.checks:check", "develop", "lint, format, types and import rules", "check"),
    "test": Verb(None, "infra.checks:test", "develop", "check, then every room's tests", "test --fast"),
    "doctor": Verb(None, "infra.doctor:main", "develop", "what this machine has and lacks", "doctor"),
}


def nearest(name: str) -> str | None:
    """The verb that was probably meant."""
    close = difflib.get_close_matches(name, VERBS, n=1, cutoff=0.5)
    return close[0] if close else None


def overview() -> str:
    """The help page: verbs by user, one line and one example each."""
    lines = [
        "usage: ./beforehand VERB [ARGUMENTS]",
        "",
        "Recall assets computed at the cheapest tier that is still fresh enough.",
        "The first use of a verb sets up the environment that it needs.",
    ]
    for key, title in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, verb in VERBS.items():
            if verb.group == key:
                lines.append(f"  {name:<10} {verb.summary:<48} ./beforehand {verb.example}")
    lines += ["", "`./beforehand VERB --help` shows a verb's own options."]
    return "\n".join(lines)
