"""A closed month stands: late facts and new prices become lines of the month that is open."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.clusters.models import ReportSettings
from apps.costs.domain.costing import Basis, Policy, money
from apps.costs.domain.files import FileFormat
from apps.costs.models import Adjustment, ClosedAmount, ClosedPeriod, Price, PricedHour
from apps.costs.selectors import (
    AdjustmentRow,
    MonthState,
    adjustment_rows,
    closed_period,
    cost_files,
    month_window,
    period_states,
)
from apps.costs.selectors.explain_costs import explain_adjustment
from apps.costs.services import CloseRefused, close_period, price_hours, reopen_period
from apps.usage.domain.explained import Explained, evaluate
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.models import CollectionWindow, PodHour, TierHour
from tests.costs.portal import (
    CHARGINGS,
    COLLECTED,
    NOW,
    PRICES,
    Priced,
    make_price,
    make_priced,
    rows,
    stored,
    total,
)
from tests.factories import A100, H100
from tests.shared_rows import copy_of, shared
from tests.thinned import examples

pytestmark = pytest.mark.django_db

OCTOBER = date(2026, 10, 1)
LATER = NOW + timedelta(hours=6)
BY_TEAM: dict[str, Any] = {"group_by": (Grouping.TEAM,)}


_priced = shared(lambda: make_priced(2))
# It has the last two days of October; the cluster was not known before.
priced = copy_of("_priced")


def close(**values: Any) -> ClosedPeriod:
    return close_period(OCTOBER, by="finn", now=NOW, **values)


def november(priced: Priced) -> Window:
    return month_window(date(2026, 11, 1), priced.portal.zone)


def corrections(priced: Priced, **asked: Any) -> list[tuple[str, int]]:
    found = rows(november(priced), interval=TimeStep.MONTH, **(BY_TEAM | asked))
    return [(row.groups["team"], row.cost or 0) for row in found if row.correction]


def recollect(priced: Priced, at: datetime = LATER) -> None:
    """Move an hour of busy time to idle, as facts collected anew may."""
    hour = PodHour.objects.filter(team=priced.portal.vision, busy__gt=10**8).earliest("hour")
    PodHour.objects.filter(pk=hour.pk).update(
        busy=hour.busy - 10**8, not_running=hour.not_running + 10**8
    )
    CollectionWindow.objects.filter(cluster=hour.cluster_id, hour=hour.hour).update(collected_at=at)


# ---------------------------------------------------------------- closing


@pytest.mark.parametrize(("basis", "policy"), CHARGINGS, ids=lambda value: str(value))
def test_what_is_frozen_is_what_the_page_shows(
    priced: Priced, basis: Basis, policy: Policy
) -> None:
    closed = close(basis=basis, policy=policy)
    frozen = ClosedAmount.objects.filter(period=closed)
    found = rows(priced.window, basis=basis, policy=policy, **BY_TEAM)
    by_team = frozen.order_by().values_list("team__name").annotate(cost=Sum("cost"))
    sums: dict[str, int] = {}
    for row in found:
        sums[row.groups["team"]] = sums.get(row.groups["team"], 0) + (row.cost or 0)
    assert {name or "": int(cost) for name, cost in by_team} == sums
    assert closed.row_count == frozen.count()
    assert sorted(closed.files) == sorted(FileFormat)


def test_the_same_month_has_the_same_hashes_however_many_days_are_read_at_once(
    priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = close()
    reopen_period(OCTOBER, by=priced.portal.cleo, reason="to look again", now=NOW)
    price_hours(now=NOW)
    monkeypatch.setattr(cost_files, "MOST_ROWS_AT_ONCE", 1)
    second = close()
    assert (second.rows_sha256, second.files) == (first.rows_sha256, first.files)


def test_a_closing_that_was_cut_short_is_completed(priced: Priced) -> None:
    closed = close()
    ClosedPeriod.objects.update(files={})
    again = close()
    assert (again.pk, again.files) == (closed.pk, closed.files)
    assert ClosedAmount.objects.count() == closed.row_count


def _lose_an_hour(priced: Priced) -> None:
    CollectionWindow.objects.filter(hour=priced.window.start + timedelta(hours=3)).update(
        state="failed"
    )


def _collect_again(priced: Priced) -> None:
    CollectionWindow.objects.filter(hour=priced.window.start).update(collected_at=LATER)


def _change_a_price(priced: Priced) -> None:
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=7)


def _lose_a_price(priced: Priced) -> None:
    Price.objects.filter(gpu_model=H100).delete()
    price_hours(now=NOW)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(_lose_an_hour, "1 hour of east without data; 1 hour of west", id="missing"),
        pytest.param(_collect_again, "2 hours are not priced yet", id="facts not priced"),
        pytest.param(_change_a_price, "96 hours are not priced again yet", id="prices changed"),
        pytest.param(_lose_a_price, r"no price for 384.00 GPU-hours of NVIDIA-H100", id="unpriced"),
    ],
)
def test_a_month_with_gaps_is_closed_only_for_a_reason(
    priced: Priced, spoil: Any, said: str
) -> None:
    spoil(priced)
    with pytest.raises(CloseRefused, match=said):
        close()
    assert not ClosedPeriod.objects.exists()
    assert close(forced="the exporter was down").forced == "the exporter was down"


@pytest.mark.parametrize(
    ("month", "said"),
    [
        pytest.param(date(2026, 11, 1), "is not over", id="the current month"),
        pytest.param(date(2026, 9, 1), "has no data", id="a month without facts"),
    ],
)
def test_what_is_no_whole_month_is_not_closed(priced: Priced, month: date, said: str) -> None:
    with pytest.raises(CloseRefused, match=said):
        close_period(month, by="finn", now=NOW)


def test_a_month_is_closed_once_with_few_queries_for_its_days(
    priced: Priced, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(225):
        close()
    with pytest.raises(CloseRefused, match="closed already"):
        close()


# ---------------------------------------------------------------- afterwards


def test_a_price_change_never_changes_a_closed_month(priced: Priced) -> None:
    close()
    before, frozen = stored(), list(ClosedAmount.objects.values())
    october = rows(priced.window, **BY_TEAM)
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    assert price_hours(now=LATER) == 96
    assert stored() == before
    assert list(ClosedAmount.objects.values()) == frozen
    assert rows(priced.window, **BY_TEAM) == october
    booked = dict.fromkeys(("vision", "speech", "unassigned", ""), 0)
    for team, cost in corrections(priced):
        booked[team] += cost
    hours = TierHour.objects.filter(gpu_model__name=H100).aggregate(whole=Sum("capacity"))["whole"]
    assert abs(sum(booked.values()) - hours / 10**9 * 11999999) < 1000
    assert price_hours(now=LATER) == 0, "booked once"
    assert not booked["unassigned"], "it held none of these cards"


CHANGES = st.lists(
    st.tuples(
        st.sampled_from([model for model, _, _ in PRICES]),
        st.decimals(0, 50, places=4),
        st.integers(0, 47) | st.none(),
    ),
    min_size=1,
    max_size=3,
)


@examples(4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, charging=st.sampled_from(CHARGINGS))
def test_no_change_of_prices_changes_a_closed_month_and_all_of_it_is_booked(
    priced: Priced,
    changes: list[tuple[str, Decimal, int | None]],
    charging: tuple[Basis, Policy],
) -> None:
    basis, policy = charging
    with transaction.atomic():
        closed = close(basis=basis, policy=policy)
        before, frozen = stored(), list(ClosedAmount.objects.values())
        for model, amount, hours in changes:
            _reprice(priced, model, amount, hours)
            price_hours(now=LATER)
        assert stored() == before
        assert list(ClosedAmount.objects.values()) == frozen
        together = sum(
            table._default_manager.filter(period=closed).aggregate(cost=Sum("cost"))["cost"] or 0
            for table in (ClosedAmount, Adjustment)
        )
        reopen_period(OCTOBER, by=priced.portal.cleo, reason="to compare", now=LATER)
        price_hours(now=LATER)
        assert total(rows(priced.window, basis=basis, policy=policy)) == together
        transaction.set_rollback(True)


def _reprice(priced: Priced, model: str, amount: Decimal, hours: int | None) -> None:
    """Let a model cost an amount, from an hour of the window on or ever since."""
    if hours is None:
        Price.objects.filter(gpu_model=model).update(per_gpu_hour=amount)
        return
    since = priced.window.start + timedelta(hours=hours)
    for kind in {kind for known, kind, _ in PRICES if known == model}:
        Price.objects.update_or_create(
            gpu_model=model,
            capacity_type=kind,
            valid_from=since,
            defaults={"per_gpu_hour": amount, "currency": "USD"},
        )


def test_a_month_closed_in_another_time_zone_is_corrected_by_its_own_days(priced: Priced) -> None:
    close()
    ReportSettings.objects.update(time_zone="America/New_York")
    PricedHour.objects.update(rates="")
    before = rows(priced.window)
    assert price_hours(now=LATER) == 96
    assert not Adjustment.objects.exists(), "nothing is new"
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    price_hours(now=LATER)
    booked = Adjustment.objects.aggregate(cost=Sum("cost"))["cost"]
    hours = TierHour.objects.filter(gpu_model__name=H100).aggregate(whole=Sum("capacity"))["whole"]
    assert abs(booked - hours / 10**9 * 11999999) < 1000
    assert rows(priced.window) == before


def explain_booked(booked: AdjustmentRow, visibility: Visibility = EVERYTHING) -> Explained | None:
    return explain_adjustment(
        month=f"{booked.month:%Y-%m}",
        booked_on=booked.booked_on.isoformat(),
        currency=booked.currency or "",
        visibility=visibility,
    )


def test_late_facts_after_the_close_become_lines_of_the_open_month(priced: Priced) -> None:
    close()
    recollect(priced)
    assert price_hours(now=LATER) == 1
    found = rows(november(priced), interval=TimeStep.DAY, **BY_TEAM)
    moved = {row.cause.value: row.cost for row in found if row.correction}
    assert moved.keys() == {"busy", "not_running"}
    assert sum(cost or 0 for cost in moved.values()) == 0, "the same hours, of other causes"
    assert {row.period.date() for row in found if row.period} == {date(2026, 11, 2)}
    (booked, *_) = adjustment_rows(visibility=EVERYTHING)
    explained = explain_booked(booked)
    assert explained is not None
    assert explained.value == evaluate(explained) == money(booked.cost)
    assert len(explained.rows) == booked.row_count
    assert explain_booked(booked, Visibility(everything=False)) is None
    assert (booked.month, booked.booked_on, booked.currency) == (
        OCTOBER,
        date(2026, 11, 2),
        "USD",
    )


def test_what_comes_back_is_booked_back(priced: Priced) -> None:
    close()
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    price_hours(now=LATER)
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(PRICES[0][2]))
    price_hours(now=LATER)
    assert sum(cost for _, cost in corrections(priced)) == 0
    sums = Adjustment.objects.order_by().values("team", "cause", "day").annotate(left=Sum("cost"))
    assert {row["left"] for row in sums} == {0}


def test_frozen_and_all_adjustments_are_what_the_month_would_be_today(priced: Priced) -> None:
    closed = close(policy=Policy.USE)
    recollect(priced)
    Price.objects.filter(gpu_model=A100, capacity_type="spot").update(per_gpu_hour=Decimal("1.3"))
    price_hours(now=LATER)
    together = sum(
        table._default_manager.filter(period=closed).aggregate(cost=Sum("cost"))["cost"]
        for table in (ClosedAmount, Adjustment)
    )
    reopen_period(OCTOBER, by=priced.portal.cleo, reason="new contract", now=LATER)
    price_hours(now=LATER)
    assert total(rows(priced.window)) == together


def test_corrections_are_seen_by_whom_they_concern(priced: Priced) -> None:
    close()
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    price_hours(now=LATER)
    dan = visibility_of(priced.portal.dan)
    assert {team for team, _ in corrections(priced, visibility=dan)} == {"speech", ""}
    alone = corrections(priced, filters=Filters(team=("speech",)))
    assert alone == [c for c in corrections(priced) if c[0] == "speech"]


# ---------------------------------------------------------------- opening again


def test_only_an_admin_opens_a_month_again_and_says_why(priced: Priced) -> None:
    close()
    with pytest.raises(PermissionDenied):
        reopen_period(OCTOBER, by=priced.portal.finn, reason="please", now=NOW)
    with pytest.raises(CloseRefused, match="needs a reason"):
        reopen_period(OCTOBER, by=priced.portal.cleo, reason=" ", now=NOW)
    reopened = reopen_period(OCTOBER, by=priced.portal.cleo, reason="a wrong price", now=NOW)
    assert (reopened.reopened_by, reopened.reopen_reason) == ("cleo", "a wrong price")
    assert closed_period(OCTOBER) is None
    with pytest.raises(CloseRefused, match="is not closed"):
        reopen_period(OCTOBER, by=priced.portal.cleo, reason="again", now=NOW)


def test_a_reopened_month_is_priced_anew_and_its_corrections_go(priced: Priced) -> None:
    close()
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    price_hours(now=LATER)
    booked = sum(cost for _, cost in corrections(priced))
    before = total(rows(priced.window))
    reopen_period(OCTOBER, by=priced.portal.cleo, reason="a wrong price", now=LATER)
    assert corrections(priced) == []
    assert price_hours(now=LATER) == 96
    assert total(rows(priced.window)) == before + booked


def test_corrections_in_a_month_closed_meanwhile_are_taken_back_in_the_open_one(
    priced: Priced,
) -> None:
    close()
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    price_hours(now=LATER)
    december = datetime(2026, 12, 3, 12, tzinfo=UTC)
    # November has no facts of its own here; only that it is closed matters.
    window = november(priced)
    october = ClosedPeriod.objects.get()
    ClosedPeriod.objects.create(
        month=date(2026, 11, 1),
        start=window.start,
        end=window.end,
        time_zone=october.time_zone,
        currency="USD",
        basis=october.basis,
        policy=october.policy,
        price_book=october.price_book,
        rows_sha256="0" * 64,
        closed_at=december,
        closed_by="finn",
    )
    booked = dict(corrections(priced))
    reopen_period(OCTOBER, by=priced.portal.cleo, reason="a wrong price", now=december)
    assert dict(corrections(priced)) == booked, "a closed month stands"
    following = month_window(date(2026, 12, 1), priced.portal.zone)
    back = rows(following, interval=TimeStep.MONTH, **BY_TEAM)
    assert sum(row.cost or 0 for row in back) == -sum(cost for _, cost in corrections(priced))


# ---------------------------------------------------------------- states


def test_months_tell_their_state_and_what_they_lack(priced: Priced) -> None:
    (october,) = period_states(now=priced.window.end, visibility=EVERYTHING)[-1:]
    assert (october.month, october.state, bool(october.gaps)) == (OCTOBER, MonthState.OPEN, False)
    close(policy=Policy.ENTITLEMENT)
    states = period_states(now=NOW, visibility=EVERYTHING)
    assert [(s.month, s.state) for s in states] == [
        (date(2026, 11, 1), MonthState.CURRENT),
        (OCTOBER, MonthState.CLOSED),
    ]
    assert (states[1].policy, states[1].closed_by) == ("entitlement", "finn")
    reopen_period(OCTOBER, by=priced.portal.cleo, reason="once more", now=NOW)
    again = period_states(now=NOW, visibility=EVERYTHING)[1]
    assert (again.state, again.reopen_reason) == (MonthState.REOPENED, "once more")
    assert period_states(now=NOW, visibility=visibility_of(priced.portal.ada)) == []


def test_the_facts_are_collected_before_they_are_priced(priced: Priced) -> None:
    assert CollectionWindow.objects.exclude(collected_at=COLLECTED).count() == 0
    make_price(A100, "reserved", "1")
    assert price_hours(now=NOW) == 96, "a price that holds, for whatever pool, is looked at"
