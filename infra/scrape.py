"""Reads a service's own words over HTTP: Prometheus metrics as numbers, and JSON. Standard library only."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from typing import Any

from infra.errors import LauncherError

TIMEOUT_S = 5.0
Labels = tuple[tuple[str, str], ...]
Samples = dict[str, dict[Labels, float]]
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse(text: str) -> Samples:
    """The samples of an exposition (text format 0.0.4), by name and labels."""
    found: Samples = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match:
            labels = tuple(sorted(_LABEL.findall(match[2] or "")))
            found.setdefault(match[1], {})[labels] = float(match[3])
    return found


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of a metric's samples that carry these labels; 0 when there is none."""
    wanted = set(labels.items())
    return sum(value for key, value in samples.get(name, {}).items() if wanted <= set(key))


def values(samples: Samples, name: str, label: str) -> set[str]:
    """The values that a label has."""
    return {value for key in samples.get(name, {}) for one, value in key if one == label}


def metrics(url: str) -> Samples:
    """``URL/metrics``. Raises LauncherError when it does not answer."""
    return parse(_get(f"{url.rstrip('/')}/metrics").decode(errors="replace"))


def json_of(url: str) -> Any:
    """A JSON answer, asked for with ``$BEFOREHAND_API_KEY``. Raises LauncherError."""
    return json.loads(_get(url))


def _get(url: str) -> bytes:
    key = os.environ.get("BEFOREHAND_API_KEY")
    if not url.startswith(("http://", "https://")):
        raise LauncherError(f"not an http address: {url}", "write it as in http://127.0.0.1:8700")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return answer.read()
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise LauncherError(
            f"{url} does not answer: {error}", "see that the service runs and the address is right"
        ) from None
