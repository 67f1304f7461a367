"""The page of a release: it needs nothing but itself, and stands beside the signed files."""

import re
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest

from offline.build.charts import against, bars, line
from offline.build.report_page import PAGE, ensure_page, render
from offline.release_folder import Parts, make_release
from schemas.graphs import DECODER, INTENT_ENCODER, PROMPT_ENCODER
from schemas.locations import private_key_path, releases_dir
from schemas.release import Catalogue, Model, Profiles, load_private_key, verify_files

REPORT = {
    "data": "<shop> & sons",
    "targets": 4321,
    "index": {"levels": [{"used": 7, "possible": 8, "entropy_bits": 2.61, "spread": 0.76, "unique": 0.1}]},
    "training": {
        "values": [0.31, 0.36, 0.35],
        "best_epoch": 2,
        "aligned": "not kept",
        "pairs": 987,
        "aligned_values": [0.36, 0.33],
    },
    "graphs": [
        {
            "graph": "decoder.onnx",
            "kind": "fp32",
            "num_bytes": 2_500_000,
            "overlap": 1.0,
            "chosen": False,
            "failed": "",
        },
        {"graph": "decoder.onnx", "kind": "int8", "num_bytes": 700_000, "overlap": 0.991, "chosen": True, "failed": ""},
        {
            "graph": "decoder.onnx",
            "kind": "fp16",
            "num_bytes": 0,
            "overlap": 0.0,
            "chosen": False,
            "failed": "no <fp16>",
        },
    ],
    "calibration": [{"said": 0.1, "found": 0.12, "places": 40}, {"said": 0.4, "found": 0.3, "places": 40}],
}
METRICS = {
    "recall_at_10": 0.1235,
    "neighbours_recall_at_10": 0.1111,
    "popular_recall_at_10": 0.0222,
    "coverage": 0.4567,
    "decoder_int8_ms": 1.23,
}


class Page(HTMLParser):
    """Every tag is closed in its order, but for those that need no end."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_shows_what_was_measured_and_needs_nothing_else():
    text = render("0123456789abcdef", REPORT, METRICS)
    page = Page(text)
    assert page.open == []
    assert "script" not in page.seen
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "://" not in text
    assert "@import" not in text
    for told in ("0.1235", "0.1111", "0.0222", "0.4567", "4,321", "1.23 ms", "0.9910", "0.7 MB", "7 of 8", "2.61 bits"):
        assert told in text
    assert "not kept (987 pairs); on validation 0.3600 → 0.3300" in text
    assert "&lt;shop&gt; &amp; sons" in text
    assert "no &lt;fp16&gt;" in text
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text


def test_a_report_that_holds_little_is_a_shorter_page():
    text = render("0123456789abcdef", {"training": {"values": []}}, {})
    assert Page(text).open == []
    assert "<section>" not in text


def test_bars_keep_their_proportions_and_lines_their_order():
    widths = [float(w) for w in re.findall(r'class="fill" width="([\d.]+)"', bars([("a", 4, "4"), ("b", 1, "1")]))]
    assert widths == [100.0, 25.0]
    assert 'width="0.00"' in bars([("none", 0.0, "0")])
    drawn = line([(1, 0.1), (2, 0.3), (3, 0.2)], "t", marked=1)
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)]
    assert heights[0] > heights[2] > heights[1]
    assert drawn.count('class="best"') == 1
    assert Page(line([(1, 0.5)], "alone")).open == []
    assert Page(against([(0.0, 0.0)], "nothing")).open == []


@pytest.fixture
def parts(tmp_path):
    for name in (INTENT_ENCODER, PROMPT_ENCODER, DECODER):
        (tmp_path / name).write_bytes(name.encode())
    sizes = dict.fromkeys(
        ("width", "window", "state_rows", "prompt_rows", "local_events", "levels", "codes", "num_buckets"), 1
    )
    model = Model(**sizes, num_items=1, neighbours=1, neighbour_decay=1.0, k_max=1, weights=[1.0])
    return Parts(
        model=model,
        graphs=tmp_path,
        arrays={"item_bias": np.zeros(1, np.float32)},
        catalogue=Catalogue(["i"], ["t"], ["c"]),
        profiles=Profiles(["everybody"], {}),
        report=REPORT,
        metrics=METRICS,
        input_hash="h",
    )


def test_it_is_no_part_of_what_the_release_is_named_after(parts):
    key = load_private_key(private_key_path(), create=True)
    manifest = make_release(releases_dir(), parts, key)
    folder = releases_dir() / manifest.id
    page = ensure_page(folder, manifest)
    assert page is not None
    assert page == folder / PAGE
    assert "1.23 ms" in page.read_text("utf-8")
    verify_files(folder, manifest)
    slower = msgspec.structs.replace(parts, metrics=METRICS | {"decoder_int8_ms": 9.87})
    assert make_release(releases_dir(), slower, key).id == manifest.id
    page.write_text("kept")
    assert ensure_page(folder, manifest) == page
    assert page.read_text() == "kept"


def test_a_release_without_a_readable_report_has_no_page(parts):
    key = load_private_key(private_key_path(), create=True)
    manifest = make_release(releases_dir(), parts, key)
    folder = releases_dir() / manifest.id
    (folder / "report.json").write_bytes(b"{")
    assert ensure_page(folder, manifest) is None
    assert ensure_page(folder / "nowhere", manifest) is None
