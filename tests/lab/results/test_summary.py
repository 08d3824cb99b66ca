"""Tables and paired differences, against scipy's own tests and by hand."""

from __future__ import annotations

from dataclasses import astuple
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from support.entries import entry, results
from support.refusals import rejects
from windvane.environments import ARM_LAWS, DRIFTS
from windvane.lab.experiment import simulate
from windvane.lab.results.summary import (
    NOT_SIGNIFICANT,
    PairingError,
    adjust_holm,
    align,
    compare_entries,
    summarise_entries,
)
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec

WORLD = EnvironmentSpec("rotation", DRIFTS["rotation"](), ARM_LAWS["ball"]())


def test_a_row_holds_the_means_over_runs() -> None:
    final = np.array([1.0, 2.0, 6.0])
    made = entry(
        "A",
        final,
        variant={"bonus_scale": 0.5},
        outside=np.array([0.1, 0.2, 0.6]),
        stages=np.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]]),
        drift=np.array([1.0, 2.0, 3.0]),
        switches=np.array([1, 2, 6]),
        gamma=np.array([0.9, 0.9, 0.9]),
        microseconds=4.5,
    )
    (row,) = summarise_entries(results([made]))
    assert (row.environment, row.label, row.policy, row.variant) == (
        "rotation",
        "A bonus_scale=0.5",
        "A",
        {"bonus_scale": 0.5},
    )
    assert (row.runs, row.mean, row.microseconds) == (3, 3.0, 4.5)
    assert row.sd == pytest.approx(stats.tstd(final))
    assert row.se == pytest.approx(stats.sem(final))
    assert row.outside == pytest.approx(0.3)
    assert row.stages == pytest.approx((0.0, 0.5, 1 / 6, 1 / 3))
    assert (row.drift, row.switches, row.gamma) == pytest.approx((2.0, 3.0, 0.9))


def test_rows_keep_the_order_of_the_entries() -> None:
    made = [entry(p, [1.0], environment=e) for e in ("z", "a") for p in ("second", "first")]
    assert [(r.environment, r.label) for r in summarise_entries(results(made))] == [
        ("z", "second"), ("z", "first"), ("a", "second"), ("a", "first"),
    ]  # fmt: skip


def test_one_run_has_no_spread_and_a_linear_policy_no_stages() -> None:
    (row,) = summarise_entries(results([entry("A", [3.0])]))
    assert row.mean == 3.0
    assert np.isnan([row.sd, row.se, row.outside, *row.stages]).all()


samples = st.integers(2, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(-1e3, 1e3).map(lambda v: round(v, 3)), min_size=n, max_size=n)] * 2)
)


@given(samples, st.floats(0.5, 0.999))
def test_differences_are_those_of_the_paired_t_test(pair, confidence: float) -> None:
    one, two = np.array(pair[0]), np.array(pair[1])
    (found,) = compare_entries([entry("base", two), entry("other", one)], confidence=confidence)
    gaps = one - two
    assert (found.label, found.baseline, found.n) == ("other", "base", len(gaps))
    assert found.mean == pytest.approx(gaps.mean(), abs=1e-9)
    assert found.won == pytest.approx((np.sum(gaps < 0) + 0.5 * np.sum(gaps == 0)) / len(gaps))
    if np.ptp(gaps) > 1e-6:
        test = stats.ttest_rel(one, two)
        interval = test.confidence_interval(confidence)
        assert found.se == pytest.approx(stats.sem(gaps))
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
        assert found.p == pytest.approx(test.pvalue, abs=1e-12)


levels = st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=12)


@given(levels, st.floats(0.001, 0.999))
def test_holm_rejects_what_its_procedure_rejects(p_values: list[float], alpha: float) -> None:
    """Step by step as Holm (1979) describes it: the smallest p against alpha/m, the next against alpha/(m-1), ..."""
    left = [(p, i) for i, p in enumerate(p_values) if not np.isnan(p)]
    rejected = set()
    while left and min(left)[0] * len(left) < alpha:
        rejected.add(min(left)[1])
        left.remove(min(left))
    adjusted = adjust_holm(p_values)
    assert {i for i, p in enumerate(adjusted) if p < alpha} == rejected
    for p, corrected in zip(p_values, adjusted, strict=True):
        assert np.isnan(corrected) == np.isnan(p)
        assert np.isnan(p) or p <= corrected <= 1.0


def test_verdicts_are_corrected_for_the_number_of_differences() -> None:
    """Of equal policies, some difference is called one in 5 % of experiments, not in 1 - 0.95^12 = 46 %."""
    rng, wrong, alone = np.random.default_rng(0), 0, 0
    for _ in range(400):
        made = [entry(f"p{i}", rng.normal(size=20)) for i in range(13)]
        found = compare_entries(made)
        wrong += any(d.verdict != NOT_SIGNIFICANT for d in found)
        alone += any(d.low > 0 or d.high < 0 for d in found)
    assert stats.binomtest(wrong, 400, 0.05, alternative="greater").pvalue > 1e-6
    assert alone > 60  # correlated by the common baseline, so fewer than 46 %
    made = [entry("base", [5.0, 6.0, 7.0]), entry("less", [1.0, 2.1, 3.0]), entry("more", [9.0, 10.0, 11.2])]
    assert [d.verdict for d in compare_entries(made)] == ["better", "worse"]
    alone = compare_entries(made[:2])[0]
    assert alone.p == alone.p_adjusted


def test_one_degree_of_freedom_by_hand() -> None:
    """n = 2: Student's t is Cauchy's, whose 97.5% point is tan(0.475 pi)."""
    (found,) = compare_entries([entry("base", [0.0, 0.0]), entry("other", [1.0, 3.0])])
    assert (found.mean, found.se, found.won) == (2.0, 1.0, 0.0)
    assert found.high - found.mean == pytest.approx(np.tan(0.475 * np.pi))
    assert found.p == pytest.approx(1 - 2 / np.pi * np.arctan(2.0))


def test_equal_entries_and_constant_gaps() -> None:
    same, off = compare_entries([entry("A", [1.0, 2.0]), entry("B", [1.0, 2.0]), entry("C", [2.0, 3.0])])
    assert (same.mean, same.se, same.low, same.high, same.won, same.p) == (0.0, 0.0, 0.0, 0.0, 0.5, 1.0)
    assert (off.mean, off.se, off.low, off.high, off.won, off.p) == (1.0, 0.0, 1.0, 1.0, 0.0, 0.0)


def test_a_single_common_run_has_no_interval() -> None:
    (found,) = compare_entries([entry("A", [1.0, 5.0], runs=[0, 1]), entry("B", [2.0], runs=[1])])
    assert (found.n, found.mean, found.won) == (1, -3.0, 1.0)
    assert np.isnan([found.se, found.low, found.high, found.p]).all()


def test_only_common_runs_are_paired() -> None:
    one = entry("A", [10.0, 20.0, 30.0], runs=[2, 5, 7])
    two = entry("B", [1.0, 2.0, 3.0, 4.0], runs=[1, 5, 6, 7])
    (found,) = compare_entries([one, two])
    assert (found.n, found.mean) == (2, pytest.approx(((2 - 20) + (4 - 30)) / 2))


def test_pairing_beats_two_separate_intervals() -> None:
    rng = np.random.default_rng(0)
    run = 100 * rng.normal(size=50)
    (found,) = compare_entries([entry("A", run), entry("B", run + 1 + rng.normal(size=50))])
    assert found.low > 0
    assert found.se < 0.02 * stats.sem(run)


def test_baseline_by_label_in_every_environment() -> None:
    made = [entry(p, [1.0, 2.0], environment=e) for e in ("x", "y") for p in ("A", "B", "C")]
    found = compare_entries(made, baseline="B")
    assert [(d.environment, d.label, d.baseline) for d in found] == [
        ("x", "A", "B"), ("x", "C", "B"), ("y", "A", "B"), ("y", "C", "B"),
    ]  # fmt: skip
    assert compare_entries(made[:1]) == []


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (entry("B", [1.0], horizon=50), "settings"),
        (entry("B", [1.0], runs=[3]), "runs"),
        (entry("B", [1.0], drift=2.0), "drift"),
    ],
)
def test_what_cannot_be_paired_is_refused(other, code: str) -> None:
    with rejects(error=PairingError, first="B", second="A", environment="rotation", code=code):
        compare_entries([entry("A", [1.0]), other])


def test_bad_settings_of_a_comparison_are_named() -> None:
    with rejects("baseline", value="Z", where="rotation"):
        compare_entries([entry("A", [1.0])], baseline="Z")
    with rejects("confidence", value=1.0):
        compare_entries([entry("A", [1.0])], confidence=1.0)


def spec_of(*environments: EnvironmentSpec) -> SimpleNamespace:
    return SimpleNamespace(environments=environments)


def test_one_folder_is_taken_as_it_is() -> None:
    made = [entry("A", [1.0]), entry("B", [2.0])]
    assert align([results(made)]) == made


def test_entries_of_several_folders_get_distinct_names() -> None:
    one = results([entry("A", [1.0, 2.0], variant={"bonus_scale": 0.5})], "old", spec_of(WORLD))
    two = results([entry("A", [2.0, 4.0], variant={"bonus_scale": 0.5})], "new", spec_of(WORLD))
    aligned = align([one, two])
    assert [e.label for e in aligned] == ["old/A bonus_scale=0.5", "new/A bonus_scale=0.5"]
    (found,) = compare_entries(aligned)
    assert (found.label, found.baseline, found.mean) == ("new/A bonus_scale=0.5", "old/A bonus_scale=0.5", 1.5)


def test_folders_of_one_name_are_told_apart_by_their_parents() -> None:
    made = [results([entry("A", [1.0])], f"{parent}/runs", spec_of(WORLD)) for parent in ("x/a", "x/b")]
    assert [e.label for e in align(made)] == ["a/runs/A", "b/runs/A"]


def test_environments_stay_together_across_folders() -> None:
    other = EnvironmentSpec("arc", DRIFTS["arc"](), ARM_LAWS["ball"]())
    one = results([entry("A", [1.0]), entry("A", [1.0], environment="arc")], "one", spec_of(WORLD, other))
    two = results([entry("B", [1.0], environment="arc"), entry("B", [1.0])], "two", spec_of(other, WORLD))
    found = [(e.environment, e.label) for e in align([one, two])]
    assert found == [("rotation", "one/A"), ("rotation", "two/B"), ("arc", "one/A"), ("arc", "two/B")]


def test_what_differs_between_folders_is_named() -> None:
    one = results([entry("A", [1.0])], "one", spec_of(WORLD))
    changed = EnvironmentSpec("rotation", DRIFTS["rotation"](angle=1.0), ARM_LAWS["ball"](count=5), S=2.0)
    for two, code, mention in (
        (results(one.entries, "two", spec_of(WORLD), seed=1), "seed", "0 and 1"),
        (results([entry("A", [1.0], horizon=50)], "two", spec_of(WORLD)), "horizon", "100 and 50"),
        (results(one.entries, "two", spec_of(changed)), "environment", "drift, arms, S"),
    ):
        with rejects(error=PairingError, first="one", second="two", environment="rotation", code=code) as caught:
            align((one, two))
        assert mention in caught.value.problem
    elsewhere = results([entry("A", [1.0], environment="arc")], "two", spec_of(WORLD))
    with rejects("folders") as caught:
        align((one, elsewhere))
    with rejects("folders") as caught:
        align((one, one))
    assert "/one " in caught.value.got


def test_rows_and_differences_are_plain_values() -> None:
    """So that they can be written as JSON."""
    made = [entry("A", [1.0, 2.0]), entry("B", [2.0, 1.0])]
    for item in [*summarise_entries(results(made)), *compare_entries(made)]:
        assert all(type(value) in (str, int, float, dict, tuple) for value in astuple(item))


def test_two_real_folders(tmp_path) -> None:
    """The same policy in two folders draws the same numbers: run by run, nothing differs."""
    both = Spec([WORLD], [PolicySpec("D-LinUCB"), PolicySpec("OFUL")], runs=3, horizon=60)
    one = Spec([WORLD], [PolicySpec("D-LinUCB")], runs=5, horizon=60)
    done = [simulate(spec, tmp_path / name, jobs=1) for name, spec in (("both", both), ("one", one))]
    found = compare_entries(align(done))
    assert [(d.label, d.baseline, d.n) for d in found] == [
        ("both/OFUL", "both/D-LinUCB", 3), ("one/D-LinUCB", "both/D-LinUCB", 3),
    ]  # fmt: skip
    assert found[0].mean != 0
    assert (found[1].mean, found[1].se, found[1].p) == (0.0, 0.0, 1.0)
    other = simulate(Spec([WORLD], [PolicySpec("OFUL")], runs=3, horizon=60, seed=1), tmp_path / "other", jobs=1)
    with rejects(error=PairingError, environment="rotation", code="seed"):
        align([done[0], other])
