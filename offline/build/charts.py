"""Small charts as inline SVG: they take their colours from the page and fit any width."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, EDGE = 320, 130, 22
"""Of a plot, in its own units; the page scales it."""
Point = tuple[float, float]


def bars(rows: Sequence[tuple[str, float, str]], most: float | None = None) -> str:
    """Label, size and words of each row; ``most`` is the size of a full bar (default: the largest)."""
    full = most or max((size for _, size, _ in rows), default=0.0) or 1.0
    return "".join(
        f'<div class="row"><span>{escape(label)}</span>'
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f'<rect class="track" width="100" height="10"/>'
        f'<rect class="fill" width="{100 * min(1.0, max(0.0, size / full)):.2f}" height="10"/></svg>'
        f"<b>{escape(words)}</b></div>"
        for label, size, words in rows
    )


def line(points: Sequence[Point], title: str, *, marked: int | None = None) -> str:
    """A line through ``points``, x in even steps from 1; the point number ``marked`` stands out."""
    low, high = _range([y for _, y in points])
    placed = [_place(number, len(points), (y - low) / (high - low)) for number, (_, y) in enumerate(points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(
        f'<circle class="{"best" if number == marked else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
        f"<title>{points[number][0]:g}: {points[number][1]:.4f}</title></circle>"
        for number, (x, y) in enumerate(placed)
    )
    ends = "".join(
        f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{points[number][0]:g}</text>'
        for number, (x, _) in enumerate(placed)
        if number in (0, len(points) - 1)
    )
    return _plot(title, f'<polyline class="line" points="{path}"/>{dots}{ends}', (low, high))


def against(points: Sequence[Point], title: str) -> str:
    """``points`` of two shares, x said and y found, with the diagonal on which they would lie were both the same."""
    most = max([*(x for x, _ in points), *(y for _, y in points), 1e-9])
    across, up = (WIDTH - 2 * EDGE) / most, (HEIGHT - 2 * EDGE) / most
    dots = "".join(
        f'<circle class="dot" cx="{EDGE + across * x:.1f}" cy="{HEIGHT - EDGE - up * y:.1f}" r="3.5">'
        f"<title>said {x:.4f}, found {y:.4f}</title></circle>"
        for x, y in points
    )
    diagonal = (
        f'<line class="guide" x1="{EDGE}" y1="{HEIGHT - EDGE}" x2="{WIDTH - EDGE}" y2="{EDGE}"/>'
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 6}" text-anchor="end">said, up to {most:.3g}</text>'
    )
    return _plot(title, diagonal + dots, (0.0, most))


def _range(values: Sequence[float]) -> Point:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _place(number: int, count: int, share: float) -> Point:
    across = number / (count - 1) if count > 1 else 0.5
    return EDGE + (WIDTH - 2 * EDGE) * across, HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * share


def _plot(title: str, inside: str, ends: Point) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<line class="guide" x1="{EDGE}" y1="{HEIGHT - EDGE}" x2="{WIDTH - EDGE}" y2="{HEIGHT - EDGE}"/>'
        f'<text x="{EDGE}" y="{EDGE - 8}">{ends[1]:.4g}</text>'
        f'<text x="2" y="{HEIGHT - EDGE - 3}">{ends[0]:.3g}</text>{inside}</svg>'
    )
