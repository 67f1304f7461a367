"""The windows job as one would plainly write it in PyFlink's DataStream API: a keyed process function in Python.

``beforehand bench stream`` measures it beside the SQL job. It has the same semantics, with two simplifications in its
favour: a window's record carries the user before its first line break instead of a key, and a dead letter only its
reason and the record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import KeyedProcessFunction, OutputTag, ProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

from schemas.errors import DataError
from schemas.event import Event, Forget, decode_event, decode_forget
from schemas.locations import ROOT
from schemas.topics import FORGOTTEN_TOPIC
from streaming.bench.fold import Kept
from streaming.sql import JobSettings, configuration
from streaming.windows import java_errors, remote

NAME = "datastream-windows"
DEAD = OutputTag("dead", Types.STRING())
Read = tuple[str, Event | Forget, int]  # user, what happened, the broker's time stamp in ms


class Parse(ProcessFunction):
    """A record to what happened, or to a dead letter."""

    def __init__(self, max_future_ms: int, *, forgetting: bool) -> None:
        self._max_future_ms, self._forgetting = max_future_ms, forgetting

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        arrived_at = ctx.timestamp()
        try:
            found = decode_forget(value.encode()) if self._forgetting else decode_event(value.encode())
            if found.at > arrived_at + self._max_future_ms:
                raise DataError("future")
        except (DataError, UnicodeEncodeError) as error:
            letter = {"reason": str(error), "payload": value, "arrived_at": arrived_at}
            yield DEAD, msgspec.json.encode(letter).decode()
        else:
            yield found.user_id, found, arrived_at


class KeepWindow(KeyedProcessFunction):
    """A user's window, written at most once per refresh."""

    def __init__(self, size: int, refresh_ms: int) -> None:
        self._size, self._refresh_ms = size, refresh_ms
        self._kept: Any = None
        self._due: Any = None

    def open(self, runtime_context: Any) -> None:
        self._kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))
        self._due = runtime_context.get_state(ValueStateDescriptor("due", Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        read: Read = value
        _, found, arrived_at = read
        kept: Kept = self._kept.value() or Kept()
        if isinstance(found, Forget):
            kept.forget(found.at, arrived_at)
        else:
            kept.add(found, arrived_at, self._size)
        self._kept.update(kept)
        if not self._due.value():
            self._due.update(True)
            timers = ctx.timer_service()
            now: Any = timers.current_processing_time()
            timers.register_processing_time_timer(now - now % self._refresh_ms + self._refresh_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        self._due.clear()
        yield f"{ctx.get_current_key()}\n{(self._kept.value().window() or b'').decode()}"


def submit(settings: JobSettings, flink_url: str, jars: list[Path], topic: str, mode: str) -> str:
    """Hand the job over; it reads ``topic`` and writes ``topic-windows`` and ``topic-dead-letters``; returns its id.

    ``mode`` is Flink's: process or thread. Python workers read this checkout: the cluster must be on this machine.
    """
    chosen = {
        **configuration(settings),
        **remote(flink_url, jars),
        "pipeline.name": NAME,
        "python.execution-mode": mode,
        "python.pythonpath": str(ROOT),
    }
    made = Configuration()
    for key, value in chosen.items():
        made.set_string(key, value)
    # The usual way to an environment starts a small cluster of its own when no `flink run` is around it.
    jvm: Any = get_gateway().jvm
    java = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    environment = StreamExecutionEnvironment(java(made._j_configuration))
    read = _read(environment, settings, topic, forgetting=False)
    forgotten = _read(environment, settings, FORGOTTEN_TOPIC, forgetting=True)
    windows = (
        read.union(forgotten)
        .key_by(lambda one: one[0], key_type=Types.STRING())
        .process(KeepWindow(settings.window, settings.refresh_ms), Types.STRING())
    )
    windows.sink_to(_sink(settings.kafka, f"{topic}-windows"))
    read.get_side_output(DEAD).sink_to(_sink(settings.kafka, f"{topic}-dead-letters"))
    with java_errors(f"Flink at {flink_url}", "The client's log is in $BEFOREHAND_STATE/run/stream."):
        return str(environment.execute_async(NAME).get_job_id())


def _read(environment: Any, settings: JobSettings, topic: str, *, forgetting: bool) -> Any:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(settings.kafka)
        .set_topics(topic)
        .set_group_id(NAME)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), topic)
    return stream.process(Parse(settings.max_future_ms, forgetting=forgetting), Types.PICKLED_BYTE_ARRAY())


def _sink(kafka: str, topic: str) -> KafkaSink:
    record = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = KafkaSink.builder().set_bootstrap_servers(kafka).set_property("compression.type", "lz4")
    return sink.set_record_serializer(record).build()
