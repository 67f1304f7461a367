"""Rules and dashboards: the expressions parse, each metric is exported by a service, each alert has its page."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from infra.dashboards.make import DASHBOARDS, FOLDER, text
from nearline.metrics import Tally
from online.edge_routes import EdgeRoutes
from online.events import EventsRoute
from online.metrics import Metrics
from online.model_metrics import PER_RUNG, ModelMetrics, Seen

ROOT = Path(__file__).resolve().parents[2]
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
ALERTS = [rule for group in RULES for rule in group["rules"] if "alert" in rule]
RECORDED = {rule["record"] for group in RULES for rule in group["rules"] if "record" in rule}
RUNBOOK = ROOT / "docs" / "runbook.md"
FLINK_PREFIX = "flink_taskmanager_job_task_operator_"


class FullOutbox:
    """An outbox that has something to tell."""

    num_lost = 1
    num_bytes = 1


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every sample that the services can export, with its labels: from their own registries."""
    folder = tmp_path_factory.mktemp("edge")
    metrics, tally = Metrics(), Tally()
    metrics._stage.of("queue").observe(0.01)
    metrics._total.observe(0.01)
    route = EventsRoute(FullOutbox(), lambda: frozenset({"r"}), metrics.registry)  # type: ignore[arg-type]
    route._taken["click", "generate", "r"] += 1
    model = ModelMetrics(metrics.registry)
    model._sums |= {(what, "generate", "r"): (1, 1.0) for what in PER_RUNG}
    model._seen["r"] = Seen(np.zeros(1), (0.0, 1.0), 1, deque([1.0]))
    EdgeRoutes(folder, None, frozenset(), metrics.registry)
    found: dict[str, set[str]] = {}
    for registry in (metrics.registry, tally.registry):
        for name, labels in samples(registry):
            found.setdefault(name, set()).update(labels)
    for constant in re.findall(r'"(bh_\w+)"', (ROOT / "streaming" / "report.py").read_text()):
        found[FLINK_PREFIX + constant] = set()
    return found


def samples(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    """Names and labels; a metric with labels that nobody used yet has no sample, but is declared."""
    kinds = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    kinds["summary"] = ("_sum", "_count")
    for collector in list(registry._collector_to_names):
        declared = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            used = {label for sample in family.samples for label in sample.labels}
            for suffix in kinds[family.type]:
                yield family.name + suffix, declared | used | {"le"} if suffix == "_bucket" else declared | used


def selectors(node: Any) -> Iterator[Any]:
    """Every vector selector of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(node, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from selectors(inner)
    for argument in getattr(node, "args", None) or []:
        yield from selectors(argument)


def expressions() -> list[tuple[str, str]]:
    rules = [(rule.get("alert") or rule["record"], rule["expr"]) for group in RULES for rule in group["rules"]]
    panels = [
        (f"{name}: {panel.title}", expr.replace("$__rate_interval", "5m"))
        for name, board in DASHBOARDS.items()
        for panel in board
        for expr, _ in panel.targets
    ]
    return rules + panels


@pytest.mark.parametrize(("where", "expr"), expressions())
def test_an_expression_parses_and_asks_for_what_is_exported(
    where: str, expr: str, exported: dict[str, set[str]]
) -> None:
    found = list(selectors(promql_parser.parse(expr)))
    assert found, where
    for selector in found:
        assert selector.name in exported or selector.name in RECORDED, f"{where}: nobody exports {selector.name}"
        for matcher in selector.matchers.matchers:
            assert matcher.name in exported.get(selector.name, {matcher.name}), f"{where}: no label {matcher.name}"


def test_the_walk_sees_every_selector() -> None:
    parsed = promql_parser.parse('sum by (a) (rate(x_total{b="1"}[5m])) / clamp_min(max(y), 1) > (z offset 1h)')
    assert {selector.name for selector in selectors(parsed)} == {"x_total", "y", "z"}


def test_labels_that_are_grouped_by_exist(exported: dict[str, set[str]]) -> None:
    ours = {label for labels in exported.values() for label in labels} | {"namespace", "pod", "id"}
    for where, expr in expressions():
        for labels in re.findall(r"\bby \(([^)]*)\)", expr):
            assert {label.strip() for label in labels.split(",")} <= ours, where


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_it_is_and_has_its_page(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "warn")
    assert alert["annotations"]["summary"]
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert page == "docs/runbook.md"
    assert anchor == alert["alert"].lower()
    assert anchor in sections()


def sections() -> dict[str, str]:
    """The runbook's pages by anchor."""
    parts = re.split(r"^### ", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].strip().lower(): part for part in parts}


def test_each_page_says_what_it_means_where_to_look_and_what_to_do() -> None:
    for anchor, part in sections().items():
        for word in ("**Means**", "**Look**", "**Do**"):
            assert word in part, f"{anchor} lacks {word}"


def test_what_the_verbs_and_dags_point_to_is_there() -> None:
    for path in [*(ROOT / "infra").glob("*.py"), *(ROOT / "dags").glob("*.py")]:
        for anchor in re.findall(r"runbook\.md#(\w+)", path.read_text()):
            assert anchor in sections(), path
    for anchor in re.findall(r'"(\w+)"\s*\)?$', (ROOT / "infra" / "quality.py").read_text(), flags=re.MULTILINE):
        if anchor.islower() and anchor.endswith(("stale", "letters", "drift", "refused", "failed")):
            assert anchor in sections()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_dashboards_are_those_of_the_tables(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text(name), "run python -m infra.dashboards.make"


def test_the_worker_tells_what_the_exposition_format_knows() -> None:
    from prometheus_client import generate_latest

    families = list(text_string_to_metric_families(generate_latest(Tally().registry).decode()))
    assert "beforehand_worker_lag" in {family.name for family in families}
