"""From collected days to recommendations: the lab's idle notebooks, what becomes of them."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.accounts.models import Team, User
from apps.accounts.permissions import EVERYTHING, NotAllowed, Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.costs.domain.recommendations.recommendation import RecommendationKind, RecommendationState
from apps.costs.models import (
    Price,
    Recommendation,
    RecommendationRun,
    WasteSum,
    WorkloadCostDay,
)
from apps.costs.selectors.explain_savings import explain_recommendation
from apps.costs.selectors.recommendations import (
    RecommendationFilters,
    RecommendationRow,
    recommendation_page,
    recommendation_sums,
    waste_covered,
)
from apps.costs.services import price_hours
from apps.costs.services.follow_up import follow_up_accepted
from apps.costs.services.recommendation_run import store_recommendations
from apps.costs.services.recommendations import (
    DecisionRefused,
    UnknownRecommendation,
    accept_recommendation,
    dismiss_recommendation,
    reopen_recommendation,
)
from apps.operations.services import load_catalog
from apps.usage.domain.explained import evaluate
from apps.usage.models import CollectionWindow, PodHour, WorkloadDay
from apps.usage.selectors import CursorRefused
from apps.usage.services import collect_window, roll_days
from simulator.catalog import catalog_yaml
from tests.factories import make_user
from tests.served_lab import scenario_of, served_lab
from tests.shared_rows import shared

pytestmark = pytest.mark.usefixtures("_collected", "db")

NOW = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
LAST_MIDNIGHT = datetime(2026, 11, 20, 23, tzinfo=UTC)
DAY = timedelta(days=1)
DAYS = 8
OPEN = RecommendationFilters()
ALL: Any = {"visibility": EVERYTHING}
A_NOTEBOOK = Decimal("2122.11")
"""730 hours × 95 % idle × 3.06 USD."""


def collect_days(days: int) -> None:
    """Collect the reference cluster up to the newest hour."""
    scenario = scenario_of("reference", NOW.timestamp())
    with served_lab(scenario, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        for back in range(days, 0, -1):
            start = LAST_MIDNIGHT - back * DAY
            collect_window("lab", Window(start, start + DAY), now=NOW)
        newest = Window(LAST_MIDNIGHT, LAST_MIDNIGHT + timedelta(hours=2))
        collect_window("lab", newest, now=NOW)
    roll_days(now=NOW)


def collect_and_price() -> None:
    collect_days(DAYS)
    price_hours(now=NOW)


_collected = shared(collect_and_price)


@pytest.fixture
def found() -> list[Recommendation]:
    """Return what is recommended, the largest saving first."""
    store_recommendations(now=NOW)
    return list(Recommendation.objects.order_by("-saving_per_month", "pk"))


@pytest.fixture
def admin() -> User:
    return make_user("cleo", Role.ADMIN)


def shown(
    filters: RecommendationFilters = OPEN, seen: Visibility = EVERYTHING
) -> tuple[RecommendationRow, ...]:
    return recommendation_page(filters=filters, visibility=seen, cursor=None, page_size=500).rows


def notebooks(found: Iterable[Recommendation]) -> list[Recommendation]:
    return [one for one in found if one.kind == RecommendationKind.STOP_IDLE_NOTEBOOK]


def again(days_later: int = 1) -> None:
    """Look once more, as if a day had passed."""
    RecommendationRun.objects.all().delete()
    store_recommendations(now=NOW + days_later * DAY)


# ---------------------------------------------------------------- what is found


def test_the_waste_is_that_of_the_days_with_data(found: list[Recommendation]) -> None:
    covered = waste_covered(filters=OPEN, visibility=EVERYTHING)
    assert (covered.first, covered.last) == (date(2026, 11, 13), date(2026, 11, 20))
    # Another cluster has days of its own.
    elsewhere = replace(OPEN, cluster=("nowhere",))
    of_none = waste_covered(filters=elsewhere, visibility=EVERYTHING)
    assert (of_none.first, of_none.last) == (None, None)


def test_one_workload_has_the_recommendations_of_its_own(found: list[Recommendation]) -> None:
    filters = replace(OPEN, workload=("StatefulSet/notebook-ada",))
    page = recommendation_page(filters=filters, visibility=EVERYTHING, cursor=None, page_size=9)
    assert {row.workload for row in page.rows} == {"StatefulSet/notebook-ada"}


def test_the_idle_notebooks_are_found_with_their_saving_at_the_price_in_force(
    found: list[Recommendation],
) -> None:
    idle = notebooks(found)
    assert sorted(one.workload for one in idle) == [
        f"StatefulSet/notebook-{name}" for name in ("ada", "ben", "cleo", "dan")
    ]
    assert {one.saving_per_month for one in idle} == {A_NOTEBOOK}
    # The worked example: 3.8 idle GPU-equivalents are 8,488.44 USD a month.
    assert sum(one.saving_per_month or 0 for one in idle) == Decimal("8488.44")
    assert {one.currency for one in idle} == {"USD"}
    assert idle[0].evidence["price_per_gpu_hour"] == "3.06000000"
    assert idle[0].patch.startswith("kubectl --namespace ")


def test_a_service_that_needs_half_a_gpu_is_told_the_profile_that_holds_it(
    found: list[Recommendation],
) -> None:
    profiles = {one.workload: one for one in found if one.kind == RecommendationKind.MIG_PROFILE}
    service = profiles["Deployment/ocr-serve"]
    assert service.evidence["profile"] == "3g.40gb"
    assert service.evidence["p95_activity"] == 0.15
    assert service.evidence["memory_peak_mib"] == 20480
    assert service.saving_per_month == Decimal("1276.46"), "4/7 of 730 hours at 3.06"
    assert '"nvidia.com/mig-3g.40gb": 1' in service.patch


def test_busy_training_is_left_alone(found: list[Recommendation]) -> None:
    assert not [one for one in found if one.workload.startswith("Job/")]


def test_each_saving_is_gpu_hours_times_price(found: list[Recommendation]) -> None:
    assert {one.kind for one in found} >= {
        RecommendationKind.STOP_IDLE_NOTEBOOK,
        RecommendationKind.MIG_PROFILE,
    }
    for row in found:
        one = explain_recommendation(row.pk, visibility=EVERYTHING)
        assert one is not None
        assert one.value == row.saving_per_month == evaluate(one)
        assert [line.per_gpu_hour for line in one.prices] == [Decimal("3.06")]
        if row.kind != RecommendationKind.IDLE_TIMEOUT:
            held = sum(line["allocated"] for line in one.rows)
            assert held == pytest.approx(row.evidence["gpu_hours"], abs=1e-3)


def test_a_higher_price_saves_more() -> None:
    Price.objects.update(per_gpu_hour=Decimal("6.12"))
    store_recommendations(now=NOW)
    saved = {one.saving_per_month for one in notebooks(Recommendation.objects.all())}
    assert saved == {2 * A_NOTEBOOK}


def test_without_a_price_the_saving_is_not_known_and_never_zero() -> None:
    Price.objects.all().delete()
    store_recommendations(now=NOW)
    assert {one.saving_per_month for one in Recommendation.objects.all()} == {None}
    assert [one.saving_per_month for one in recommendation_sums(filters=OPEN, **ALL)] == [None]


def test_nothing_is_recommended_of_what_was_not_measured() -> None:
    unmeasured = WorkloadDay.objects.filter(workload__name="notebook-ada")
    unmeasured.update(unmeasured=F("idle") + F("busy"), idle=0, busy=0)
    store_recommendations(now=NOW)
    named = {one.workload for one in Recommendation.objects.all()}
    assert "StatefulSet/notebook-ada" not in named
    assert "StatefulSet/notebook-ben" in named


def test_nothing_is_recommended_from_less_than_seven_days() -> None:
    CollectionWindow.objects.filter(hour__lt=LAST_MIDNIGHT - 6 * DAY).delete()
    assert store_recommendations(now=NOW) == 0
    assert not Recommendation.objects.exists()


def test_a_notebook_that_works_now_is_not_to_be_stopped() -> None:
    busy = PodHour.objects.filter(workload__name="notebook-ada", hour__gte=LAST_MIDNIGHT)
    busy.update(underused=F("idle"), idle=0)
    store_recommendations(now=NOW)
    assert "StatefulSet/notebook-ada" not in {
        one.workload for one in notebooks(Recommendation.objects.all())
    }


def test_when_nothing_new_was_collected_nothing_is_idle_up_to_now() -> None:
    store_recommendations(now=NOW + timedelta(hours=12))
    assert notebooks(Recommendation.objects.all()) == []


# ---------------------------------------------------------------- one row over time


def test_a_day_is_looked_at_once(found: list[Recommendation]) -> None:
    assert store_recommendations(now=NOW + timedelta(hours=1)) == 0
    assert Recommendation.objects.count() == len(found)


def test_what_is_found_again_is_the_same_row(found: list[Recommendation]) -> None:
    again(0)
    now = {one.pk: one for one in Recommendation.objects.all()}
    assert now.keys() == {one.pk for one in found}


def test_of_a_subjects_alternatives_one_is_counted(found: list[Recommendation]) -> None:
    alike = [one for one in found if one.workload == "StatefulSet/notebook-ada"]
    assert len(alike) == 2
    assert [one.alternative for one in alike] == [True, True], "its team's time-out saves more"
    (one,) = recommendation_sums(filters=OPEN, **ALL)
    assert one.saving_per_month == sum(
        (row.saving_per_month or Decimal(0) for row in found if not row.alternative), Decimal(0)
    )


def test_what_is_not_found_any_more_is_gone_and_may_come_back(
    found: list[Recommendation],
) -> None:
    Price.objects.update(per_gpu_hour=Decimal("0.0001"))
    again(0)
    assert set(Recommendation.objects.values_list("state", flat=True)) == {RecommendationState.GONE}
    Price.objects.update(per_gpu_hour=Decimal("3.06"))
    again(0)
    assert set(Recommendation.objects.values_list("state", flat=True)) == {RecommendationState.OPEN}


def test_of_a_retired_cluster_nothing_is_recommended(found: list[Recommendation]) -> None:
    assert WasteSum.objects.exists()
    Cluster.objects.update(active=False)
    store_recommendations(now=NOW + DAY)
    assert set(Recommendation.objects.values_list("state", flat=True)) == {RecommendationState.GONE}
    assert not WasteSum.objects.exists()
    Cluster.objects.update(active=True)
    store_recommendations(now=NOW)
    assert set(Recommendation.objects.values_list("state", flat=True)) == {RecommendationState.OPEN}


# ---------------------------------------------------------------- deciding


def test_what_was_dismissed_for_a_reason_stays_so_and_counts_no_more(
    found: list[Recommendation], admin: User
) -> None:
    one = notebooks(found)[0]
    for policy in Recommendation.objects.filter(kind=RecommendationKind.IDLE_TIMEOUT.value):
        dismiss_recommendation(admin, policy.pk, "Nobody wants it.", now=NOW)
    dismiss_recommendation(admin, one.pk, " Needed for the review. ", now=NOW)
    again(0)
    one.refresh_from_db()
    assert (one.state, one.dismiss_reason) == (
        RecommendationState.DISMISSED,
        "Needed for the review.",
    )
    assert one.pk not in {row.pk for row in shown()}
    other = Recommendation.objects.get(workload=one.workload, kind=RecommendationKind.MIG_PROFILE)
    assert not other.alternative, "it is the best of what is left"


@pytest.mark.parametrize("reason", ["", "  ", "\0", "x" * 1001])
def test_a_dismissal_needs_a_reason(reason: str, found: list[Recommendation], admin: User) -> None:
    with pytest.raises(DecisionRefused):
        dismiss_recommendation(admin, found[0].pk, reason, now=NOW)


def test_leads_and_admins_decide_and_nobody_else(found: list[Recommendation]) -> None:
    team = Team.objects.get(name="vision")
    one = next(one for one in notebooks(found) if one.team == team)
    lead = make_user("lead", leads=[team])
    with pytest.raises(NotAllowed):
        accept_recommendation(make_user("member", teams=[team]), one.pk, now=NOW)
    with pytest.raises(NotAllowed):
        accept_recommendation(make_user("finance", Role.FINANCE), one.pk, now=NOW)
    with pytest.raises(UnknownRecommendation):
        accept_recommendation(make_user("outsider"), one.pk, now=NOW)
    accept_recommendation(lead, one.pk, now=NOW)
    reopen_recommendation(lead, one.pk, now=NOW)
    one.refresh_from_db()
    assert (one.state, one.decided_by) == (RecommendationState.OPEN, "lead")


def test_what_is_gone_is_not_decided(found: list[Recommendation], admin: User) -> None:
    Recommendation.objects.update(state=RecommendationState.GONE.value)
    with pytest.raises(DecisionRefused):
        accept_recommendation(admin, found[0].pk, now=NOW)


# ---------------------------------------------------------------- did the saving come?


def accepted_days_ago(one: Recommendation, admin: User, days: int) -> None:
    """Accept one as if it had been so many days ago, when it cost what it costs."""
    accept_recommendation(admin, one.pk, now=NOW)
    Recommendation.objects.filter(workload=one.workload).update(decided_at=NOW - days * DAY)


def test_what_it_cost_before_is_kept_with_the_acceptance(
    found: list[Recommendation], admin: User
) -> None:
    one = notebooks(found)[0]
    accept_recommendation(admin, one.pk, now=NOW)
    one.refresh_from_db()
    assert one.cost_before == DAYS * 24 * Decimal("3.06")
    assert one.days_before == DAYS


def test_a_notebook_that_was_stopped_saved_what_it_cost(
    found: list[Recommendation], admin: User
) -> None:
    one = notebooks(found)[0]
    accepted_days_ago(one, admin, 9)
    WorkloadCostDay.objects.filter(workload__name=one.workload.partition("/")[2]).delete()
    assert follow_up_accepted(now=NOW) == 1
    one.refresh_from_db()
    assert (one.state, one.verdict) == (RecommendationState.DONE, "came")
    assert one.cost_after == 0
    assert one.saved_per_month == Decimal("2233.80"), "730 hours at 3.06"


def test_one_that_goes_on_did_not_save_anything(found: list[Recommendation], admin: User) -> None:
    one = notebooks(found)[0]
    accepted_days_ago(one, admin, 9)
    follow_up_accepted(now=NOW)
    one.refresh_from_db()
    assert (one.state, one.verdict) == (RecommendationState.ACCEPTED, "did-not-come")
    assert one.saved_per_month == 0


def test_before_seven_days_nothing_is_said(found: list[Recommendation], admin: User) -> None:
    one = notebooks(found)[0]
    accepted_days_ago(one, admin, 3)
    follow_up_accepted(now=NOW)
    one.refresh_from_db()
    assert (one.verdict, one.saved_per_month) == ("too-early", None)


def test_the_figures_of_what_was_accepted_stand_still(
    found: list[Recommendation], admin: User
) -> None:
    one = notebooks(found)[0]
    accept_recommendation(admin, one.pk, now=NOW)
    Price.objects.update(per_gpu_hour=Decimal("6.12"))
    again(0)
    one.refresh_from_db()
    assert one.saving_per_month == A_NOTEBOOK


# ---------------------------------------------------------------- who sees what


def test_people_see_those_of_their_teams(found: list[Recommendation]) -> None:
    vision = Team.objects.get(name="vision")
    ben = make_user("ben", teams=[vision])
    rows = shown(seen=visibility_of(ben))
    assert rows
    assert {row.team for row in rows} == {"vision"}
    assert shown(seen=visibility_of(make_user("dan"))) == ()
    assert len(shown(seen=visibility_of(make_user("finn", Role.FINANCE)))) == len(found)


def test_pages_hold_every_row_once_largest_saving_first(found: list[Recommendation]) -> None:
    Recommendation.objects.filter(pk=found[3].pk).update(saving_per_month=None, currency="")
    cursor: str | None = None
    rows: list[RecommendationRow] = []
    for _ in found:
        page = recommendation_page(filters=OPEN, cursor=cursor, page_size=3, **ALL)
        rows += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [row.pk for row in rows] == [row.pk for row in shown()]
    assert rows[-1].saving_per_month is None
    savings = [row.saving_per_month for row in rows if row.saving_per_month is not None]
    assert savings == sorted(savings, reverse=True)


@pytest.mark.parametrize("cursor", ["x", "W10", "WyJyZWNvbW1lbmRhdGlvbnMiLCJuYW4iLDFd"])
def test_a_strange_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(CursorRefused):
        recommendation_page(filters=OPEN, cursor=cursor, page_size=3, **ALL)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"kind": (RecommendationKind.STOP_IDLE_NOTEBOOK.value,)}, 4),
        ({"tier": ("exclusive-a100",)}, 23),
        ({"tier": ("other",)}, 0),
        ({"state": (RecommendationState.DONE.value,)}, 0),
        ({"namespace": ("vision",), "kind": (RecommendationKind.STOP_IDLE_NOTEBOOK.value,)}, 2),
    ],
    ids=lambda value: str(value),
)
def test_filters(
    filters: dict[str, tuple[str, ...]], count: int, found: list[Recommendation]
) -> None:
    assert len(shown(RecommendationFilters(**filters))) == count


def test_a_list_is_one_query_however_long(
    found: list[Recommendation], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        shown()
    with django_assert_num_queries(1):
        recommendation_sums(filters=OPEN, **ALL)


def test_looking_at_a_cluster_takes_a_known_number_of_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_max_num_queries(59):
        store_recommendations(now=NOW)
