"""``ask``: one user's items, or quality and latency over many users, through HTTP like any client."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from online.client import AsyncRecallClient, RecallError
from online.targets import Outcome, PromptLine, Target, read_lines, recalls, summary
from online.tls import client_context
from schemas.api import PromptEmbedding, RecallResponse
from schemas.cli import Result, bar, say
from schemas.errors import BeforehandError
from schemas.locations import address, releases_dir
from schemas.plan import load_plan
from schemas.registry import Registry
from schemas.release import CATALOGUE, Catalogue

PATIENCE_S = 10.0
"""An answer that comes this late is still measured: late, not lost."""


def ask(args: argparse.Namespace) -> Result:
    """The verb."""
    if args.targets is None:
        return asyncio.run(_ask_one(args))
    targets = [t for t in read_lines(args.targets, Target) if t.items][: args.limit]
    prompts = {line.user_id: line.prompt for line in read_lines(args.prompts, PromptLine)} if args.prompts else {}
    result = asyncio.run(_measure(args, targets, prompts))
    if args.whole:
        from online.whole import measure_whole  # noqa: PLC0415 - it loads the model runtime

        result["whole"] = asyncio.run(measure_whole(targets))
    _tell(result)
    return result


async def _ask_one(args: argparse.Namespace) -> dict[str, Any]:
    async with _client(args) as client:
        response = await client.recall(args.user, k=args.k, budget_ms=args.budget_ms)
    took = f"{response.ledger.total_ms:.2f} ms"
    say(f"{len(response.items)} items by {response.rung} of release {response.release} in {took}")
    for item in response.items if not args.json else []:
        say(f"  {item.score:9.3f}  {'-'.join(map(str, item.sid)):<14} {item.item_id}")
    return msgspec.to_builtins(response)


async def _measure(
    args: argparse.Namespace, targets: Sequence[Target], prompts: Mapping[str, PromptEmbedding]
) -> dict[str, Any]:
    slack_ms = float(load_plan().online.slack) * 1000
    async with _client(args) as client:
        await _ask_all(args, client, targets[: args.warm], {}, "warming")
        plain = await _ask_all(args, client, targets, {}, "asking")
        result = summary(plain, slack_ms, cache(_catalogue))
        if prompts:
            chosen = [target for target in targets if target.user_id in prompts]
            asked = await _ask_all(args, client, chosen, prompts, "with prompts")
            states = [r.assets["prompt_embedding"].state for o in asked if (r := o.response)]
            used = sum(state in ("FRESH", "STALE") for state in states)
            result["with_prompt"] = {**recalls(asked), "prompts_used": used}
            result["without_prompt"] = recalls([outcome for outcome in plain if outcome.target.user_id in prompts])
    return result


async def _ask_all(
    args: argparse.Namespace,
    client: AsyncRecallClient,
    targets: Sequence[Target],
    prompts: Mapping[str, PromptEmbedding],
    title: str,
) -> list[Outcome]:
    """Ask for every target, ``concurrency`` at a time; the outcomes in the order of their ends."""
    outcomes: list[Outcome] = []
    rest = iter(targets)
    with bar() as progress:
        task = progress.add_task(title, total=len(targets))

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            progress.advance(task)

        lanes = (_lane(args, client, rest, prompts, done) for _ in range(max(1, args.concurrency)))
        await asyncio.gather(*lanes)
    return outcomes


async def _lane(
    args: argparse.Namespace,
    client: AsyncRecallClient,
    targets: Iterator[Target],
    prompts: Mapping[str, PromptEmbedding],
    done: Callable[[Outcome], None],
) -> None:
    for target in targets:
        response: RecallResponse | None = None
        error = ""
        begun = time.perf_counter()
        try:
            response = await client.recall(
                target.user_id, k=args.k, budget_ms=args.budget_ms, prompt=prompts.get(target.user_id)
            )
        except RecallError as failed:
            error = type(failed).__name__
        done(Outcome(target, (time.perf_counter() - begun) * 1000, response, error))


def _client(args: argparse.Namespace) -> AsyncRecallClient:
    api_key = os.environ.get("BEFOREHAND_API_KEY")
    url = args.url or address("online")
    return AsyncRecallClient(url, timeout_s=PATIENCE_S, api_key=api_key, tls=client_context())


def _catalogue(release_id: str) -> frozenset[str] | None:
    """The item ids of a release, or None when it is not to be found on this machine."""
    try:
        path = releases_dir() / Registry().get(release_id).path / CATALOGUE
        return frozenset(msgspec.msgpack.decode(path.read_bytes(), type=Catalogue).item_ids)
    except (BeforehandError, OSError, msgspec.DecodeError) as error:
        say(f"unknown items are not counted: {error}")
        return None


def _tell(result: Mapping[str, Any]) -> None:
    say(f"all users: {_quality(result)}")
    for name in ("without_prompt", "with_prompt"):
        if part := result.get(name):
            say(f"  {name}: {_quality(part)}")
    say(f"latency (ms) {_listed(result['latency_ms'])}  late {result['late']}")
    say(f"rungs {_listed(result['rungs'])}")
    say(f"stages (median ms) {_listed(result['ledger_ms']['stages'])}")
    if result["errors"]:
        say(f"errors {_listed(result['errors'])}")
    if whole := result.get("whole"):
        say(f"all live {whole['all_live_ms']:.2f} ms against {whole['beforehand_ms']:.2f} ms ({whole['users']} users)")


def _quality(part: Mapping[str, float]) -> str:
    return f"recall@10 {part['recall_at_10']:.4f}  recall@50 {part['recall_at_50']:.4f}  users {part['users']}"


def _listed(values: Mapping[str, float]) -> str:
    return "  ".join(
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )
