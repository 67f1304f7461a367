"""explain and apply: what is said is what is done; twice nothing; a plan made against an older state is refused."""

import threading
from pathlib import Path

import msgspec
import pytest

from infra.plan.evaluate import Evaluator
from infra.plan.frozen import Frozen, Reach, read_frozen
from infra.plan.picture import cost, work
from schemas.errors import PlanError, StoreError
from schemas.plan import load_plan
from schemas.plan_changes import Category
from schemas.registry import Registry, ReleaseRow, Status
from schemas.registry.leases import take
from schemas.registry.plans import Plans

PLAN = Path(__file__).parents[2] / "plan.toml"
STAGES = {"index": ("index",), "train": ("index", "model"), "publish": ("index", "model")}


class Offline:
    """A stand-in for the offline room: three stages that read sections of the plan."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}
        self.builds: list[list[str]] = []
        self.data = "data 1"
        self.on_build = lambda: None

    def builder(self, path, sets, data):
        return _Builder(self, load_plan(path, sets))


class _Builder:
    def __init__(self, room: Offline, plan) -> None:
        self.room = room
        self.hashes = {
            name: repr([room.data, *(msgspec.to_builtins(getattr(plan, part), enc_hook=float) for part in parts)])
            for name, parts in STAGES.items()
        }

    def explain(self):
        found = [
            {"stage": name, "hash": wanted, "runs": runs, "why": ["settings changed"] if runs else []}
            for name, wanted in self.hashes.items()
            for runs in [self.room.done.get(name) != wanted]
        ]
        return {"explain": found, "digest": repr([(one["hash"], one["runs"]) for one in found])}

    def build(self, expect):
        self.room.on_build()
        said = self.explain()
        if said["digest"] != expect:
            raise StoreError("the plan is out of date")
        ran = [one["stage"] for one in said["explain"] if one["runs"]]
        self.room.builds.append(ran)
        self.room.done = dict(self.hashes)
        return {"changed": ran, "release": "r1"}


@pytest.fixture
def registry(tmp_path):
    return Registry(f"sqlite:///{tmp_path / 'registry.db'}")


@pytest.fixture
def room():
    return Offline()


@pytest.fixture
def evaluator(registry, room):
    return Evaluator(registry, room.builder)


def freeze(evaluator: Evaluator, *sets: str) -> Frozen:
    return evaluator.freeze(PLAN, sets, "shop")


def runs(frozen: Frozen) -> list[str]:
    return [stage.stage for stage in frozen.work.running]


def test_first_all_is_built_then_nothing_then_only_what_changed(evaluator, room, registry):
    first = freeze(evaluator)
    assert first.first and runs(first) == list(STAGES)
    done = evaluator.apply(first, why="first")
    assert (done["changed"], done["ran"], done["release"]) == (True, list(STAGES), "r1")

    again = freeze(evaluator)
    assert again.work.nothing
    assert evaluator.apply(again, why="again")["changed"] is False
    assert len(room.builds) == 1
    last = Plans(registry.database).last()
    assert last is not None and (last.number, last.why) == (1, "first")

    policy = freeze(evaluator, "assets.candidates.fresh_for=2h")
    assert (policy.work.category, runs(policy), policy.work.restart) == (
        Category.POLICY,
        [],
        ["serve", "worker", "dags"],
    )
    done = evaluator.apply(policy, why="longer")
    assert (done["changed"], done["ran"], len(room.builds)) == (True, [], 1)

    encoder = freeze(evaluator, "assets.candidates.fresh_for=2h", "model.epochs=9")
    assert (encoder.work.category, runs(encoder)) == (Category.REBUILD, ["train", "publish"])
    evaluator.apply(encoder, why="more epochs")
    assert room.builds[-1] == ["train", "publish"]


def test_applied_twice_the_same_file_changes_nothing(evaluator, room, tmp_path):
    freeze(evaluator).write(tmp_path / "next.json")
    frozen = read_frozen(tmp_path / "next.json")
    assert evaluator.apply(frozen, why="one")["changed"]
    assert not evaluator.apply(read_frozen(tmp_path / "next.json"), why="two")["changed"]
    assert len(room.builds) == 1


def test_a_breaking_change_needs_a_word(evaluator, room):
    evaluator.apply(freeze(evaluator), why="first")
    wider = freeze(evaluator, "model.width=64")
    with pytest.raises(PlanError, match=r"breaking change: model\.width.*--breaking"):
        evaluator.apply(wider, why="wider")
    assert len(room.builds) == 1
    assert evaluator.apply(wider, why="wider", breaking=True)["changed"]


def _promoted(registry, _evaluator, _room):
    registry.publish(ReleaseRow("x", "/r/x", "in", {}, Status.FUTURE, 1), why="")
    registry.promote("x", why="by hand")


def _new_data(_registry, _evaluator, room):
    room.data = "data 2"


def _another_plan(_registry, evaluator, _room):
    evaluator.apply(freeze(evaluator, "online.workers=2"), why="two threads")


@pytest.mark.parametrize("happened", [_promoted, _new_data, _another_plan])
def test_a_plan_made_against_an_older_state_is_refused(evaluator, room, registry, happened):
    evaluator.apply(freeze(evaluator), why="first")
    mine = freeze(evaluator, "model.epochs=9")
    happened(registry, evaluator, room)
    before = len(room.builds)
    with pytest.raises(StoreError, match="out of date"):
        evaluator.apply(mine, why="late")
    assert len(room.builds) == before
    assert evaluator.apply(freeze(evaluator, "model.epochs=9"), why="looked again")["changed"]


def test_of_two_operators_at_once_the_second_is_told(registry, room, evaluator):
    """Both made their plan before either applied it; the build of the first waits for the second to try."""
    plans = [freeze(evaluator, f"model.epochs={n}") for n in (7, 8)]
    begun, tried = threading.Event(), threading.Event()

    def wait():
        begun.set()
        assert tried.wait(30)

    room.on_build = wait
    first = threading.Thread(target=evaluator.apply, args=(plans[0],), kwargs={"why": "mine"})
    first.start()
    assert begun.wait(30)
    try:
        with pytest.raises(StoreError, match=r"out of date: .* applies another one now .*mine"):
            Evaluator(registry, room.builder).apply(plans[1], why="yours")
    finally:
        tried.set()
        first.join()
    with pytest.raises(StoreError, match=r"out of date: .*: mine"):
        evaluator.apply(plans[1], why="yours")
    assert len(room.builds) == 1


def test_a_change_between_the_look_and_the_build_is_caught_by_the_build(evaluator, room, registry):
    frozen = freeze(evaluator)
    made = {"index": frozen.work.stages[0].hash}  # somebody ran that stage by hand
    room.on_build = lambda: setattr(room, "done", made)
    with pytest.raises(StoreError, match="out of date"):
        evaluator.apply(frozen, why="")
    assert room.builds == []
    assert Plans(registry.database).last() is None


def test_a_holder_elsewhere_is_named(evaluator, registry):
    take(registry.database, "plan:shop", about="plan 1: new season", who="ann@elsewhere:1")
    with pytest.raises(StoreError, match="ann@elsewhere:1 applies another one now"):
        evaluator.apply(freeze(evaluator), why="")


def test_a_file_changed_by_hand_is_refused(evaluator, tmp_path):
    frozen = freeze(evaluator)
    changed = msgspec.structs.replace(frozen, text=frozen.text.replace("epochs = ", "epochs = 1"))
    with pytest.raises(PlanError, match="does not read as the plan that was frozen"):
        evaluator.apply(changed, why="")
    (tmp_path / "x.json").write_text("{}")
    for path, says in ((tmp_path / "x.json", "no frozen plan"), (tmp_path / "none.json", "can't be read")):
        with pytest.raises(PlanError, match=says):
            read_frozen(path)


def test_the_expected_cost_is_that_of_past_builds(registry, room):
    from schemas.registry.builds import Builds

    builds = Builds(registry.database)
    for stage, seconds in (("index", 60.0), ("train", 600.0)):
        builds.end(builds.begin("shop", stage, "h", ""), seconds=seconds, cpu_s=2 * seconds, num_bytes=1000)
    frozen = Evaluator(registry, room.builder, lambda: Reach(40, 3000, 90_000)).freeze(PLAN, (), "shop")
    found = cost(frozen.work.running, core_hour=0.5)
    assert found == {"minutes": 11.0, "core_minutes": 22.0, "bytes": 2000, "money": 0.1833, "unknown": ["publish"]}
    text = "\n".join(work(frozen, 0.5))
    for said in ("settings changed", "11.0 min", "unknown: publish", "3,000 keys", "40 items", "0.1833"):
        assert said in text
