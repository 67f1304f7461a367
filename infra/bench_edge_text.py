"""The result of `bench edge` for people."""

from __future__ import annotations

from typing import Any


def as_text(result: dict[str, Any]) -> str:
    """A table by runtime, then what holds for all."""
    lines = ["{cores} cores, load {load} at the start".format(**result["machine"])] if "machine" in result else []
    lines += [f"{'runtime':<10} {'encode p50':>11} {'p99':>8} {'cold start':>11} {'difference':>11}   (ms)"]
    for name, encode in result["encode_ms"].items():
        if encode is None:
            lines.append(f"{name:<10} absent: {_first_line(result['absent'].get(name, 'it did not say why'))}")
            continue
        cold, difference = result["cold_start_ms"][name], result["differences"][name]
        lines.append(f"{name:<10} {encode['p50']:>11.2f} {encode['p99']:>8.2f} {cold:>11.0f} {difference:>11.1e}")
    lines += ["", *_sizes(result), "", *_recall(result)]
    return "\n".join(lines)


def _sizes(result: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if result["bundle_bytes"]:
        size = f"{result['bundle_bytes']:,} bytes for a first load"
        lines.append(f"bundle     {result['bundle']} ({result['graph']}), {size}")
    if result["sdk_gzip_bytes"]:
        sizes = ", ".join(f"{name} {size:,}" for name, size in result["sdk_gzip_bytes"].items())
        lines.append(f"SDK, gzip  {sizes} bytes")
    if result["main_thread_ms"]:
        main = result["main_thread_ms"]
        lines.append(f"main       {main['p50']:.2f} ms a call on the page's own thread, p99 {main['p99']:.2f}")
    return lines


def _recall(result: dict[str, Any]) -> list[str]:
    if not result["recall"]:
        return [f"recall gain: absent: {_first_line(result['absent'].get('recall_gain', 'not measured'))}"]
    told = result["recall"]
    found = told["recall_at_10"]
    lines = [
        f"Recall@10 of {told['cases']:,} held-back baskets, a line each {told['spacing_s']:g} s; "
        f"all seen: {found['seen_all']:.4f}",
        f"{'delay':<10} {'missed':>7} {'default':>8} {'prompt':>8} {'gain':>9}",
    ]
    for delay, row in found["by_delay"].items():
        lines.append(f"{delay + ' s':<10} {row['missed_events']:>7g} {_gain(row)}")
        if row["few_events"]["cases"]:
            few = row["few_events"]
            lines.append(f"{'':<18} {_gain(few)}   the {few['cases']} with few events; all seen: {few['seen_all']:.4f}")
    return lines


def _gain(row: dict[str, Any]) -> str:
    means = f"{row['stale']:>8.4f} {row['prompted']:>8.4f}"
    return f"{means} {row['gain']:>+9.4f} ± {row['standard_error']:.4f}"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else text
