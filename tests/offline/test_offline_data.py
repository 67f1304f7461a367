"""Data sets: what is wrong with a row is said, and every other row is used."""

import argparse
import json
import os
from pathlib import Path

import polars as pl
import pytest

from offline.data import verb
from offline.data.forgotten import read_forgotten
from offline.data.generic import read_files
from offline.data.online_retail import read_online_retail
from offline.data.split import cut_time, narrow, split, write
from schemas.errors import DataError
from schemas.event import decode_event
from schemas.locations import ROOT

DAY = 86_400_000
T0 = 1_750_000_000_000
ITEMS = 'item_id,title,category\nA,"Tea, ""best""",tea\nB,绿茶 🍵,tea\nC,,soap\nA,again,tea\nD,Soap,soap\n'


def files(folder, events, items=ITEMS):
    (folder / "items.csv").write_text(items, encoding="utf-8")
    body = events if isinstance(events, bytes) else events.encode()
    (folder / "events.csv").write_bytes(b"user_id,item_id,kind,at\n" + body)
    return folder / "items.csv", folder / "events.csv"


def reasons(source):
    return {(row["file"], row["row"]): row["reason"] for row in source.rejected.iter_rows(named=True)}


def test_every_bad_row_is_numbered_and_every_good_one_used(tmp_path):
    rows = [
        f"u1,A,click,{T0}",
        f"u1,A,click,{T0 // 1000}",
        f"u1,A,click,{T0 * 1000}",
        "u1,A,click,2026-01-31T12:00:00",
        "u1,A,click,2026-01-31T12:00:00Z",
        "u1,A,click,2026-01-31T13:00:00+01:00",
        f"u1,Z,click,{T0}",
        f",A,click,{T0}",
        f"u1,A,stare,{T0}",
        "u1,A,click,yesterday",
        "u1,A",
        f"u\x01,A,click,{T0}",
        f"{'x' * 300},A,click,{T0}",
        "u1,A,click,0",
        f"u2,B,purchase,{T0 + DAY}",
    ]
    source = read_files(*files(tmp_path, "\n".join(rows).encode() + b"\nu\xff,A,click,%d\n" % T0))
    assert source.events["at"].to_list().count(1_769_860_800_000) == 2
    assert sorted(source.events["at"].to_list())[:2] == [T0, T0 + DAY]
    found = {row: reason for (file, row), reason in reasons(source).items() if file == "events.csv"}
    assert set(found) == {2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 16}
    expected = {2: "seconds", 3: "micro", 4: "offset", 7: "catalogue", 8: "no user_id", 9: "kind", 11: "2 fields"}
    expected |= {12: "control", 13: "longer", 14: "before the year", 16: "UTF-8"}
    for row, word in expected.items():
        assert word in found[row], (row, found[row])
    assert reasons(source)["items.csv", 4] == "an item_id that came before"


def test_titles_that_are_odd_stay(tmp_path):
    source = read_files(*files(tmp_path, f"u1,A,click,{T0}\n"))
    assert source.catalogue["title"].to_list() == ['Tea, "best"', "绿茶 🍵", "", "Soap"]


def test_a_missing_column_is_named(tmp_path):
    items, events = files(tmp_path, f"u1,A,click,{T0}\n")
    events.write_text("user,item_id,kind,at\n")
    with pytest.raises(DataError, match="no column user_id"):
        read_files(items, events)


def test_no_good_row_at_all_is_refused(tmp_path):
    with pytest.raises(DataError, match="no good row"):
        read_files(*files(tmp_path, "u1,Z,click,1\n"))


def test_parquet_with_aware_times(tmp_path):
    items, _ = files(tmp_path, f"u1,A,click,{T0}\n")
    frame = pl.DataFrame({"user_id": ["u1"], "item_id": ["A"], "kind": ["click"], "at": [T0]})
    frame = frame.with_columns(pl.from_epoch("at", "ms").dt.replace_time_zone("UTC"))
    frame.write_parquet(tmp_path / "events.parquet")
    assert read_files(items, tmp_path / "events.parquet").events["at"].to_list() == [T0]


def shop(folder, num_users=3, days=100):
    """Each user takes the items in turn, one session a day; the last session has seven items."""
    titles = "".join(f"i{n},Item {n},c{n % 2}\n" for n in range(10))
    rows = [f"u{u},i{(u + d) % 10},click,{T0 + d * DAY + u}" for u in range(num_users) for d in range(days)]
    rows += [f"u{u},i{n},purchase,{T0 + days * DAY + n * 1000 + u}" for u in range(num_users) for n in range(7)]
    return files(folder, "\n".join(rows) + "\n", "item_id,title,category\n" + titles)


def test_the_split_leaks_nothing(tmp_path):
    source = narrow(read_files(*shop(tmp_path)), small=False)
    parts = split(source, cut_time(source.events))
    write(tmp_path / "out", source, parts, window=5)
    replay = [decode_event(line) for line in (tmp_path / "out/replay.jsonl").read_bytes().splitlines()]
    targets = [json.loads(line) for line in (tmp_path / "out/targets.jsonl").read_bytes().splitlines()]
    bootstrap = [decode_event(line) for line in (tmp_path / "out/bootstrap.jsonl").read_bytes().splitlines()]
    assert len(targets) == 3
    assert all(len(t["local_events"]) == 3 and len(t["items"]) == 4 for t in targets)
    assert parts.train["at"].max() < parts.cut_ms <= min(event.at for event in replay)
    assert [event.at for event in replay] == sorted(event.at for event in replay)
    device = {event["event_id"] for target in targets for event in target["local_events"]}
    assert not device & {event.event_id for event in replay}
    for target in targets:
        mine = [event.at for event in replay if event.user_id == target["user_id"]]
        assert max(mine) < target["at"]
        assert sum(event.user_id == target["user_id"] for event in bootstrap) == 5
    assert len(parts.train) + len(replay) + 21 == len(source.events)


def test_an_event_twice_counts_once_and_is_counted(tmp_path):
    items, events = shop(tmp_path)
    body = events.read_text()
    events.write_text(body + body.splitlines()[5] + "\n")
    source = narrow(read_files(items, events), small=False)
    assert source.left_out["an event_id that came before"] == 1


def arguments(*argv):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return parser.parse_args(argv)


def test_the_verb_writes_the_data_set_and_says_what_was_rejected(tmp_path, state):
    items, events = shop(tmp_path)
    events.write_text(events.read_text() + "u1,nothing,click,1\n")
    result = verb.make_data(arguments("--catalogue", str(items), "--events", str(events), "--name", "shop"))
    about = json.loads((state / "data/shop/dataset.json").read_text())
    assert result is not None
    assert result["targets"] == about["targets"] == 3
    assert sum(about["rejected"].values()) == 1
    (row,) = [json.loads(line) for line in (state / "data/shop/rejected.jsonl").read_bytes().splitlines()]
    assert row["row"] == 3 * 107 + 1


def test_nothing_of_a_forgotten_user_is_in_the_data_set(tmp_path, state):
    """u0 asked after all events, u1 in the middle: later events are theirs again."""
    items, events = shop(tmp_path)
    (tmp_path / "profiles.csv").write_text("user_id,bucket\nu0,old\nu1,old\nu2,young\n")
    until = T0 + 98 * DAY
    asked = [
        {"user_id": "u0", "at": T0 + 999 * DAY},
        {"user_id": "u1", "at": until - DAY},
        {"user_id": "u1", "at": until},
    ]
    told = tmp_path / "forgotten.jsonl"
    told.write_text("".join(json.dumps(one) + "\n" for one in [*asked, {"users": 2}]))
    argv = ["--catalogue", str(items), "--events", str(events), "--profiles", str(tmp_path / "profiles.csv")]
    result = verb.make_data(arguments(*argv, "--name", "shop", "--forgotten", str(told)))
    assert result is not None
    folder = state / "data/shop"
    train, profiles = pl.read_parquet(folder / "events.parquet"), pl.read_parquet(folder / "profiles.parquet")
    assert "u0" not in train["user_id"].to_list() + profiles["user_id"].to_list()
    assert not [
        name for name in ("bootstrap.jsonl", "replay.jsonl", "targets.jsonl") if '"u0"' in (folder / name).read_text()
    ]
    assert train.filter((pl.col("user_id") == "u1") & (pl.col("at") <= until)).is_empty()
    assert '"u1"' in (folder / "targets.jsonl").read_text()
    assert profiles["user_id"].to_list() == ["u1", "u2"]
    left = result["left_out"]["an event of a user who asked to be forgotten"]
    assert left == 107 + 98


def test_a_list_of_forgotten_users_that_can_not_be_read_is_refused(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"user_id":"u1","at":1750000000000}\n{"user_id":"u2"')
    with pytest.raises(DataError, match="line 2"):
        read_forgotten(tmp_path / "bad.jsonl")
    with pytest.raises(DataError, match="can't be read"):
        read_forgotten(tmp_path / "none.jsonl")


def test_one_file_of_two_is_refused(tmp_path):
    with pytest.raises(DataError, match="two files"):
        verb.make_data(arguments("--events", str(tmp_path / "x.csv")))


def test_online_retail_counts_every_row():
    shared = os.environ.get("BEFOREHAND_SHARED", str(ROOT.parent / "shared"))
    file = Path(shared) / "data" / "online-retail" / "invoices.parquet"
    if not file.exists():
        if os.environ.get("BEFOREHAND_REQUIRE_SHARED"):
            pytest.fail("the shared data are missing")
        pytest.skip("the shared data are not on this machine")
    source = read_online_retail(file)
    assert len(source.events) + len(source.rejected) == 541_909
    counts = dict(source.rejected.group_by("reason").len().iter_rows())
    assert counts["a cancellation"] == 9_288
    assert source.catalogue["item_id"].str.contains("^[0-9]{5}[A-Z]{0,2}$").all()
    assert source.catalogue["item_id"].is_unique().all()
