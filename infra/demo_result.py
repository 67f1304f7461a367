"""From what the verbs answered to the one object that `demo --json` prints and the report shows."""

from __future__ import annotations

from typing import Any

Stage = dict[str, Any]


def summarise(answers: dict[str, Any], steps: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The demo's result. Milliseconds are wall time, recall is hits / size of the target, the mean over users."""
    build, ask, replay = answers["build"], answers["ask"], answers["replay"]
    metrics = build["metrics"]
    text_ms = build["stages"]["encode"]["alone_ms"] * ask["whole"]["window_items"]
    waterfall = waterfall_of(ask["whole"]["stages"], text_ms)
    return {
        "recall_at_10": ask["recall_at_10"],
        "recall_at_50": ask["recall_at_50"],
        "popularity_recall_at_10": metrics["popular_recall_at_10"],
        "popularity_recall_at_50": metrics["popular_recall_at_50"],
        "knn_recall_at_10": metrics["neighbours_recall_at_10"],
        "knn_recall_at_50": metrics["neighbours_recall_at_50"],
        "with_prompt": ask["with_prompt"],
        "without_prompt": ask["without_prompt"],
        "freshness_p50_ms": replay["freshness_ms"]["p50"],
        "freshness_p99_ms": replay["freshness_ms"]["p99"],
        "latency_p50_ms": ask["latency_ms"]["p50"],
        "latency_p99_ms": ask["latency_ms"]["p99"],
        "live_ms": round(sum(s["ms"] for s in waterfall if s["tier"] == "online"), 3),
        "all_live_ms": round(sum(s["ms"] for s in waterfall), 3),
        "all_live_without_text_ms": round(sum(s["ms"] for s in waterfall if s["stage"] != TEXT), 3),
        "waterfall": waterfall,
        "rungs": ask["rungs"],
        "rungs_with_state": ask["rungs_with_state"],
        "unknown_items": ask["unknown_items"],
        "late": ask["late"],
        "errors": sum(ask["errors"].values()),
        "release": build["release"],
        "replay": {k: replay[k] for k in ("events", "bad", "seconds", "rate")},
        "edge_encode_ms": answers["edge"]["encode_ms"],
        "data": {key: value for key, value in answers["data"].items() if key not in ("folder", "first_rejected")},
        "steps": steps,
        "example": example_of(ask["example"], answers["explain"]["explanation"]),
        "seconds": seconds,
    }


TEXT = "encode the texts of the window's items"


def waterfall_of(stages: dict[str, float], text_ms: float) -> list[Stage]:
    """One request's work, by the tier that did it. Doing all of it live would take the sum.

    ``stages`` are medians of single requests, measured one after the other in one process with one thread;
    ``text_ms`` is the time of one text alone, measured by the offline build, times the median number of items in a
    window.
    """
    return [
        {"stage": TEXT, "tier": "offline", "ms": round(text_ms, 3)},
        {"stage": "encode the intent", "tier": "nearline", "ms": round(stages["intent_encode"], 3)},
        {"stage": "find the window's neighbours", "tier": "nearline", "ms": round(stages["neighbours"], 3)},
        {"stage": "encode the prompt", "tier": "edge", "ms": round(stages["prompt_encode"], 3)},
        {"stage": "read the state", "tier": "online", "ms": round(stages["store"], 3)},
        {"stage": "decode the items", "tier": "online", "ms": round(stages["decode"], 3)},
    ]


def example_of(answer: dict[str, Any], explanation: dict[str, Any]) -> dict[str, Any]:
    """One user's answer (a RecallResponse) with titles, for people to look at."""
    titles = explanation["titles"]
    return {
        "user_id": answer["user_id"],
        "window": [titles.get(item, item) for item in explanation["window"][:10]],
        "items": [titles.get(item["item_id"], item["item_id"]) for item in answer["items"][:10]],
        "rung": answer["rung"],
        "assets": answer["assets"],
        "ledger": answer["ledger"],
    }
