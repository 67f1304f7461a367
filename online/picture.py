"""``explain``: a user's state and what each rung would answer, for people."""

from __future__ import annotations

import argparse
import asyncio
import os
import time

import msgspec
from rich.markup import escape
from rich.table import Table

from online.client import AsyncRecallClient
from online.tls import client_context
from schemas.api import AssetReport, Explanation, Ledger, RungAnswer
from schemas.cli import Result, console, say
from schemas.locations import address
from schemas.units import human_seconds

WINDOW_SHOWN = 12


def explain(args: argparse.Namespace) -> Result:
    """The verb: one explanation, and one real request for its ledger."""
    explanation, ledger = asyncio.run(_fetch(args))
    if not args.json:
        draw(explanation, ledger, int(time.time() * 1000))
    return {"explanation": msgspec.to_builtins(explanation), "ledger": msgspec.to_builtins(ledger)}


async def _fetch(args: argparse.Namespace) -> tuple[Explanation, Ledger]:
    url = args.url or address("online")
    api_key = os.environ.get("BEFOREHAND_API_KEY")
    async with AsyncRecallClient(url, api_key=api_key, tls=client_context()) as client:
        explanation = await client.explain(args.user, k=args.k)
        return explanation, (await client.recall(args.user, k=args.k)).ledger


def draw(explanation: Explanation, ledger: Ledger, now_ms: int) -> None:
    """Print it; ids and titles are shown as they are, never as markup."""
    if not explanation.release:
        say("No release serves: see /v1/releases.")
        return
    bucket = escape(explanation.bucket)
    console.print(f"[bold]{escape(explanation.user_id)}[/bold]  bucket {bucket}  release {explanation.release}")
    console.print(_assets(explanation.assets))
    if explanation.watermark is not None:
        age = human_seconds(max(0, now_ms - explanation.watermark) // 1000)
        console.print(f"Window of {len(explanation.window)}, newest first; the newest event is {age} old")
        for item_id in explanation.window[:WINDOW_SHOWN]:
            console.print(f"  {_named(explanation, item_id)}")
        if hidden := len(explanation.window) - WINDOW_SHOWN:
            console.print(f"  and {hidden} more" if hidden > 0 else "")
    for rung in explanation.rungs:
        _draw_rung(explanation, rung)
    console.print(_ledger(ledger))


def _assets(assets: dict[str, AssetReport]) -> Table:
    table = Table("asset", "state", "reason", "age", box=None)
    for name, report in assets.items():
        age = "" if report.age_s is None else human_seconds(round(report.age_s, 3))
        table.add_row(name, report.state, report.reason, age)
    return table


def _draw_rung(explanation: Explanation, rung: RungAnswer) -> None:
    answered = f"{len(rung.items)} items in {rung.took_ms:.1f} ms" if rung.items else f"no answer: {rung.reason}"
    console.print(f"[bold]{rung.rung}[/bold]  {answered}")
    for item in rung.items:
        codes = "-".join(str(code) for code in item.sid)
        console.print(f"  {item.score:8.3f}  {codes:<14} {_named(explanation, item.item_id)}")


def _named(explanation: Explanation, item_id: str) -> str:
    return f"{escape(explanation.titles.get(item_id, ''))}  [dim]{escape(item_id)}[/dim]"


def _ledger(ledger: Ledger) -> str:
    stages = "  ".join(f"{name} {ms:.2f}" for name, ms in ledger.stages_ms.items())
    saved = "  ".join(f"{name} {ms:.2f}" for name, ms in ledger.saved_ms.items()) or "nothing"
    return f"One request: {ledger.total_ms:.2f} of {ledger.budget_ms:.0f} ms: {stages}\nDone beforehand (ms): {saved}"
