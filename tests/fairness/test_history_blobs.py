"""Blobs of hours, days and weeks hold the same as their rows, however often they are made."""

from collections.abc import Sequence
from datetime import datetime

from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.fairness.domain.team_table import (
    TABLE_COLUMNS,
    TeamTable,
    decode_table,
    encode_table,
    sum_tables,
    table_of,
)
from apps.fairness.models import FairnessDay, TeamFairnessDay, TeamFairnessHour, TierTeamBlob
from apps.fairness.selectors import fairness_overview
from apps.fairness.selectors.window_sums import (
    CACHED_SUMS,
    BlobVersion,
    cached_sums,
    tier_names,
)
from apps.fairness.services import compute_hour, compute_hours, prune, roll_days
from tests.fairness.ledger import DAY, START, World, make_world
from tests.shared_rows import copy_of, shared

NOW = START + 8 * DAY
WEEK = Window(START, START + 7 * DAY)


def fill() -> World:
    """Return a world with one hour on each of eight days, from a Monday on, all rolled."""
    world = make_world()
    for number in range(8):
        world.hour(START + number * DAY, held={"vision": 6.0, "speech": 1.0})
    compute_hours(now=NOW)
    assert roll_days(now=NOW) == 8
    return world


_world = shared(fill)
world = copy_of("_world")


def rows_of(table: TeamTable) -> list[tuple[int, ...]]:
    return [
        (team, *amounts)
        for team, amounts in zip(table.teams.tolist(), table.amounts.T.tolist(), strict=True)
    ]


def stored(span: str, start: datetime) -> Sequence[tuple[int, ...]]:
    return rows_of(decode_table(TierTeamBlob.objects.get(span=span, start=start).teams))


def everything() -> list[tuple[object, ...]]:
    rows = TierTeamBlob.objects.order_by("span", "start", "tier")
    return [(*row[:3], bytes(row[3])) for row in rows.values_list("span", "start", "tier", "teams")]


def borrowed(window: Window = WEEK) -> float:
    (tier,) = fairness_overview(window, visibility=EVERYTHING).tiers
    return tier.borrowed_gpu_hours


def test_packs_of_hours_and_days_are_their_rows(world: World) -> None:
    hours = TeamFairnessHour.objects.filter(hour=START).order_by("team")
    assert stored(TierTeamBlob.HOUR, START) == list(hours.values_list("team", *TABLE_COLUMNS))
    days = TeamFairnessDay.objects.filter(day="2026-11-16").order_by("team")
    assert stored(TierTeamBlob.DAY, START) == list(days.values_list("team", *TABLE_COLUMNS))


def test_a_week_is_the_sum_of_its_days_once_all_are_rolled(world: World) -> None:
    (week,) = TierTeamBlob.objects.filter(span=TierTeamBlob.WEEK)
    assert week.start == START
    days = TierTeamBlob.objects.filter(span=TierTeamBlob.DAY, start__lt=WEEK.end)
    assert rows_of(decode_table(week.teams)) == rows_of(
        sum_tables([decode_table(row.teams) for row in days])
    )
    days.delete()
    TierTeamBlob.objects.filter(span=TierTeamBlob.HOUR).delete()
    TeamFairnessHour.objects.all().delete()
    TeamFairnessDay.objects.all().delete()
    assert borrowed() == 14.0


def test_making_packs_once_more_changes_nothing(world: World) -> None:
    before = everything()
    for number in (3, 0):
        compute_hour(START + number * DAY, now=NOW)
    assert roll_days(now=NOW) == 2
    assert everything() == before


def test_sums_of_whole_days_are_kept_until_one_of_them_changes(world: World) -> None:
    kept = borrowed()
    with CaptureQueriesContext(connection) as again:
        assert borrowed() == kept == 14.0
    assert not [query for query in again if '"teams"' in query["sql"]]
    world.hour(START + 2 * DAY, held={"vision": 8.0}, collected_at=NOW)
    compute_hours(now=NOW)
    assert roll_days(now=NOW) == 1
    assert borrowed() == 16.0


def test_sums_of_other_blobs_than_were_asked_for_are_not_kept(world: World) -> None:
    (week,) = TierTeamBlob.objects.filter(span=TierTeamBlob.WEEK)
    # As told by a database that is ahead of the one that is read.
    newer = frozenset({BlobVersion(week.span, week.start, week.pk + 1, 1)})
    tiers = tuple(tier_names())
    assert week.tier_id in cached_sums(newer, tiers)
    assert CACHED_SUMS == {}
    cached_sums(frozenset({BlobVersion(week.span, week.start, week.pk, 1)}), tiers)
    assert len(CACHED_SUMS) == 1


def test_a_day_that_changes_changes_its_week(world: World) -> None:
    world.hour(START + 2 * DAY, held={"vision": 8.0}, collected_at=NOW)
    compute_hours(now=NOW)
    # The week's blob is of before; while one of its days is not rolled nobody reads it.
    assert borrowed() == 16.0
    assert roll_days(now=NOW) == 1
    assert borrowed() == 16.0
    assert borrowed(Window(START, START + 2 * DAY)) == 4.0


def test_a_week_whose_days_are_not_all_rolled_again_has_no_pack(world: World) -> None:
    FairnessDay.objects.filter(day__in=["2026-11-16", "2026-11-18"]).update(rolled=False)
    assert roll_days(now=START + 2 * DAY) == 1
    assert not TierTeamBlob.objects.filter(span=TierTeamBlob.WEEK).exists()
    assert roll_days(now=NOW) == 1
    assert TierTeamBlob.objects.filter(span=TierTeamBlob.WEEK).count() == 1


def test_packs_of_hours_are_forgotten_after_some_days_and_others_never(world: World) -> None:
    prune(now=NOW)
    hours = TierTeamBlob.objects.filter(span=TierTeamBlob.HOUR).values_list("start", flat=True)
    assert sorted(hours) == [START + number * DAY for number in (5, 6, 7)]
    assert TierTeamBlob.objects.exclude(span=TierTeamBlob.HOUR).count() == 9
    prune(now=START + 200 * DAY)
    assert borrowed() == 14.0


def test_a_table_is_the_same_after_packing() -> None:
    table = table_of([(7, *range(6)), (2, *range(10, 16))])
    assert rows_of(decode_table(encode_table(table))) == [(2, *range(10, 16)), (7, *range(6))]
    assert rows_of(decode_table(encode_table(table_of(())))) == []


def test_sums_of_tables_are_exact_and_of_all_teams() -> None:
    large = 2**61
    tables = [
        table_of([(1, *[large] * 6), (3, *[1] * 6)]),
        table_of([(2, *[5] * 6), (1, *[1] * 6)]),
    ]
    found = rows_of(sum_tables(tables))
    assert found == [(1, *[large + 1] * 6), (2, *[5] * 6), (3, *[1] * 6)]
    assert rows_of(sum_tables([])) == []
