"""The stream job as SQL text, made from the plan: pure, so that it can be read and tested without Flink.

    events, forgotten (raw bytes) ── READ_EVENT ──┬── reason IS NULL ── GROUP BY user ── LAST_EVENTS ── windows
                                                  └── reason IS NOT NULL ───────────────────────────── dead-letters

LAST_EVENTS makes the record itself. A window without events, a forgotten user's, is NULL: a tombstone in the topic.

Every record is parsed once. After a failure the job goes on from its last checkpoint, so some windows come out a second
time, from their older states up to the newest, and some dead letters too: they name their partition and offset.

There is no event-time watermark: the windows are ordered by what they hold, so an empty partition holds nothing up and
an event of 2010 is as good as one of today.
"""

# ruff: noqa: S608 - what is put into a statement is a number or goes through `text`
from __future__ import annotations

import textwrap

import msgspec

from schemas.plan import Plan
from schemas.topics import DEAD_LETTERS_TOPIC, EVENTS_TOPIC, FORGOTTEN_TOPIC, WINDOWS_TOPIC

JOB_NAME = "beforehand-windows"
CONSUMER_GROUP = "beforehand-windows"
CHECKPOINT_INTERVAL_S = 20.0
LINGER_MS = 5

# Rows held back per subtask before the interval is over. Only a rate above this many per refresh, as when a backlog
# is read, makes a user's window come out more often than once per refresh.
MINI_BATCH_ROWS = 100_000


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the job takes from the plan and the command line."""

    kafka: str
    refresh_ms: int
    max_future_ms: int
    state_lifetime_ms: int
    max_bad_share: float
    window: int
    parallelism: int | None = None  # None leaves it to the cluster

    @classmethod
    def of(cls, plan: Plan, kafka: str, parallelism: int | None = None) -> JobSettings:
        """The settings that ``plan`` asks for."""
        return cls(
            kafka=kafka,
            refresh_ms=round(plan.nearline.refresh * 1000),
            max_future_ms=round(plan.nearline.max_future * 1000),
            state_lifetime_ms=round(plan.nearline.state_lifetime * 1000),
            max_bad_share=plan.nearline.max_bad_share,
            window=plan.model.window,
            parallelism=parallelism,
        )


def configuration(settings: JobSettings) -> dict[str, str]:
    """Flink's settings for this job; what is not named here is the cluster's."""
    chosen = {
        "pipeline.name": JOB_NAME,
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": f"{settings.refresh_ms} ms",
        "table.exec.mini-batch.size": str(MINI_BATCH_ROWS),
        "table.exec.state.ttl": f"{settings.state_lifetime_ms} ms",
        # Rows go from one chained operator to the next as they are, not copied: none of these operators keeps one, the
        # aggregation copies what it holds back for its mini-batch.
        "pipeline.object-reuse": "true",
        # Optimises what both sinks share as one block: otherwise each sink would parse every record for itself.
        "table.optimizer.reuse-optimize-block-with-digest-enabled": "true",
        "execution.checkpointing.interval": f"{round(CHECKPOINT_INTERVAL_S * 1000)} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        # Kafka away for an hour must not end the job.
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.max-backoff": "30 s",
    }
    if settings.parallelism is not None:
        chosen["parallelism.default"] = str(settings.parallelism)
    return chosen


def functions() -> list[str]:
    """The two functions of the jar that ``streaming/java`` builds."""
    return [
        "CREATE TEMPORARY SYSTEM FUNCTION READ_EVENT AS 'beforehand.ReadEvent' LANGUAGE JAVA",
        "CREATE TEMPORARY SYSTEM FUNCTION LAST_EVENTS AS 'beforehand.LastEvents' LANGUAGE JAVA",
    ]


def tables(settings: JobSettings) -> list[str]:
    """One source, two sinks."""
    kafka = text(settings.kafka)
    producer = f"""
            'properties.bootstrap.servers' = {kafka},
            'properties.compression.type' = 'lz4',
            'properties.linger.ms' = '{LINGER_MS}'"""
    source = f"""
        CREATE TEMPORARY TABLE events (
            `value` BYTES,
            `topic` STRING METADATA VIRTUAL,
            `partition` INT METADATA VIRTUAL,
            `offset` BIGINT METADATA VIRTUAL,
            `arrived_at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL
        ) WITH (
            'connector' = 'kafka',
            'topic' = {text(f"{EVENTS_TOPIC};{FORGOTTEN_TOPIC}")},
            'properties.bootstrap.servers' = {kafka},
            'properties.group.id' = {text(CONSUMER_GROUP)},
            'scan.startup.mode' = 'earliest-offset',
            'format' = 'raw'
        )"""
    windows = f"""
        CREATE TEMPORARY TABLE windows (
            `user_id` STRING,
            `window` BYTES,
            PRIMARY KEY (`user_id`) NOT ENFORCED
        ) WITH (
            'connector' = 'upsert-kafka',
            'topic' = {text(WINDOWS_TOPIC)},
            'key.format' = 'raw',
            'value.format' = 'raw',
            'value.fields-include' = 'EXCEPT_KEY',{producer}
        )"""
    dead_letters = f"""
        CREATE TEMPORARY TABLE dead_letters (
            `reason` STRING,
            `topic` STRING,
            `partition` INT,
            `offset` BIGINT,
            `payload` BYTES,
            `arrived_at` BIGINT
        ) WITH (
            'connector' = 'kafka',
            'topic' = {text(DEAD_LETTERS_TOPIC)},
            'value.format' = 'json',{producer}
        )"""
    return [source, windows, dead_letters]


def views(settings: JobSettings) -> list[str]:
    """Every record with what READ_EVENT made of it."""
    limits = f"{settings.max_future_ms}, CAST({settings.max_bad_share!r} AS DOUBLE)"
    call = f"READ_EVENT(`value`, `arrived_at`, `topic` = {text(FORGOTTEN_TOPIC)}, {limits})"
    return [f"CREATE TEMPORARY VIEW read_events AS SELECT `topic`, `partition`, `offset`, {call} AS e FROM events"]


def inserts(settings: JobSettings) -> list[str]:
    """The two statements that run, as one set."""
    return [
        f"""
        INSERT INTO windows
        SELECT
            e.`user_id`,
            LAST_EVENTS(e.`event_id`, e.`item_id`, e.`kind`, e.`at`, e.`arrived_at`, {settings.window})
        FROM read_events
        WHERE e.`reason` IS NULL
        GROUP BY e.`user_id`""",
        """
        INSERT INTO dead_letters
        SELECT e.`reason`, `topic`, `partition`, `offset`, e.`payload`, e.`arrived_at`
        FROM read_events
        WHERE e.`reason` IS NOT NULL""",
    ]


def text(value: str) -> str:
    """An SQL text literal."""
    return "'" + value.replace("'", "''") + "'"


def dedented(statement: str) -> str:
    """A statement as people read it."""
    return textwrap.dedent(statement).strip()
