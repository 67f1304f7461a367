"""The job's SQL and settings say what the plan says; no Flink needed."""

from __future__ import annotations

import re

import msgspec
import pytest

from schemas.locations import ROOT
from schemas.plan import load_plan
from schemas.window import DeadLetter, Window, WindowEvent
from streaming import sql


def settings(*overrides: str, kafka: str = "broker:9092", parallelism: int | None = None) -> sql.JobSettings:
    return sql.JobSettings.of(load_plan(overrides=overrides), kafka, parallelism)


def table(name: str, *overrides: str) -> str:
    return next(one for one in sql.tables(settings(*overrides)) if f"TABLE {name} (" in one)


def columns(name: str) -> list[str]:
    inside = table(name).partition("(")[2].partition(") WITH")[0]
    return [line.split("`")[1] for line in inside.splitlines() if line.strip().startswith("`")]


def fields(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def test_columns_are_the_fields_of_the_contracts() -> None:
    assert columns("windows") == ["user_id", "window"]
    writer = (ROOT / "streaming/java/src/main/java/beforehand/WindowJson.java").read_text("utf-8")
    written = re.findall(r'\\"(\w+)\\":', writer)
    assert written == ["events", *fields(WindowEvent), "arrived_at"]
    assert {"events", "arrived_at"} == set(fields(Window))
    assert columns("dead_letters") == fields(DeadLetter)


def test_the_plan_reaches_the_statements() -> None:
    made = settings("nearline.max_future=90s", "nearline.max_bad_share=0.000125", "model.window=7")
    assert (
        "READ_EVENT(`value`, `arrived_at`, `topic` = 'forgotten', 90000, CAST(0.000125 AS DOUBLE))"
        in sql.views(made)[0]
    )
    assert "LAST_EVENTS(e.`event_id`, e.`item_id`, e.`kind`, e.`at`, e.`arrived_at`, 7)" in sql.inserts(made)[0]


def test_the_plan_reaches_the_configuration() -> None:
    chosen = sql.configuration(settings("nearline.refresh=250ms", "nearline.state_lifetime=100d"))
    assert chosen["table.exec.mini-batch.enabled"] == "true"
    assert chosen["table.exec.mini-batch.allow-latency"] == "250 ms"
    assert chosen["table.exec.state.ttl"] == f"{100 * 86_400_000} ms"


def test_checkpoints_are_exact_and_kept() -> None:
    chosen = sql.configuration(settings())
    assert chosen["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    assert chosen["execution.checkpointing.externalized-checkpoint-retention"] == "RETAIN_ON_CANCELLATION"


@pytest.mark.parametrize(("parallelism", "expected"), [(None, None), (3, "3")])
def test_parallelism_is_the_clusters_unless_named(parallelism: int | None, expected: str | None) -> None:
    assert sql.configuration(settings(parallelism=parallelism)).get("parallelism.default") == expected


def test_both_sinks_read_the_one_view_and_part_every_record() -> None:
    windows, dead_letters = sql.inserts(settings())
    assert "WHERE e.`reason` IS NULL" in windows
    assert "WHERE e.`reason` IS NOT NULL" in dead_letters
    assert all("FROM read_events" in insert for insert in (windows, dead_letters))


def test_text_cannot_end_its_literal() -> None:
    assert "'properties.bootstrap.servers' = 'a'', ''b'," in sql.tables(settings(kafka="a', 'b"))[0]


def test_no_watermark_and_the_whole_topic_from_the_start() -> None:
    source = table("events")
    assert "WATERMARK" not in source.upper()
    assert "'scan.startup.mode' = 'earliest-offset'" in source
    assert "'format' = 'raw'" in source
