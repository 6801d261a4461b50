"""Intervals over seeds, and what they decide: expected values from tables of Student's t and by hand."""

from __future__ import annotations

import math

import pytest

from csn.experiments.records.published import by_its_authors, published
from csn.experiments.records.statistics import OverSeeds, over_seeds
from csn.experiments.tables.plan import margin_of


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 3, 3.1824),
        (0.975, 4, 2.7764),
        (0.975, 9, 2.2622),
        (0.95, 1, 6.3138),
        (0.95, 2, 2.9200),
        (0.95, 4, 2.1318),
        (0.975, 1000, 1.9623),
    ],
)
def test_quantiles_are_those_of_printed_tables(probability: float, freedom: int, expected: float) -> None:
    found = OverSeeds(mean=1.0, error=1.0, seeds=freedom + 1)
    if probability == 0.975:
        assert found.interval == pytest.approx(expected, abs=1e-4)
    else:  # two one-sided tests at 5 %
        assert found.verdict(1 + expected + 1e-4) == "level"
        assert found.verdict(1 + expected - 1e-4) != "level"


def test_an_interval_over_three_seeds_by_hand() -> None:
    found = over_seeds([0.01, 0.02, 0.06])  # mean 0.03, deviations -0.02, -0.01, 0.03: variance 0.0014 / 2
    assert found is not None
    assert found.mean == pytest.approx(0.03)
    assert found.error == pytest.approx(math.sqrt(0.0007 / 3))
    assert found.interval == pytest.approx(4.30265 * math.sqrt(0.0007 / 3), abs=1e-6)
    assert not found.differs  # 0.03 against 0.0657
    assert over_seeds([0.02]) is None


def test_three_differences_that_are_significant_by_tasks_show_nothing_by_seeds() -> None:
    """+0.43, +1.41 and -1.53 points, each with an interval over tasks of less than half a point."""
    found = over_seeds([0.0043, 0.0141, -0.0153])
    assert found is not None
    assert found.verdict(0.02) == ""
    assert found.interval > 0.03


@pytest.mark.parametrize(
    ("mean", "error", "margin", "verdict"),
    [
        (0.001, 0.001, 0.005, "level"),  # 0.001 + 2.92 * 0.001 stays below 0.005
        (0.003, 0.001, 0.005, ""),  # 0.00592 does not, and 0.003 is below 4.30 * 0.001
        (0.005, 0.001, 0.005, "differs"),
        (0.004, 0.0003, 0.005, "level"),  # shown to be other than 0, and within the margin: level
        (0.001, 0.001, None, ""),  # no margin is stated
    ],
)
def test_level_is_a_test_of_its_own_and_not_a_difference_that_was_not_found(
    mean: float, error: float, margin: float | None, verdict: str
) -> None:
    assert OverSeeds(mean, error, 3).verdict(margin) == verdict


def test_margins_are_stated_where_the_tables_are_planned() -> None:
    assert (margin_of("omniglot"), margin_of("penn-treebank"), margin_of("elsewhere")) == (0.005, 0.02, None)


def test_published_numbers_are_the_paper_s_and_those_of_the_authors() -> None:
    assert "authors" not in published()
    assert by_its_authors("omniglot", "prototypical", "20w1s") == "96.0"
    assert by_its_authors("omniglot", "adacnn-df", "20w1s") == ""
