"""Budget burn: rates, the day an allowance is used up, its range, and alerts."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import Window
from apps.quotas.domain.budgets import (
    BudgetUsage,
    Burn,
    DayUse,
    SpentAmount,
    alerts_due,
    burn,
    used_up,
)

ZONE = ZoneInfo("UTC")
PERIOD = Window(datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
"""June 2026 begins on a Monday."""
ALLOWANCE = 7200.0
"""10 an hour over 720 hours."""


def at(day: int, hour: int = 0) -> datetime:
    return PERIOD.start + timedelta(days=day - 1, hours=hour)


def usage(day: int, used: float, *, daily: float, days: list[DayUse] | None = None) -> BudgetUsage:
    """Return the usage of a team that used `daily` on each of the last days."""
    return BudgetUsage(
        at(day), used, SpentAmount(daily, 24), SpentAmount(daily * 7, 168), days or []
    )


def look(found: BudgetUsage, *, allowance: float = ALLOWANCE, **known: datetime) -> Burn:
    return burn(found, allowance=allowance, period=PERIOD, zone=ZONE, **known)


WEEKDAYS = [DayUse(day % 7, 360.0 if day % 7 < 5 else 0.0, 24) for day in range(28)]


class TestRates:
    def test_an_linear_pace_lands_exactly_on_the_allowance(self) -> None:
        found = look(usage(11, 2400, daily=240))
        assert (found.burn_rate, found.burn_rate_1d, found.burn_rate_7d) == (1.0, 1.0, 1.0)
        assert found.exhausted_at == PERIOD.end

    def test_recent_days_have_rates_of_their_own(self) -> None:
        found = look(BudgetUsage(at(11), 1200, SpentAmount(480, 24), SpentAmount(840, 168)))
        assert found.burn_rate == pytest.approx(0.5)
        assert found.burn_rate_1d == pytest.approx(2.0)
        assert found.burn_rate_7d == pytest.approx(0.5)

    def test_hours_that_are_not_closed_are_not_counted_as_unused(self) -> None:
        found = look(BudgetUsage(at(1, 6), 60, SpentAmount(60, 6), SpentAmount(60, 6)))
        assert (found.burn_rate, found.burn_rate_1d, found.burn_rate_7d) == (1.0, 1.0, 1.0)

    def test_before_the_first_closed_hour_there_is_no_rate(self) -> None:
        found = look(BudgetUsage(at(1), 0, SpentAmount(0, 0), SpentAmount(0, 0)))
        assert found == Burn(None, None, None, None, None, None, known_hours=0.0)

    def test_an_allowance_of_nothing_has_no_rate(self) -> None:
        found = look(usage(11, 5, daily=24), allowance=0)
        assert (found.burn_rate, found.burn_rate_7d) == (None, None)
        assert found.exhausted_at == at(11)

    def test_a_negative_allowance_is_refused(self) -> None:
        with pytest.raises(ValueError, match="negative"):
            look(usage(11, 5, daily=24), allowance=-1)


class TestExhaustion:
    def test_is_what_is_left_at_the_mean_of_the_last_week(self) -> None:
        found = look(usage(11, 4800, daily=480))
        assert found.exhausted_at == at(16)

    def test_after_the_period_it_is_not_exhausted(self) -> None:
        assert look(usage(11, 1200, daily=120)).exhausted_at is None

    def test_who_uses_nothing_exhausts_nothing(self) -> None:
        assert look(usage(11, 1200, daily=0)).exhausted_at is None

    def test_what_is_used_up_was_so_when_it_was(self) -> None:
        found = look(usage(20, 7500, daily=480), used_up_at=at(18, 3))
        assert found.exhausted_at == found.exhausted_at_early == found.exhausted_at_late
        assert found.exhausted_at == at(18, 3)
        assert look(usage(20, 7500, daily=480)).exhausted_at == at(20)

    def test_a_closed_period_projects_nothing(self) -> None:
        found = look(usage(31, 7000, daily=480, days=WEEKDAYS))
        assert (found.exhausted_at, found.exhausted_at_early) == (None, None)
        assert found.burn_rate == pytest.approx(7000 / 7200)


class TestRange:
    def test_a_team_that_rests_at_weekends_does_so_in_the_projection(self) -> None:
        # Friday the 12th at 0:00, 720 left: that day uses 360, the next ones nothing, and
        # Monday the other 360. The flat mean of 257 a day would be through on Sunday.
        found = look(
            BudgetUsage(at(12), 6480, SpentAmount(360, 24), SpentAmount(1800, 168), WEEKDAYS),
            allowance=7200,
        )
        assert found.exhausted_at is not None
        assert at(14) < found.exhausted_at < at(15)
        assert found.exhausted_at_early == found.exhausted_at
        assert found.exhausted_at_late == at(16)

    def test_the_highest_days_come_early_and_the_lowest_late(self) -> None:
        days = [DayUse(day % 7, amount, 24) for amount in (480, 120) for day in range(7)]
        found = look(usage(11, 5760, daily=240, days=days))
        assert found.exhausted_at_early == at(14)
        assert found.exhausted_at == at(17)
        assert found.exhausted_at_late == at(23)

    def test_it_may_last_where_the_lowest_days_come_again(self) -> None:
        days = [DayUse(day % 7, amount, 24) for amount in (480, 24) for day in range(7)]
        found = look(usage(11, 5760, daily=240, days=days))
        assert found.exhausted_at_early == at(14)
        assert found.exhausted_at_late is None

    def test_it_may_be_used_up_early_though_the_mean_lasts(self) -> None:
        days = [DayUse(day % 7, amount, 24) for amount in (480, 24) for day in range(7)]
        found = look(usage(11, 5760, daily=48, days=days))
        assert found.exhausted_at is None
        assert found.exhausted_at_early == at(14)
        assert found.exhausted_at_late is None

    def test_a_weekday_not_seen_yet_is_like_the_extreme_of_all(self) -> None:
        days = [DayUse(3, 240, 24), DayUse(4, 720, 24), DayUse(5, 0, 0)]
        found = look(usage(15, 5760, daily=240, days=days))
        # Monday to Wednesday like the highest day, or like the lowest.
        assert found.exhausted_at_early == at(17)
        assert found.exhausted_at_late == at(21)

    def test_without_days_there_is_no_range(self) -> None:
        found = look(usage(11, 4800, daily=480))
        assert found.exhausted_at_early == found.exhausted_at
        assert found.exhausted_at_late is None

    @pytest.mark.parametrize("day", range(1, 30))
    @pytest.mark.parametrize("daily", [60, 200, 257, 400])
    def test_the_range_holds_the_projection(self, day: int, daily: float) -> None:
        found = look(usage(day, daily * (day - 1), daily=daily, days=WEEKDAYS))
        if found.exhausted_at is not None:
            assert found.exhausted_at_early is not None
            assert found.exhausted_at_early <= found.exhausted_at
            late = found.exhausted_at_late
            assert late is None or late >= found.exhausted_at

    def test_days_are_those_of_the_reports_zone(self) -> None:
        zone = ZoneInfo("Europe/Berlin")
        period = Window(
            datetime(2026, 10, 1, tzinfo=zone).astimezone(UTC),
            datetime(2026, 11, 1, tzinfo=zone).astimezone(UTC),
        )
        # The 25th has 25 hours; each hour of a Sunday uses 1, no other day anything.
        days = [DayUse(day, 24.0 if day == 6 else 0.0, 24) for day in range(7)]
        start = datetime(2026, 10, 24, tzinfo=zone).astimezone(UTC)
        found = burn(
            BudgetUsage(start, 100, SpentAmount(0, 24), SpentAmount(24, 168), days),
            allowance=124.5,
            period=period,
            zone=zone,
        )
        assert found.exhausted_at_early == datetime(2026, 10, 25, 22, 30, tzinfo=UTC)


class TestUsedUp:
    HOURS = [(at(1, hour), amount) for hour, amount in enumerate((4.0, 0.0, 4.0, 4.0))]

    @pytest.mark.parametrize(
        ("allowance", "expected"),
        [
            pytest.param(6, at(1, 2) + timedelta(minutes=30), id="within-an-hour"),
            pytest.param(4, at(1, 1), id="at-an-hours-end"),
            pytest.param(0, at(1), id="nothing-allowed"),
            pytest.param(12, at(1, 4), id="at-the-very-end"),
            pytest.param(13, None, id="not-yet"),
        ],
    )
    def test_is_when_the_hours_reach_the_allowance(
        self, allowance: float, expected: datetime | None
    ) -> None:
        assert used_up(self.HOURS, allowance=allowance) == expected


class TestAlerts:
    @pytest.mark.parametrize(
        ("used", "allowance", "told", "expected"),
        [
            pytest.param(40, 100, [], [], id="below-all"),
            pytest.param(50, 100, [], [0.5], id="exactly-at-one"),
            pytest.param(95, 100, [0.5], [0.8], id="told-once"),
            pytest.param(120, 100, [], [0.5, 0.8, 1.0], id="all-at-once"),
            pytest.param(0, 0, [], [], id="nothing-of-nothing"),
            pytest.param(1, 0, [], [0.5, 0.8, 1.0], id="something-of-nothing"),
        ],
    )
    def test_thresholds_are_told_once(
        self, used: float, allowance: float, told: list[float], expected: list[float]
    ) -> None:
        due = alerts_due(used, allowance=allowance, thresholds=[1.0, 0.8, 0.5], noted=told)
        assert due == expected


def test_a_burn_needs_no_more_than_its_figures() -> None:
    found = usage(11, 2400, daily=240)
    assert look(found) == look(replace(found))
