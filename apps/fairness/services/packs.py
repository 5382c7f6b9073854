"""Keeping what all teams of a tier come to as one value, for reads over all tiers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from apps.fairness.domain.team_table import PACKED, TeamTable, pack, summed, table_of, unpack
from apps.fairness.models import FairnessDay, TierTeamBlob
from apps.usage.services import insert, instant

_HOURS_KEPT = timedelta(days=3)
"""So many days after it ends the parts of a day are asked for; all of it is in its own pack."""
_WEEK_DAYS = 7

TeamRow = Sequence[Any]
"""(tier, team, *amounts), ordered by tier."""


def write_packs(
    span: str, start: datetime, rows: Iterable[TeamRow], columns: Sequence[str]
) -> None:
    """Replace the packs of one span; `columns` name the amounts of the rows."""
    chosen = [2 + columns.index(name) for name in PACKED]
    tables = {
        tier: table_of([(row[1], *(int(row[n]) for n in chosen)) for row in of_tier])
        for tier, of_tier in groupby(rows, key=itemgetter(0))
    }
    _replace(span, start, tables)


def lock_week(day: date) -> list[FairnessDay]:
    """Lock the dates of a day's week, that no two of its days are summed at once; return them."""
    first = day - timedelta(days=day.weekday())
    days = FairnessDay.objects.filter(day__gte=first, day__lt=first + timedelta(days=_WEEK_DAYS))
    return list(days.select_for_update().defer("held").order_by("day"))


def write_week(week: Sequence[FairnessDay]) -> None:
    """Sum the packs of a locked week if all its days are rolled; else it has none."""
    start = week[0].start
    if len(week) < _WEEK_DAYS or not all(date.rolled for date in week):
        TierTeamBlob.objects.filter(span=TierTeamBlob.WEEK, start=start).delete()
        return
    tables: dict[int, list[TeamTable]] = defaultdict(list)
    days = TierTeamBlob.objects.filter(
        span=TierTeamBlob.DAY, start__in=[date.start for date in week]
    )
    for tier, stored in days.order_by("tier", "start").values_list("tier_id", "teams"):
        tables[tier].append(unpack(stored))
    _replace(TierTeamBlob.WEEK, start, {tier: summed(found) for tier, found in tables.items()})


def prune_packs(*, now: datetime) -> None:
    """Delete the packs of hours of which the days' are enough."""
    TierTeamBlob.objects.filter(span=TierTeamBlob.HOUR, start__lt=now - _HOURS_KEPT).delete()


def _replace(span: str, start: datetime, tables: dict[int, TeamTable]) -> None:
    TierTeamBlob.objects.filter(span=span, start=start).delete()
    at = instant(start)
    insert(
        TierTeamBlob,
        ("span", "start", "tier_id", "teams"),
        [(span, at, tier, pack(table)) for tier, table in tables.items()],
    )
