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
    "demo": Verb(None, "infra.demo:main", "try", "the whole system, small, in a few minutes", "demo"),
    "data": Verb("offline", "offline", "offline", "fetch or make a catalogue and its events", "data --help"),
    "build": Verb("offline", "offline", "offline", "train the model and make a release", "build --help"),
    "release": Verb("offline", "offline", "offline", "list, promote, roll back releases", "release list"),
    "report": Verb("offline", "infra.report", "offline", "a report of quality and cost with its charts", "report"),
    "stream": Verb("streaming", "streaming", "nearline", "submit and run the Flink jobs", "stream --help"),
    "worker": Verb("nearline", "nearline", "nearline", "encode users' windows into Redis", "worker"),
    "replay": Verb("nearline", "nearline", "nearline", "rebuild the states from the windows topic", "replay"),
    "edge": Verb("edge", "edge", "edge", "make and try the bundle for devices", "edge --help"),
    "serve": Verb("online", "online", "online", "start the look-up service", "serve"),
    "ask": Verb("online", "online", "online", "ask the running service for one user's items", "ask USER"),
    "explain": Verb("online", "online", "online", "show why an answer came out as it did", "explain USER"),
    "plan": Verb("online", "schemas", "operate", "what the plan will rebuild, and what it costs", "plan --help"),
    "contracts": Verb("online", "schemas", "operate", "write or check the JSON Schemas", "contracts --help"),
    "dags": Verb("dags", "dags", "operate", "list, show and run the DAGs of the plan", "dags --help"),
    "airflow": Verb("dags", "airflow", "operate", "Airflow's own command line", "airflow version", program="airflow"),
    "up": Verb(None, "infra.stack_verbs:up", "operate", "start Redis, Kafka and Flink on this machine", "up"),
    "down": Verb(None, "infra.stack_verbs:down", "operate", "stop them; their data stays", "down"),
    "status": Verb(None, "infra.stack_verbs:status", "operate", "what runs, where, since when", "status --json"),
    "env": Verb(None, "infra.env_verb:main", "develop", "set up environments ahead of need", "env --all"),
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
