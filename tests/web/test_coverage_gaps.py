"""Pages say what nobody could tell of tiers that only claims give out."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Tier, TierRule, WatchCoverage
from apps.quotas.selectors import tier_commitments
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery, UsageRow
from apps.usage.models import TierDay, TierHour
from apps.usage.selectors import CoverageGap, gap_hours, gap_tiers, known_hours
from tests.factories import BEGINNING, make_cluster, make_model, note_collection
from tests.web.conftest import DAILY
from tests.web.pages import text_of
from tests.web.test_devices_page import words

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(START, START + 24 * HOUR)
PAGES = ["/", "/capacity/tiers/claimed/", "/capacity/teams/vision/", "/costs/", "/costs/waste/"]


def _tier(name: str = "claimed", **rule: object) -> Tier:
    tier = Tier.objects.create(name=name, position=9)
    given = {"sharing": "dra", "device_classes": ["gpu.nvidia.com"], "valid_from": BEGINNING}
    TierRule.objects.create(tier=tier, position=9, **{**given, **rule})
    return tier


def _seen(tier: Tier, cluster: Cluster, day: datetime) -> None:
    kind = {"gpu_model": make_model(), "capacity_type": "on-demand"}
    TierDay.objects.create(tier=tier, cluster=cluster, day=day.date(), **kind)


def _read(**values: object) -> list[CoverageGap]:
    return gap_tiers(WINDOW, visibility=EVERYTHING, **values)  # type: ignore[arg-type]


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Return a cluster with six hours of facts, watched since the fourth."""
    cluster = make_cluster("west")
    for number in range(6):
        note_collection(cluster, START + number * HOUR)
    since = START + 3.5 * HOUR
    WatchCoverage.objects.create(cluster=cluster, start=since, end=START + 30 * HOUR)
    return cluster


def test_hours_before_the_watch_tell_nothing_of_what_claims_give_out(cluster: Cluster) -> None:
    _tier()
    assert _read() == [CoverageGap(("claimed",), 3, START + 3.5 * HOUR)]
    assert _read(tiers=["gold"]) == []


def test_they_are_counted_by_cluster_and_tier(
    cluster: Cluster, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        assert gap_hours([WINDOW], visibility=EVERYTHING) == [{}]
    _tier()
    note_collection(make_cluster("east"), START)
    with django_assert_num_queries(5):
        (found,) = gap_hours([WINDOW], visibility=EVERYTHING)
    assert found == {("west", "claimed"): 3, ("east", "claimed"): 1}


@pytest.mark.parametrize("interval", [TimeStep.TOTAL, TimeStep.HOUR])
def test_hours_in_which_claims_are_known_are_counted(cluster: Cluster, interval: TimeStep) -> None:
    """Of six hours the last three are watched; tiers that series tell of have no count."""
    _tier()
    by = [Grouping.CLUSTER, Grouping.TIER]
    named = [("west", "claimed"), ("west", "gold")]
    at = None if interval is TimeStep.TOTAL else START + 4 * HOUR
    rows = [UsageRow(at, {"cluster": c, "tier": t}, Amounts()) for c, t in named]
    zone = ZoneInfo("UTC")
    count = 3 if at is None else 1
    assert known_hours(rows, UsageQuery(WINDOW, interval, by), zone=zone) == [count, None]
    assert known_hours(rows, UsageQuery(WINDOW, interval, by[:1]), zone=zone) == [None, None]


def test_the_hour_in_which_the_watch_began_is_not_known_as_a_whole(cluster: Cluster) -> None:
    tier, asked = _tier(), UsageQuery(WINDOW, TimeStep.TOTAL, [Grouping.TIER])
    row = UsageRow(None, {"tier": "claimed"}, Amounts())
    assert known_hours([row], asked, zone=ZoneInfo("UTC"), whole=True) == [2]
    # Of the fourth hour, half was watched: four of eight GPUs on average, which is no capacity.
    for hour, gpus in ((3, 4), (4, 8), (5, 8)):
        TierHour.objects.create(
            hour=START + hour * HOUR, cluster=cluster, tier=tier, gpu_model=make_model(),
            capacity_type="on-demand", capacity=gpus * NANO, unallocated=gpus * NANO,
        )  # fmt: skip
    assert tier_commitments(START + 6 * HOUR)["claimed"].capacity == 8
    assert "claimed" not in tier_commitments(START + 4 * HOUR)


def test_where_nobody_ever_watched_no_hour_tells_anything(cluster: Cluster) -> None:
    _tier()
    WatchCoverage.objects.all().delete()
    assert _read() == [CoverageGap(("claimed",), 6, None)]


def test_tiers_of_which_series_tell_are_told(cluster: Cluster) -> None:
    _tier(resources=["nvidia.com/gpu"])
    assert _read() == []


def test_a_cluster_that_never_had_them_withholds_nothing(cluster: Cluster) -> None:
    tier, east = _tier(), make_cluster("east")
    note_collection(east, START)
    _seen(tier, cluster, START)
    assert _read() == [CoverageGap(("claimed",), 3, START + 3.5 * HOUR)]


def test_older_facts_show_that_somebody_watched_before_what_is_kept(cluster: Cluster) -> None:
    _seen(_tier(), cluster, START - 72 * HOUR)
    assert _read() == []


def test_it_takes_four_queries_however_much_there_is(
    cluster: Cluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(4):
        _seen(_tier(f"claimed-{number}"), make_cluster(f"east-{number}"), START)
    with django_assert_max_num_queries(4):
        _read()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_says_that_its_sums_lack_it(path: str, admin: Client) -> None:
    _tier()
    WatchCoverage.objects.all().delete()
    said = words(text_of(admin, f"{path}?{DAILY}"))
    assert "Incomplete data: Totals of claimed exclude " in said
    assert ("and so do their costs" in said) is (path in {"/costs/", "/costs/waste/"})
    if path == "/capacity/tiers/claimed/":
        said = words(text_of(admin, f"{path}?{DAILY}&tab=teams"))
        assert "No data: no API server was watched in this window." in said
        assert "No team held" not in said


def test_budgets_say_what_their_periods_lack_of_claims(admin: Client) -> None:
    _tier()
    WatchCoverage.objects.all().delete()
    note_collection(make_cluster("claims"), timezone.now().replace(minute=0, second=0))
    said = words(text_of(admin, "/costs/budgets/"))
    assert "Totals of claimed exclude 1 h of the budgets' periods" in said


@pytest.mark.parametrize("path", PAGES[:1] + PAGES[2:])
def test_a_page_says_nothing_where_no_tier_is_of_claims(path: str, admin: Client) -> None:
    assert "Totals of claimed" not in text_of(admin, f"{path}?{DAILY}")
