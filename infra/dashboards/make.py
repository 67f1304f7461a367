"""``python -m infra.dashboards.make``: the three Grafana dashboards, from the tables below. Standard library only.

The JSON beside this file is what Grafana reads; a test keeps both equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
Target = tuple[str, str]  # expression, legend


@dataclass(frozen=True)
class Panel:
    """One graph; ``unit`` is Grafana's."""

    title: str
    about: str
    unit: str
    targets: tuple[Target, ...]


def quantiles(metric: str, selector: str = "") -> tuple[Target, ...]:
    """p50, p95 and p99 of a histogram."""
    rate = f"sum by (le) (rate({metric}_bucket{selector}[$__rate_interval]))"
    return tuple((f"histogram_quantile({q}, {rate})", f"p{q * 100:.0f}") for q in (0.5, 0.95, 0.99))


def by(label: str, metric: str, selector: str = "") -> tuple[Target, ...]:
    """A counter's rate by one label."""
    return ((f"sum by ({label}) (rate({metric}{selector}[$__rate_interval]))", f"{{{{{label}}}}}"),)


def share(label: str, metric: str) -> tuple[Target, ...]:
    """Each label's share of a counter's rate."""
    rate = f"sum by ({label}) (rate({metric}[$__rate_interval]))"
    total = f"clamp_min(sum(rate({metric}[$__rate_interval])), 0.001)"
    return ((f"{rate} / scalar({total})", f"{{{{{label}}}}}"),)


def rate_of(what: str, of: str, label: str) -> tuple[Target, ...]:
    """How many events of one kind there are for one of another, over an hour: few shoppers buy."""
    counts = [f'sum by ({label}) (rate(beforehand_events_total{{kind="{kind}"}}[1h]))' for kind in (what, of)]
    return ((f"{counts[0]} / ({counts[1]} > 0)", f"{{{{{label}}}}}"),)


def mean(what: str) -> Target:
    """Of a figure of the model's answers, by rung."""
    total, count = (
        f"sum by (rung) (rate(beforehand_model_{what}_{part}[$__rate_interval]))" for part in ("sum", "count")
    )
    return f"{total} / ({count} > 0)", f"{what} {{{{rung}}}}"


SYSTEM = (
    Panel("Answer time", "From the request's entry to its answer", "s", quantiles("beforehand_answer_seconds")),
    Panel(
        "Where the budget goes",
        "Mean time of each stage of a request",
        "s",
        (
            (
                "sum by (stage) (rate(beforehand_stage_seconds_sum[$__rate_interval])) / "
                "clamp_min(sum by (stage) (rate(beforehand_stage_seconds_count[$__rate_interval])), 0.001)",
                "{{stage}}",
            ),
        ),
    ),
    Panel("Late answers", "Later than budget and slack", "percentunit", (("beforehand:late:ratio_rate5m", "{{pod}}"),)),
    Panel("Refused", "By HTTP status", "reqps", by("status", "beforehand_refused_total")),
    Panel("Queue wait p95", "Of decodes", "s", (("beforehand:queue_wait_seconds:p95_5m", "{{pod}}"),)),
    Panel("Decodes in flight", "Running or waiting", "short", (("beforehand_decode_in_flight", "{{pod}}"),)),
    Panel("Turn of the event loop", "Under load", "s", (("beforehand_turn_seconds", "{{pod}}"),)),
    Panel("Look-ups", "Where they were answered", "reqps", by("by", "beforehand_cache_total")),
    Panel(
        "Cache and circuit",
        "Bytes kept; 1 while Redis is left alone",
        "bytes",
        (("beforehand_cache_bytes", "cache {{pod}}"), ("beforehand_circuit_open", "circuit {{pod}}")),
    ),
    Panel(
        "Worker lag",
        "Windows not encoded yet; users whose Redis node is out of reach",
        "short",
        (("sum(beforehand_worker_lag)", "lag"), ("sum(beforehand_worker_held)", "held")),
    ),
    Panel(
        "Worker",
        "Windows read, states written, older ones dropped",
        "ops",
        (
            ("sum(rate(beforehand_worker_records_total[$__rate_interval]))", "records"),
            ("sum(rate(beforehand_worker_states_total[$__rate_interval]))", "states"),
            ("sum(rate(beforehand_worker_stale_total[$__rate_interval]))", "dropped"),
        ),
    ),
    Panel("Batch size", "Windows encoded together", "short", quantiles("beforehand_worker_batch_size")),
    Panel(
        "Events to Kafka",
        "Waiting bytes, lost and without room",
        "short",
        (
            ("sum(beforehand_events_waiting_bytes)", "waiting bytes"),
            ("sum(rate(beforehand_events_lost_total[$__rate_interval]))", "lost"),
            ("sum(rate(beforehand_events_no_room_total[$__rate_interval]))", "no room"),
        ),
    ),
)
MODEL = (
    Panel(
        "Answers by release", "Two while a promotion is under way", "reqps", by("release", "beforehand_answers_total")
    ),
    Panel("Assets by state", "Of all assets of all answers", "reqps", by("asset, state", "beforehand_assets_total")),
    Panel("Why assets were not used", "By reason", "reqps", by("reason", "beforehand_assets_total", '{reason!="ok"}')),
    Panel(
        "Event to visible",
        "From the broker's time stamp to the write of the state",
        "s",
        quantiles("beforehand_worker_event_to_visible_seconds"),
    ),
    Panel(
        "Unknown items",
        "Events of items that the release does not know, per encoded window",
        "short",
        (
            (
                "sum(rate(beforehand_worker_unknown_items_total[$__rate_interval])) / "
                "clamp_min(sum(rate(beforehand_worker_states_total[$__rate_interval])), 0.001)",
                "unknown",
            ),
        ),
    ),
    Panel(
        "Dead letters",
        "Share of the stream's records; letters of the workers",
        "short",
        (
            ("max(flink_taskmanager_job_task_operator_bh_bad_share)", "share in the stream"),
            ("sum(rate(beforehand_worker_dead_letters_total[$__rate_interval]))", "of the workers"),
        ),
    ),
    Panel(
        "Candidate lists and releases of the workers",
        "Lists written; the release in use",
        "short",
        (
            ("sum(rate(beforehand_worker_candidates_total[$__rate_interval]))", "lists"),
            ("max by (id) (beforehand_worker_release)", "{{id}}"),
        ),
    ),
    Panel(
        "Diversity, novelty, overlap with the lists",
        "Means over the sampled answers, by rung",
        "percentunit",
        (mean("diversity"), mean("novelty"), mean("beam_overlap")),
    ),
    Panel(
        "Coverage of the catalogue",
        "Share of the items in the last sampled answers",
        "percentunit",
        (("max by (release) (beforehand_model_coverage)", "{{release}}"),),
    ),
    Panel(
        "Scores of generated answers",
        "Quantiles by release",
        "short",
        (("avg by (release, quantile) (beforehand_model_score)", "{{release}} q{{quantile}}"),),
    ),
    Panel(
        "Score drift",
        "From the same decoder's scores on the default rows, in deviations",
        "short",
        (("avg by (release) (beforehand_model_score_drift)", "{{release}}"),),
    ),
    Panel(
        "Loaded releases",
        "Instances by what a release is to them",
        "short",
        (("sum by (release, role) (beforehand_release_role)", "{{role}} {{release}}"),),
    ),
    Panel(
        "Values refused",
        "Of another user, or from the future",
        "short",
        (
            ("sum(rate(beforehand_wrong_key_total[$__rate_interval]))", "wrong key"),
            ("sum(rate(beforehand_ahead_total[$__rate_interval]))", "ahead"),
        ),
    ),
)
BUSINESS = (
    Panel("Share by rung", "How personal the answers are", "percentunit", share("rung", "beforehand_answers_total")),
    Panel("Answers", "By rung", "reqps", by("rung", "beforehand_answers_total")),
    Panel("Why better rungs did not answer", "By reason", "reqps", by("rung, reason", "beforehand_skipped_total")),
    Panel(
        "Work saved",
        "Seconds of live work a second that precompute saved, by asset",
        "short",
        by("asset", "beforehand_saved_seconds_total"),
    ),
    Panel("Shoppers' events", "By kind", "ops", by("kind", "beforehand_events_total")),
    Panel(
        "Events by the rung that led to them",
        "Clicks, carts and purchases after an answer",
        "ops",
        by("rung, kind", "beforehand_events_total", '{kind!="impression"}'),
    ),
    Panel("Clicks per impression", "By rung", "percentunit", rate_of("click", "impression", "rung")),
    Panel("Purchases per click", "By rung", "percentunit", rate_of("purchase", "click", "rung")),
    Panel("Clicks per impression, by release", "By release", "percentunit", rate_of("click", "impression", "release")),
    Panel("Purchases per click, by release", "By release", "percentunit", rate_of("purchase", "click", "release")),
    Panel("Devices", "Files fetched", "reqps", by("status", "beforehand_edge_files_total")),
)
DASHBOARDS: dict[str, tuple[Panel, ...]] = {"system": SYSTEM, "model": MODEL, "business": BUSINESS}


def dashboard(name: str) -> dict[str, Any]:
    """One dashboard as Grafana reads it."""
    panels = [_panel(place, panel) for place, panel in enumerate(DASHBOARDS[name])]
    return {
        "uid": f"beforehand-{name}",
        "title": f"Beforehand: {name}",
        "tags": ["beforehand"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "links": [{"type": "dashboards", "title": "Beforehand", "tags": ["beforehand"], "asDropdown": False}],
        "panels": panels,
    }


def _panel(place: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "prometheus"}
    row, column = divmod(place, COLUMNS)
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": source, "expr": expr, "legendFormat": legend}
            for number, (expr, legend) in enumerate(panel.targets)
        ],
    }


def text(name: str) -> str:
    """The file's content."""
    return json.dumps(dashboard(name), indent=1) + "\n"


def write() -> None:
    """Write every dashboard."""
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    write()
