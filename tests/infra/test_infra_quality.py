"""The looks: what each judges, from what the rooms' verbs tell; and the watch of a release with a clock of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra import looks, quality, scrape
from infra.errors import LauncherError
from infra.watching import Bounds, Watch, judged

NEW, OLD = "0123456789abcdef", "fedcba9876543210"
ASSETS = {
    "semantic_index": {"tier": "offline", "fresh_for": 100.0, "usable_for": 1000.0},
    "candidates": {"tier": "nearline", "fresh_for": 1.0, "usable_for": 2.0},
}
METRIC = "validation_recall_at_50"
PLAN = {"assets": ASSETS, "gate": {METRIC: 0.9}, "nearline": {"max_bad_share": 0.2}}


def row(release: str, status: str, recall: float = 0.1, made_at: int = 0) -> dict[str, Any]:
    return {"id": release, "status": status, "metrics": {METRIC: recall}, "made_at": made_at}


class Verbs:
    """What the launcher's verbs answer, and what was asked of them."""

    def __init__(self, *rows: dict[str, Any], tried: str = "", stream: dict[str, Any] | None = None) -> None:
        self.rows, self.tried, self.stream = list(rows), tried, stream
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *words: str, quiet: bool = False) -> dict[str, Any]:
        self.asked.append(words)
        answers = {
            ("plan", "check"): {"plan": PLAN},
            ("release", "list"): {"releases": self.rows, "pointer": {"canary": self.tried or None}},
            ("release", "rollback"): {"release": OLD},
            ("stream", "status"): self.stream,
        }
        return answers.get(words[:2], {})  # type: ignore[return-value]


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_up(*rows: dict[str, Any], **more: Any) -> Verbs:
        found = Verbs(*rows, **more)
        monkeypatch.setattr(looks, "run_verb", found)
        return found

    return set_up


@pytest.mark.parametrize(("age_s", "state"), [(100, "FRESH"), (101, "STALE"), (1000, "STALE"), (1001, "EXPIRED")])
def test_freshness_is_judged_by_the_plan(verbs: Any, age_s: int, state: str) -> None:
    verbs(row(NEW, "current", made_at=1000))
    found = looks.freshness(now=1 + age_s)
    assert found["assets"] == {"semantic_index": state}
    assert bool(found["problem"]) == (state != "FRESH")


def test_no_current_release_is_not_well(verbs: Any) -> None:
    verbs(row(NEW, "future"))
    assert looks.freshness()["problem"] == "no release is current"


@pytest.mark.parametrize(
    ("stream", "well"),
    [
        ({"state": "RUNNING", "bad_share": 0.1}, True),
        ({"state": "RUNNING", "bad_share": 0.11}, False),
        ({"state": "RUNNING", "bad_share": None}, True),
        ({"state": "FAILED", "bad_share": 0.0}, False),
    ],
)
def test_dead_letters_are_told_before_the_job_stops_itself(verbs: Any, stream: dict[str, Any], well: bool) -> None:
    verbs(stream=stream)
    assert (looks.dead_letters()["problem"] == "") is well


@pytest.mark.parametrize(
    ("recall", "old", "well"), [(0.0901, "current", True), (0.0899, "current", False), (0.01, "retired", True)]
)
def test_the_gate_is_the_plans_share_of_the_current_one(verbs: Any, recall: float, old: str, well: bool) -> None:
    verbs(row(NEW, "future", recall), row(OLD, old, 0.1))
    assert (looks.gate(NEW)["problem"] == "") is well


def test_the_gate_of_a_release_that_is_not_there(verbs: Any) -> None:
    verbs()
    with pytest.raises(LauncherError, match="no release"):
        looks.gate(NEW)


def test_the_first_release_needs_no_canary(verbs: Any) -> None:
    asked = verbs(row(NEW, "future"))
    assert looks.canary(NEW, 0.05)["tried"] is False
    assert [words[:2] for words in asked.asked] == [("release", "list")]
    asked = verbs(row(NEW, "future"), row(OLD, "current"))
    assert looks.canary(NEW, 0.05)["tried"] is True
    assert asked.asked[-1][:5] == ("release", "canary", NEW, "--share", "0.05")


@pytest.mark.parametrize(
    ("status", "tried", "done"),
    [
        ("current", "", ["rollback", "bad"]),
        ("future", NEW, ["bad"]),
        ("future", OLD, []),  # the gate held it back: it was not tried
        ("backup", "", []),  # somebody promoted another meanwhile
    ],
)
def test_undo_takes_back_what_was_done_and_nothing_else(verbs: Any, status: str, tried: str, done: list[str]) -> None:
    asked = verbs(row(NEW, status), tried=tried)
    assert looks.undo(NEW, "late")["changed"] is bool(done)
    assert [words[1] for words in asked.asked if words[1] in ("rollback", "bad")] == done


@pytest.mark.parametrize(
    ("unknown", "age_h", "drifted"),
    [(300, 30, True), (100, 30, False), (300, 10, False)],
    ids=["drift", "few", "young"],
)
def test_drift_needs_many_unknown_items_and_a_rested_release(
    verbs: Any, monkeypatch: pytest.MonkeyPatch, unknown: int, age_h: int, drifted: bool
) -> None:
    monkeypatch.setattr(looks.time, "time", lambda: age_h * 3600.0)
    monkeypatch.setenv(looks.WORKER, "http://worker")
    text = f"beforehand_worker_states_total 100\nbeforehand_worker_unknown_items_total {unknown}\n"
    monkeypatch.setattr(scrape, "metrics", lambda _url: scrape.parse(text))
    verbs(row(NEW, "current"))
    assert looks.drift(2.0, 20.0)["drifted"] is drifted


def test_drift_without_a_worker_to_ask_is_no_all_clear(verbs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(looks.WORKER, raising=False)
    verbs(row(NEW, "current"))
    with pytest.raises(LauncherError, match=looks.WORKER):
        looks.drift(2.0, 20.0)


def exposition(new: int, good: int, *, old: int = 1000, old_good: int = 950, late: int = 0, refused: int = 0) -> str:
    name = "beforehand_answers_total"
    return "\n".join(
        [
            "# HELP beforehand_answers_total Answers by rung and release.",
            f'{name}{{release="{NEW}",rung="generate"}} {good}',
            f'{name}{{release="{NEW}",rung="popular"}} {new - good}',
            f'{name}{{release="{OLD}",rung="nearline"}} {old_good}',
            f'{name}{{release="{OLD}",rung="cohort"}} {old - old_good}',
            f"beforehand_late_total {late}",
            f'beforehand_refused_total{{status="503"}} {refused}',
            'beforehand_refused_total{status="422"} 5000',
        ]
    )


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        (exposition(500, 480), ""),
        (exposition(500, 400), "only 80% from a good rung, 95% of the others"),
        (exposition(500, 480, late=6), "6 of 500 answers late"),
        (exposition(500, 480, refused=6), "6 of 506 refused"),
        (exposition(50, 0, late=50), ""),  # too few to say anything
    ],
)
def test_the_watch_judges_what_grew(now: str, problem: str) -> None:
    found = judged(scrape.parse(exposition(0, 0)), scrape.parse(now), NEW, Bounds())
    assert found["problem"] == problem


def answered(release: str, generate: int, popular: int, late: int) -> str:
    return "\n".join(
        [
            f'beforehand_answers_total{{release="{release}",rung="generate"}} {generate}',
            f'beforehand_answers_total{{release="{release}",rung="popular"}} {popular}',
            f'beforehand_late_by_release_total{{release="{release}"}} {late}',
        ]
    )


@pytest.mark.parametrize(
    ("own", "others", "problem"),
    [
        # a slow hour: the canary is as good as the current release is in it, though not as good as that ever was
        ((300, 200, 10), (6600, 4400, 210), ""),
        ((300, 200, 10), (11000, 0, 210), "only 60% from a good rung, 100% of the others"),
        ((480, 20, 30), (11000, 0, 40), "6.0% of its answers late, 0.4% of the others'"),
        ((40, 40, 40), (11000, 0, 0), ""),  # 80 are too few
        (
            (300, 200, 5),
            (1010, 0, 0),
            "only 60% from a good rung, 100% of the others",
        ),  # all but nobody else was served
    ],
    ids=["alike", "rungs", "late", "few", "alone"],
)
def test_a_canary_is_compared_with_the_current_release_in_the_same_minutes(
    own: tuple[int, int, int], others: tuple[int, int, int], problem: str
) -> None:
    before = scrape.parse(answered(OLD, 1000, 0, 0))
    now = scrape.parse(f"{answered(NEW, *own)}\n{answered(OLD, *others)}")
    found = judged(before, now, NEW, Bounds(), beside=True)
    assert found["problem"] == problem
    assert found["judged"] is (sum(own[:2]) >= 100)
    assert found["by_release"]["own"]["rungs"] == {"generate": own[0], "popular": own[1]}


def watch(
    readings: list[Any], current: str = NEW, problems: dict[str, str] | None = None, *, tried: str = "", **more: Any
) -> Watch:
    """A watch whose clock moves when it sleeps; a reading that is an error is raised."""
    now = [0.0]
    left = iter(readings)

    def read(_url: str) -> Any:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return scrape.parse(found)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    report = {"current": current, "canary": tried or None, "problems": problems or {}}
    return Watch("http://x", NEW, 6.0, read=read, ask=lambda _u: report, clock=lambda: now[0], sleep=sleep, **more)


def test_a_quiet_watch_lasts_as_long_as_it_should() -> None:
    found = watch([exposition(0, 0)] + [exposition(200, 190)] * 4).run()
    assert (found["problem"], found["watched_s"], found["judged"]) == ("", 6.0, True)


def test_a_watch_ends_at_the_first_problem() -> None:
    found = watch([exposition(0, 0), exposition(200, 0)]).run()
    assert found["watched_s"] == 0.0
    assert "good rung" in found["problem"]


def test_a_release_that_the_service_does_not_load_or_take() -> None:
    assert "does not load it: no key" in watch([exposition(0, 0)] * 9, OLD, {NEW: "no key"}).run()["problem"]
    same = [exposition(0, 0)] * 99
    found = watch(same, OLD).run()  # longer than asked, until the service has had its time to load it
    assert (found["problem"], found["watched_s"]) == (f"the service still serves {OLD}", 120.0)
    assert watch(same, OLD, canary=True).run()["problem"] == ""


def test_a_service_that_tells_its_counts_but_not_its_releases() -> None:
    """As without a key. It must end."""

    def refuse(_url: str) -> dict[str, Any]:
        raise LauncherError("401 from /v1/releases", "give the key")

    looking = watch([exposition(0, 0)] * 99)
    looking.ask = refuse
    assert looking.run()["problem"] == "401 from /v1/releases"


def test_a_release_that_is_served_no_longer_at_the_end() -> None:
    looking = watch([exposition(0, 0)] * 99)
    looking.ask = lambda _url: {"current": OLD if looking.clock() >= 4 else NEW, "canary": None, "problems": {}}
    assert looking.run()["problem"] == f"the service still serves {OLD}"


def test_a_release_that_is_served_only_after_the_time_asked_for() -> None:
    looking = watch([exposition(0, 0)] * 99)
    looking.ask = lambda _url: {"current": NEW if looking.clock() >= 30 else OLD, "canary": None, "problems": {}}
    found = looking.run()
    assert (found["problem"], found["watched_s"]) == ("", 30.0)


def test_a_canary_that_the_service_never_takes() -> None:
    readings = [exposition(0, 0)] * 100
    looking = watch(readings, OLD, canary=True)
    looking.for_s = 150.0
    assert "serves only" in looking.run()["problem"]
    looking = watch(readings, OLD, canary=True, tried=NEW)
    looking.for_s = 150.0
    assert looking.run()["problem"] == ""


def test_a_service_that_is_silent_for_a_moment_is_waited_for() -> None:
    gone = LauncherError("no answer", "")
    assert watch([exposition(0, 0), gone, gone, *[exposition(0, 0)] * 4]).run()["problem"] == ""


def test_a_look_that_is_not_well_says_what_where_and_the_mend(verbs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    verbs()
    assert quality.main(["freshness", "--json"]) == quality.NOT_WELL
    said = json.loads(capsys.readouterr().out)
    assert (said["error"], said["where"]) == ("no release is current", "quality freshness")
    assert "docs/runbook.md#assetstale" in said["mend"]


def test_without_a_service_there_is_nothing_to_watch_and_nothing_to_undo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BEFOREHAND_ONLINE", raising=False)
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    assert quality.main(["watch", "--release", NEW, "--for", "1s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judged"] is False


def test_a_service_that_is_named_and_does_not_answer_is_no_all_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEFOREHAND_ONLINE", "http://127.0.0.1:9")
    with pytest.raises(LauncherError, match="does not answer"):
        quality.main(["watch", "--release", NEW, "--for", "1s"])


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("10m", 600), ("1.5h", 5400)])
def test_times(text: str, seconds: float) -> None:
    assert quality.seconds(text) == seconds


def test_samples_are_read_with_their_labels() -> None:
    found = scrape.parse('a{x="1",y="q\\"} z"} 2\na{x="2"} 3\nb 1e3\n# TYPE c counter\n')
    assert scrape.total(found, "a") == 5
    assert scrape.total(found, "a", x="1") == 2
    assert scrape.values(found, "a", "x") == {"1", "2"}
    assert scrape.total(found, "b") == 1000
    assert scrape.total(found, "none") == 0
