"""Sums as numbers of GPUs, and how they differ."""

import pytest

from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import UsageRow
from apps.web.components.formats import gpus_text
from apps.web.usage.comparison import (
    Comparison,
    Difference,
    Differences,
    amount_change,
    gpu_hours_text,
    ratio_change,
    sums,
)


def row(
    cluster: str, capacity: float | None, allocated: float, busy: float, tier: str = "gold"
) -> UsageRow:
    amounts = Amounts(
        allocated=nano(allocated),
        busy=nano(busy),
        idle=nano(allocated - busy),
        capacity=None if capacity is None else nano(capacity),
    )
    return UsageRow(None, {"cluster": cluster, "tier": tier}, amounts)


def test_each_cluster_is_averaged_over_its_own_hours() -> None:
    rows = [row("west", 80, 40, 20), row("east", 10, 10, 0)]
    found = sums(rows, {"west": 10, "east": 5})
    assert found is not None
    gpus = found.gpus
    assert (gpus.capacity, gpus.allocated, gpus.busy, gpus.not_used) == (10.0, 6.0, 2.0, 4.0)
    assert found.amounts.capacity == nano(90)


def test_hours_that_told_nothing_of_a_tier_are_not_averaged_over() -> None:
    found = sums([row("west", 80, 40, 20)], {"west": 10}, {("west", "gold"): 6, ("east", "x"): 1})
    assert found is not None
    assert (found.gpus.capacity, found.gpus.allocated, found.gpus.busy) == (20.0, 10.0, 5.0)
    assert sums([row("west", 80, 40, 20)], {"west": 10}, {("west", "gold"): 10}) is None


def test_what_only_one_window_tells_of_is_no_change() -> None:
    gold, claimed = row("west", 80, 40, 20), row("west", 8, 8, 0, "claimed")
    found = Comparison(
        rows=[gold, claimed, row("new", 10, 10, 0)],
        hours={"west": 10, "new": 10},
        rows_before=[gold],
        hours_before={"west": 10},
        gaps={("west", "claimed"): 9},
        gaps_before={("west", "claimed"): 10},
    )
    assert found.changes() == Differences(*[Difference(0, "no change")] * 4)
    assert found.changes("claimed") is None


def test_teams_have_averages_without_capacity() -> None:
    found = sums([row("west", None, 40, 20)], {"west": 10})
    assert found is not None
    assert (found.gpus.capacity, found.gpus.allocated) == (None, 4.0)


@pytest.mark.parametrize("hours", [{}, {"east": 5}], ids=["no hours", "hours of another"])
def test_without_hours_nothing_is_averaged(hours: dict[str, int]) -> None:
    assert sums([row("west", 80, 40, 20)], hours) is None


@pytest.mark.parametrize(
    ("now", "before", "change"),
    [
        pytest.param(112, 100, Difference(1, "+12 %"), id="more"),
        pytest.param(96.5, 100, Difference(-1, "−3.5 %"), id="less, under ten percent"),
        pytest.param(0, 100, Difference(-1, "−100 %"), id="all gone"),
        pytest.param(100.4, 100, Difference(0, "no change"), id="hardly"),
        pytest.param(2500, 100, Difference(1, "25×"), id="many times"),
        pytest.param(5, 0, None, id="from nothing"),
    ],
)
def test_amounts_differ_in_percent(now: float, before: float, change: Difference | None) -> None:
    assert amount_change(now, before) == change


@pytest.mark.parametrize(
    ("now", "before", "change"),
    [
        pytest.param(0.71, 0.679, Difference(1, "+3.1 pp"), id="more"),
        pytest.param(0.1, 0.5, Difference(-1, "−40 pp"), id="less"),
        pytest.param(0.5, 0.5, Difference(0, "no change"), id="same"),
        pytest.param(None, 0.5, None, id="not known now"),
        pytest.param(0.5, None, None, id="not known before"),
    ],
)
def test_ratios_differ_in_points(
    now: float | None, before: float | None, change: Difference | None
) -> None:
    assert ratio_change(now, before) == change


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (856.0, "856"),
        (1234.4, "1,234"),
        (12.54, "12.5"),
        (12.0, "12"),
        (11.98, "12"),
        (0.25, "0.25"),
        (2.5, "2.5"),
        (2.25, "2.2"),
        (None, "–"),
        (0.001, "<0.01"),
        (0.0, "0"),
    ],
)
def test_numbers_of_gpus_have_about_three_digits(number: float | None, text: str) -> None:
    assert gpus_text(number) == text


@pytest.mark.parametrize(
    ("hours", "text"), [(38813.4, "38,813"), (100, "100"), (99.94, "99.9"), (0, "0.0")]
)
def test_gpu_hours_of_a_sentence_are_whole_from_a_hundred_up(hours: float, text: str) -> None:
    assert gpu_hours_text(nano(hours)) == text
