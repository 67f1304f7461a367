"""A whole build on a tiny shop, to a verified and promoted release; and what a second one does."""

import numpy as np
import pytest

from offline import releases
from offline.build.stage import Build
from offline.build.stages import NAMES, run_build
from offline.data.generic import read_files
from offline.data.split import cut_time, narrow, split, write
from schemas.errors import DataError, ReleaseError
from schemas.locations import private_key_path, public_key_path, releases_dir
from schemas.plan import load_plan
from schemas.registry import Registry
from schemas.release import load_private_key, load_public_key, read_manifest, verify_files

SMALL = ["index.codes=8", "index.neighbours=8", "nearline.neighbours=8", "online.k_max=20"]
SMALL += ["model.width=16", "model.heads=2", "model.layers=1", "model.window=8", "model.local_events=4"]
SMALL += ["model.epochs=2", "model.batch_size=16"]
DAY, T0 = 86_400_000, 1_750_000_000_000


def make_shop(folder, name="shop"):
    """Forty users who go round one of four circles of ten items."""
    rng = np.random.default_rng(0)
    items = "".join(f"i{n},Item number {n},kind {n // 10}\n" for n in range(40))
    rows = []
    for user in range(40):
        place = int(rng.integers(10))
        for day in range(40):
            place = (place + 1) % 10
            rows.append(f"u{user},i{user % 4 * 10 + place},purchase,{T0 + day * DAY + user * 1000}")
    (folder / "items.csv").write_text("item_id,title,category\n" + items)
    (folder / "events.csv").write_text("user_id,item_id,kind,at\n" + "\n".join(rows) + "\n")
    (folder / "profiles.csv").write_text("user_id,bucket\nu0,old\nu1,young\nu2,old\n")
    source = narrow(read_files(folder / "items.csv", folder / "events.csv", folder / "profiles.csv"), small=False)
    build = Build(name, load_plan(overrides=SMALL))
    write(build.data, source, split(source, cut_time(source.events)), window=8)
    return build


@pytest.mark.slow
def test_a_build_ends_in_a_promoted_release_and_a_second_changes_nothing(tmp_path):
    build = make_shop(tmp_path)
    first = run_build(build)
    release = first["publish"].result["release"]
    row = Registry().current()
    assert row is not None
    assert row.id == release
    manifest = read_manifest(releases_dir() / release, load_public_key(public_key_path()))
    verify_files(releases_dir() / release, manifest)
    assert manifest.content.model.num_items == 40
    assert manifest.content.model.num_buckets == 3
    metrics = first["evaluate"].result["metrics"]
    assert metrics["recall_at_10"] > 0.5 > metrics["popular_recall_at_10"]

    second = run_build(Build(build.name, build.plan))
    assert {name: second[name].hash for name in NAMES} == {name: first[name].hash for name in NAMES}
    assert [act["act"] for act in Registry().history()] == ["promote", "publish"]

    forced = run_build(Build(build.name, build.plan, force=True))
    assert forced["publish"].result["release"] == release

    assert releases.release(asked("verify", release))["verified"]
    damaged = next((releases_dir() / release).glob("decoder.onnx"))
    damaged.write_bytes(damaged.read_bytes() + b"x")
    with pytest.raises(ReleaseError, match="differs"):
        releases.release(asked("verify", release))


def asked(act, release=None, why="", *, force=False):
    import argparse

    return argparse.Namespace(act=act, id=release, why=why, force=force)


def test_an_act_without_its_reason_or_its_release_is_refused():
    with pytest.raises(ReleaseError, match="no reason"):
        releases.release(asked("rollback"))
    with pytest.raises(ReleaseError, match="which release"):
        releases.release(asked("promote"))


def test_a_stage_before_its_time_names_the_one_to_run(tmp_path):
    build = make_shop(tmp_path)
    with pytest.raises(DataError, match="the stage encode has not run"):
        run_build(build, "index")


def test_a_new_key_is_made_once(state):
    key = load_private_key(private_key_path(), create=True)
    again = load_private_key(private_key_path(), create=True)
    assert key.private_bytes_raw() == again.private_bytes_raw()
    assert private_key_path().stat().st_mode & 0o077 == 0
