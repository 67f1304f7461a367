"""``report.html`` of a release: its ``report.json`` and metrics as one page that needs nothing but itself.

It stands beside the signed files, not among them: it shows times, which differ from run to run, and equal inputs must
give equal releases. All of it can be drawn again from what is signed, so it is made wherever it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from offline.build import charts
from schemas.release import REPORT, Manifest

PAGE = "report.html"
METHODS = (
    ("generator", ""),
    ("generator, with prompt", "prompted_"),
    ("neighbours", "neighbours_"),
    ("popularity", "popular_"),
)
MEASURES = (
    ("Recall@10", "recall_at_10"),
    ("Recall@50", "recall_at_50"),
    ("NDCG@10", "ndcg_at_10"),
    ("NDCG@50", "ndcg_at_50"),
)
BEYOND = ("coverage", "diversity", "novelty", "calibration_error")
Report = Mapping[str, Any]


def ensure_page(folder: Path, manifest: Manifest) -> Path | None:
    """The path of the release's page, made now if it is not there; None where it can't be written or drawn from."""
    page = folder / PAGE
    if page.exists():
        return page
    try:
        report = msgspec.json.decode((folder / REPORT).read_bytes(), type=dict[str, Any])
        draft = page.with_name(f".{PAGE}.{os.getpid()}")
        draft.write_text(render(manifest.id, report, manifest.metrics), "utf-8")
        draft.replace(page)
    except (OSError, msgspec.DecodeError):
        return None
    return page


def render(release: str, report: Report, metrics: Mapping[str, float]) -> str:
    """The page. What the report does not hold is left out."""
    sections = [
        ("Methods", _methods(metrics)),
        (
            "Beyond recall",
            _table(("", "value"), [(name, f"{metrics[name]:.4f}") for name in BEYOND if name in metrics]),
        ),
        ("Training", _training(report.get("training", {}))),
        ("Codebook", _codebook(report.get("index", {}).get("levels", []))),
        ("Export", _export(report.get("graphs", []), metrics)),
        ("Calibration", _calibration(report.get("calibration", []))),
    ]
    body = "".join(f"<section><h2>{title}</h2>{inside}</section>" for title, inside in sections if inside)
    told = f"{report.get('data', 'unknown data')}: {report.get('targets', 0):,} held-back targets"
    inserted = report.get("inserted")
    told += f"; {inserted['items']:,} items inserted into {inserted['into']}" if inserted else ""
    head = f"<title>Release {escape(release)}</title><style>{STYLE}</style>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}</head>'
        f"<body><h1>Release <code>{escape(release)}</code></h1><p>{escape(told)}</p>{body}</body></html>\n"
    )


def _methods(metrics: Mapping[str, float]) -> str:
    parts = []
    for title, name in MEASURES:
        rows = [
            (method, metrics[key + name], f"{metrics[key + name]:.4f}")
            for method, key in METHODS
            if key + name in metrics
        ]
        parts += [f"<h3>{title}</h3>{charts.bars(rows)}"] if rows else []
    return "".join(parts)


def _training(training: Report) -> str:
    values = training.get("values", [])
    if not values:
        return ""
    best = training["best_epoch"]
    points = [(float(epoch), float(value)) for epoch, value in enumerate(values, 1)]
    told = f"<p>Recall@10 + Recall@50 on validation by epoch; the best is {best}, with {values[best - 1]:.4f}.</p>"
    plot = charts.line(points, "validation by epoch", marked=best - 1)
    return told + plot + _aligned(training)


def _aligned(training: Report) -> str:
    if "aligned" not in training:
        return ""
    values = training.get("aligned_values", [])
    passes = f"; on validation {' → '.join(f'{value:.4f}' for value in values)}" if values else ""
    told = f"{training['aligned']} ({training.get('pairs', 0):,} pairs){passes}"
    return f"<p>Alignment to what users preferred: {escape(told)}.</p>"


def _codebook(levels: Sequence[Report]) -> str:
    used = [(f"level {n}", one["used"] / max(1, one["possible"]), _used(one)) for n, one in enumerate(levels, 1)]
    bits = [(f"level {n}", one["entropy_bits"], f"{one['entropy_bits']:.2f} bits") for n, one in enumerate(levels, 1)]
    if not levels:
        return ""
    return f"<h3>Codes used</h3>{charts.bars(used, 1.0)}<h3>Entropy</h3>{charts.bars(bits)}"


def _used(level: Report) -> str:
    return f"{level['used']} of {level['possible']}"


def _export(graphs: Sequence[Report], metrics: Mapping[str, float]) -> str:
    rows = []
    for one in graphs:
        name = Path(one["graph"]).stem
        form = f"{one['kind']}{' (chosen)' if one['chosen'] else ''}"
        if one["failed"]:
            rows.append((name, form, one["failed"], "", ""))
            continue
        ms = metrics.get(f"{name}_{one['kind']}_ms")
        took = f"{ms:.2f} ms" if ms is not None else ""
        rows.append((name, form, took, f"{one['overlap']:.4f}", f"{one['num_bytes'] / 1e6:.1f} MB"))
    return _table(("graph", "form", "a request", "overlap with fp32", "size"), rows)


def _calibration(bins: Sequence[Report]) -> str:
    if not bins:
        return ""
    points = [(float(one["said"]), float(one["found"])) for one in bins]
    told = "<p>What the scores say beside how often they are right, by tenths of the lists' places.</p>"
    return told + charts.against(points, "calibration")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{lines}</table></div>'


STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--dim:#5d6675;--page:#fff;--track:#e8ebf0;--fill:#2f6fb5;--best:#c2571a}
@media (prefers-color-scheme:dark){
:root{--ink:#e6e9ef;--dim:#9aa3b2;--page:#14171d;--track:#2a2f39;--fill:#6ba6e8;--best:#f0935a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:46rem;margin:0 auto;
padding:1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:2rem 0 .5rem}
h3{font-size:.95rem;margin:1rem 0 .25rem;color:var(--dim)}
.row{display:grid;grid-template-columns:minmax(6rem,11rem) 1fr auto;gap:.6rem;align-items:center;margin:.25rem 0}
.row b{font-weight:600;font-variant-numeric:tabular-nums;min-width:4rem;text-align:right}
.bar{width:100%;height:.8rem;border-radius:3px}.track{fill:var(--track)}.fill{fill:var(--fill)}
.plot{width:100%;max-width:34rem;height:auto;display:block}.plot text{font-size:10px;fill:var(--dim)}
.line{fill:none;stroke:var(--fill);stroke-width:2}.dot{fill:var(--fill)}.best{fill:var(--best)}
.guide{stroke:var(--dim);stroke-width:1;stroke-dasharray:3 3}
.wide{overflow-x:auto}table{border-collapse:collapse}th,td{text-align:left;padding:.25rem .8rem .25rem 0}
th{color:var(--dim);font-weight:500}td{font-variant-numeric:tabular-nums}
@media (max-width:30rem){.row{grid-template-columns:1fr auto}.row .bar{grid-column:1/3;grid-row:2}}
"""
