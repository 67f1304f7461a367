"""plan.toml: each fault is refused with file, line, value and mend."""

import tomllib
from pathlib import Path

import pytest

from schemas.errors import PlanError
from schemas.plan import Source, check_plan, load_plan
from schemas.units import human_seconds, num_bytes, seconds

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "plan.toml").read_text()


def line_of(fragment: str, text: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if fragment in line)


def test_the_plan_in_the_repository_holds():
    plan = load_plan(ROOT / "plan.toml")
    assert plan.order().index("semantic_index") < plan.order().index("intent_state")
    assert plan.assets["intent_state"].freshness.fresh_for_s == 86_400
    assert plan.online.cache_bytes == 64 * 1024**2


FAULTS = [
    ('budget = "50ms"', 'budget = "50 parsecs"', "online.budget", "ms, s, m, h, d"),
    ('budget = "50ms"', "budget = 50", "online.budget", "with a unit"),
    ("refresh =", "refrsh =", "nearline.refrsh", "Did you mean refresh?"),
    ('tier = "edge"', 'tier = "moon"', "assets.prompt_embedding.tier", "moon"),
    ('fresh_for = "5s"', 'fresh_for = "61 s"\nfresh_four = "1s"', "fresh_four", "Did you mean fresh_for?"),
    ('usable_for = "60s"', 'usable_for = "1s"', "assets.prompt_embedding.usable_for", "shorter than fresh_for"),
    ('fallback = "generator"', 'fallback = "none"', "assets.prompt_embedding.fallback", "needs a fallback"),
    ('fallback = "generator"', 'fallback = "generater"', "assets.prompt_embedding.fallback", "unknown fallback"),
    ('inputs = ["device", "generator"]', 'inputs = ["devise"]', "assets.prompt_embedding.inputs", "device?"),
    ("k_max = 100", "", "online", "k_max"),
    ("levels = 3", 'levels = "x"', "index.levels", "Expected `int`"),
    ('budget = "50ms"', 'budget = "0ms"', "online.budget", "above 0"),
    ('fresh_for = "5s"', 'fresh_for = "0s"', "assets.prompt_embedding.fresh_for", "above 0"),
    ("learning_rate = 0.002", "learning_rate = inf", "model.learning_rate", "not a finite number"),
    ('schedule = "0 3 * * *"', 'schedule = "99 3 * * *"', "assets.semantic_index.schedule", "five cron fields"),
    ("width = 128", "width = 100", "model.width", "multiple of 8"),
    ("heads = 4", "heads = 5", "model.heads", "divide model.width"),
    ('state_lifetime = "90d"', 'state_lifetime = "1d"', "nearline.state_lifetime", "cuts returning users"),
    (
        'budget = "30m"\nfallback = "none"\nschedule = "0 3 * * *"',
        'budget = "30m"\nfallback = "none"\nschedule = "0 4 * * 0"',
        "assets.cohort_lists.schedule",
        "one schedule",
    ),
    ("version = 1", "version = 2", "version", "version = 1"),
    ('"cohort", "popular"]', '"cohort", "cohort"]', "online.ladder", "once"),
    ('"cohort", "popular"]', '"cohort", "hope"]', "online.ladder", "hope"),
]


@pytest.mark.parametrize(("old", "new", "field", "says"), FAULTS)
def test_a_fault_names_line_field_and_mend(old: str, new: str, field: str, says: str):
    text = TEXT.replace(old, new)
    assert text != TEXT
    with pytest.raises(PlanError) as caught:
        check_plan(tomllib.loads(text), Source("plan.toml", text))
    message = str(caught.value)
    assert message.startswith("plan.toml:")
    assert field in message
    assert says in message
    number = int(message.split(":")[1].split(maxsplit=1)[0])
    last = field.rsplit(".", maxsplit=1)[-1]
    assert last in text.splitlines()[number - 1]


def test_a_circle_is_shown():
    text = TEXT.replace('inputs = ["catalogue", "events"]', 'inputs = ["catalogue", "cohort_lists"]')
    with pytest.raises(PlanError, match=r"circle: .*semantic_index.* → .*cohort_lists"):
        check_plan(tomllib.loads(text), Source("plan.toml", text))


def test_an_asset_without_a_field_is_named():
    text = TEXT.replace('budget = "20ms"\n', "")
    with pytest.raises(PlanError) as caught:
        check_plan(tomllib.loads(text), Source("plan.toml", text))
    assert f"plan.toml:{line_of('[assets.prompt_embedding]', text)} assets.prompt_embedding" in str(caught.value)


def test_overrides_change_one_value_and_refuse_unknown_ones():
    plan = load_plan(ROOT / "plan.toml", ["model.epochs=2", "nearline.refresh=1s"])
    assert (plan.model.epochs, plan.nearline.refresh) == (2, 1.0)
    assert plan.digest() != load_plan(ROOT / "plan.toml").digest()
    for bad in ("model.epoch=2", "epochs", "nothing.here=1"):
        with pytest.raises(PlanError, match="--set"):
            load_plan(ROOT / "plan.toml", [bad])


def test_files_that_are_no_plan(tmp_path: Path):
    with pytest.raises(PlanError, match="can't be read"):
        load_plan(tmp_path / "none.toml")
    (tmp_path / "p.toml").write_text("a = [")
    with pytest.raises(PlanError, match="not TOML"):
        load_plan(tmp_path / "p.toml")


def test_units():
    assert [seconds(t) for t in ("500ms", "1.5s", "2m", "26h", "30d")] == [0.5, 1.5, 120, 93_600, 2_592_000]
    assert num_bytes("64MB") == 67_108_864
    spoken = {0.02: "20 ms", 0.5: "500 ms", 60: "1 m", 93_600: "26 h", 86_400: "1 d", 90: "90 s", 37.44: "37.4 s"}
    spoken |= {1e6: "11.6 d", 2.82e8: "3,264 d", 0: "0 ms"}
    assert {s: human_seconds(s) for s in spoken} == spoken
    for bad in ("", "5", "ms", "5 weeks", "-5s", "5s!"):
        with pytest.raises(ValueError, match="duration"):
            seconds(bad)
