"""Sums of all tiers and teams over a window, read from packs as far as there are any."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from django.db.models import Q

from apps.clusters.domain.window import Window
from apps.fairness.domain.team_table import PACKED, TeamTable, summed, table_of, unpack
from apps.fairness.models import TierTeamBlob
from apps.fairness.selectors.measures.sums import Cover, Parts, conditions_of, team_sums
from apps.usage.selectors import rest_of

_HOUR = timedelta(hours=1)
_WEEK_DAYS = 7
_Day = tuple[date, datetime, datetime]
_Span = tuple[datetime, datetime]


@dataclass(slots=True)
class _Chosen:
    """Where packs of each span begin that together are as much of a window as they can be."""

    starts: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    days: list[_Day] = field(default_factory=list)
    gaps: list[_Span] = field(default_factory=list)


def packed_sums(
    window: Window, cover: Cover, tiers: Collection[int]
) -> tuple[dict[int, TeamTable], Parts]:
    """Return the sums of the teams of each tier that has any, and how else the window is read.

    What is in no pack is read by rows: days that were summed before there were packs, and hours
    of some days ago where a window begins or ends within one. Six queries, at most.
    """
    chosen = _chosen(window, cover)
    tables: dict[int, list[TeamTable]] = defaultdict(list)
    for tier, stored in _stored(chosen, tiers):
        tables[tier].append(unpack(stored))
    rest = conditions_of(Cover(chosen.days, chosen.gaps))
    for tier, teams in team_sums(rest, tiers, columns=PACKED).items():
        rows = [(team, *(getattr(own, name) for name in PACKED)) for team, own in teams.items()]
        if rows:
            tables[tier].append(table_of(rows))
    return {tier: summed(found) for tier, found in tables.items()}, conditions_of(cover)


def _stored(chosen: _Chosen, tiers: Collection[int]) -> Iterator[tuple[int, bytes | memoryview]]:
    where = Q()
    for span, starts in chosen.starts.items():
        where |= Q(span=span, start__in=starts)
    if not where:
        return
    rows = TierTeamBlob.objects.filter(where, tier__in=tiers).order_by()
    yield from rows.values_list("tier_id", "teams").iterator(chunk_size=200)


def _chosen(window: Window, cover: Cover) -> _Chosen:
    packs = TierTeamBlob.objects.filter(start__gte=window.start, start__lt=window.end).order_by()
    there: dict[str, set[datetime]] = defaultdict(set)
    for span, start in packs.values_list("span", "start").distinct():
        there[span].add(start)
    chosen = _Chosen()
    for days in _weeks(cover.days):
        start = days[0][1]
        if len(days) == _WEEK_DAYS and start in there[TierTeamBlob.WEEK]:
            chosen.starts[TierTeamBlob.WEEK].append(start)
            continue
        for day in days:
            if day[1] in there[TierTeamBlob.DAY]:
                chosen.starts[TierTeamBlob.DAY].append(day[1])
            else:
                chosen.days.append(day)
    for gap in cover.gaps:
        _add_hours(chosen, gap, sorted(there[TierTeamBlob.HOUR]))
    return chosen


def _weeks(days: Sequence[_Day]) -> Iterator[list[_Day]]:
    """Yield the days of each week, from Monday on."""
    by_week: dict[date, list[_Day]] = defaultdict(list)
    for day in days:
        by_week[day[0] - timedelta(days=day[0].weekday())].append(day)
    yield from by_week.values()


def _add_hours(chosen: _Chosen, gap: _Span, hours: Sequence[datetime]) -> None:
    own = [(hour, hour + _HOUR) for hour in hours if gap[0] <= hour < gap[1]]
    chosen.starts[TierTeamBlob.HOUR] += [start for start, _ in own]
    chosen.gaps += rest_of(Window(*gap), own)
