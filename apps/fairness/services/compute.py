"""Compute the fairness of hours into rows, sum their days, and forget old hours."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import cached_property
from heapq import nsmallest
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import transaction
from django.db.models import Q, Sum
from django.db.models.query import QuerySet
from msgspec import Struct

from apps.clusters.domain.window import HOUR_SECONDS, Window, day_of, day_window
from apps.clusters.models import Cluster, Tier
from apps.clusters.selectors import report
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.measures import (
    Measured,
    NanoGpuHours,
    NanoSums,
    TierSlots,
    largest_loans,
    measure,
    nano_sums,
)
from apps.fairness.domain.shares import Array
from apps.fairness.domain.team_table import (
    TABLE_COLUMNS,
    TeamTable,
    decode_table,
    encode_table,
    sum_tables,
    table_of,
)
from apps.fairness.models import (
    FairnessDay,
    FairnessWindow,
    LoanDay,
    LoanHour,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
    TierTeamBlob,
)
from apps.fairness.selectors.window_sums import HOUR_COUNTS
from apps.fairness.services.demand import PendingAmounts, half_hours, pending_digests, read_pending
from apps.fairness.services.hour_inputs import (
    HourHalves,
    HourInputs,
    Ids,
    TeamAllocations,
    TierEntitlements,
    collections_digests,
    read_hour,
)
from apps.usage.domain.amounts import NANO
from apps.usage.models import TeamHour
from apps.usage.services import Rollup, day_value, insert, instant, sum_day
from gpuportal.garbage import gc_paused

_HOUR_RETENTION = timedelta(days=3)
"""Blobs of hours are kept as long; later pages read the blob of the whole day."""
_WEEK_DAYS = 7

TeamRow = Sequence[Any]
"""(tier, team, *amounts), ordered by tier."""
LOANS_AT_MOST = 500
"""Loans that are kept of a tier and hour; sums of lenders and borrowers include the others."""
_SUMS = (
    *("entitlement", "weight", "demand", "fair_share", "borrowed", "lent", "denied"),
    *("from_pool", "overdrawn"),
)
TEAM_AMOUNTS = (*_SUMS, "allocated", "idle")
TIER_AMOUNTS = ("capacity", "from_pool", "overdrawn", "borrowable")
_NOTHING = HourHalves(0, 0)
_NO_IDS: Ids = np.zeros(0, dtype=np.int64)
_NOBODY = TeamAllocations(_NO_IDS, _NO_IDS, _NO_IDS, _NO_IDS)
_NOBODY_ENTITLED = TierEntitlements(_NO_IDS, np.zeros(0), np.zeros(0), [])
_TEAMS = Rollup(TeamFairnessHour, TeamFairnessDay, ("tier_id", "team_id"), TEAM_AMOUNTS)
_TIERS = Rollup(
    TierFairnessHour,
    TierFairnessDay,
    ("tier_id",),
    TIER_AMOUNTS,
    HOUR_COUNTS,
)


def write_blobs(
    span: str, start: datetime, rows: Iterable[TeamRow], columns: Sequence[str]
) -> None:
    """Replace the blobs of one span; `columns` name the amounts of the rows."""
    chosen = itemgetter(1, *(2 + columns.index(name) for name in TABLE_COLUMNS))
    tables = {
        tier: table_of(list(map(chosen, of_tier)))
        for tier, of_tier in groupby(rows, key=itemgetter(0))
    }
    _replace_blobs(span, start, tables)


def lock_week(day: date) -> list[FairnessDay]:
    """Lock and return the days of a day's week, so that no two of them are summed at once."""
    first = day - timedelta(days=day.weekday())
    days = FairnessDay.objects.filter(day__gte=first, day__lt=first + timedelta(days=_WEEK_DAYS))
    return list(days.select_for_update().defer("held").order_by("day"))


def write_week(week: Sequence[FairnessDay]) -> None:
    """Sum the blobs of a locked week if all its days are rolled; else it has none."""
    start = week[0].start
    # A week that is stored nevertheless is of hours that have changed since.
    if len(week) < _WEEK_DAYS or not all(date.rolled for date in week):
        TierTeamBlob.objects.filter(span=TierTeamBlob.WEEK, start=start).delete()
        return
    tables: dict[int, list[TeamTable]] = defaultdict(list)
    days = TierTeamBlob.objects.filter(
        span=TierTeamBlob.DAY, start__in=[date.start for date in week]
    )
    for tier, stored in days.order_by("tier", "start").values_list("tier_id", "teams"):
        tables[tier].append(decode_table(stored))
    _replace_blobs(
        TierTeamBlob.WEEK, start, {tier: sum_tables(found) for tier, found in tables.items()}
    )


def prune_blobs(*, now: datetime) -> None:
    """Delete the blobs of hours that the blobs of their days replace."""
    TierTeamBlob.objects.filter(span=TierTeamBlob.HOUR, start__lt=now - _HOUR_RETENTION).delete()


def _replace_blobs(span: str, start: datetime, tables: dict[int, TeamTable]) -> None:
    TierTeamBlob.objects.filter(span=span, start=start).delete()
    at = instant(start)
    insert(
        TierTeamBlob,
        ("span", "start", "tier_id", "teams"),
        [(span, at, tier, encode_table(table)) for tier, table in tables.items()],
    )


class HourForgotten(Exception):
    """The hours of its day were deleted after their retention; the day's sums are kept."""


def compute_hour(hour: datetime, *, now: datetime) -> int:
    """Compute the hour that begins at `hour`, of all tiers; return how many rows of teams.

    The same facts and pending work give the same rows, in whatever order and however often hours
    are computed. Raises HourForgotten, and ValueError for what is no hour of facts.
    """
    window = Window.hour(hour)
    with gc_paused(), transaction.atomic():
        _lock_day(window.start)
        # What the rows are made of is noted before it is read: a change in between shows later.
        facts = collections_digests(Q(hour=window.start)).get(window.start, "")
        known = read_hour(window)
        waited = read_pending(window, half_hours(window))
        noted = {
            "facts": facts,
            "entitlements": known.mark,
            "watch": known.watch,
            "computed_at": now,
        }
        noted["waits"] = pending_digests(waited, 1)[0]
        edges = known.edges(window)
        # Three edges are the two half hours; more means that an entitlement changed within one.
        if len(edges) > 3:
            waited = read_pending(window, edges)
        count = _write_hour(window, known, edges, waited)
        FairnessWindow.objects.update_or_create(hour=window.start, defaults=noted)
    return count


def _lock_day(at: datetime) -> None:
    """Lock the hour's local day until the transaction ends; its sums are to be made anew."""
    zone = report().zone
    local = day_of(at, zone)
    # `held` has every team of the day: not to be read for each of its hours.
    locked = FairnessDay.objects.select_for_update().defer("held").filter(day=local)
    day = locked.first()
    if day is None:
        span = day_window(local, zone)
        new = FairnessDay(day=local, start=span.start, end=span.end)
        # Another worker may make the day at the same moment: the second read takes whichever won.
        FairnessDay.objects.bulk_create([new], ignore_conflicts=True)
        day = locked.get()
    if day.pruned:
        raise HourForgotten(f"the hours of {local} were deleted; its sums are kept")
    if day.rolled:
        FairnessDay.objects.filter(pk=day.pk).update(rolled=False)


class _TierHour(Struct, frozen=True, dict=True):
    """A tier of an hour, measured, and the teams that it is of."""

    tier: int
    teams: Ids
    capacity: int
    allocated: NanoGpuHours
    idle: NanoGpuHours
    measured: Measured
    sums: NanoSums

    @cached_property
    def _known(self) -> npt.NDArray[np.bool_]:
        """Whether a team has anything, one of each."""
        known: npt.NDArray[np.bool_] = np.any(self._amounts, axis=0)
        return known

    @cached_property
    def _amounts(self) -> list[NanoGpuHours]:
        """The values of TEAM_AMOUNTS, one of each team."""
        return [*(getattr(self.sums, name) for name in _SUMS), self.allocated, self.idle]

    def team_rows(self, at: object) -> Iterator[tuple[Any, ...]]:
        columns = [column[self._known].tolist() for column in (self.teams, *self._amounts)]
        return zip(repeat(at), repeat(self.tier), *columns, strict=False)

    def team_table(self) -> TeamTable:
        """Return the same rows as the table of their blob."""
        columns = [
            self.allocated if name == "allocated" else getattr(self.sums, name)
            for name in TABLE_COLUMNS
        ]
        return TeamTable(self.teams[self._known], np.array(columns, dtype=np.int64)[:, self._known])

    def tier_row(self) -> tuple[int, ...]:
        """Return the values of TIER_AMOUNTS."""
        sums = self.sums
        return (
            self.capacity,
            int(sums.from_pool.sum()),
            int(sums.overdrawn.sum()),
            sums.borrowable,
        )

    def loan_rows(self, at: object) -> Iterator[tuple[Any, ...]]:
        teams = self.teams.tolist()
        for lender, borrower, amount in largest_loans(self.measured, at_most=LOANS_AT_MOST):
            yield (at, self.tier, teams[lender], teams[borrower], amount)


def _write_hour(
    hour: Window, known: HourInputs, edges: Sequence[float], waited: PendingAmounts
) -> int:
    """Replace the hour's rows; return how many of them are of teams."""
    waiting: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (slot, tier, team), amount in waited.items():
        waiting[tier].append((slot, team, amount))
    tiers = sorted({*known.capacity, *known.held, *known.entitlements, *waiting})
    measured = [
        _measure_tier(tier, known, edges, waiting[tier])
        for tier in tiers
        if known.state(tier) != HourState.MISSING.value
    ]
    every = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    for model in (TeamFairnessHour, TierFairnessHour, LoanHour):
        # Naming all tiers makes the index on (tier, hour) serve; by hour alone the table is
        # scanned.
        model._default_manager.filter(hour=hour.start, tier__in=every).delete()
    at = instant(hour.start)
    rows = [row for one in measured for row in one.team_rows(at)]
    insert(TeamFairnessHour, ("hour", "tier_id", "team_id", *TEAM_AMOUNTS), rows)
    tables = {one.tier: one.team_table() for one in measured}
    _replace_blobs(
        TierTeamBlob.HOUR,
        hour.start,
        {tier: table for tier, table in tables.items() if table.teams.size},
    )
    loans = [row for one in measured for row in one.loan_rows(at)]
    insert(LoanHour, ("hour", "tier_id", "lender_id", "borrower_id", "amount"), loans)
    of_tiers = {one.tier: one.tier_row() for one in measured}
    # A missing tier has a row of zeros all the same: its state says that nothing is known.
    nothing = (0,) * len(TIER_AMOUNTS)
    insert(
        TierFairnessHour,
        ("hour", "tier_id", "state", "watched", *TIER_AMOUNTS),
        (
            (at, tier, known.state(tier), tier not in known.estimated, *of_tiers.get(tier, nothing))
            for tier in sorted({*tiers, *known.missing})
        ),
    )
    return len(rows)


def _measure_tier(
    tier: int,
    known: HourInputs,
    edges: Sequence[float],
    waiting: Sequence[tuple[int, int, int]],
) -> _TierHour:
    """Return a tier's hour; `waiting` is (slot, team, amount) of what is pending."""
    held = known.held.get(tier, _NOBODY)
    entitlements = known.entitlements.get(tier, _NOBODY_ENTITLED)
    changing = [span.team for span in entitlements.changing]
    pending = np.array(waiting, dtype=np.int64).reshape(-1, 3).T
    teams = np.unique(
        np.concatenate([held.teams, entitlements.teams, np.array(changing, np.int64), pending[1]])
    )
    whole, first, idle = np.zeros((3, teams.size), dtype=np.int64)
    holders = np.searchsorted(teams, held.teams)
    whole[holders], first[holders], idle[holders] = held.whole, held.first, held.idle
    capacity = known.capacity.get(tier, _NOTHING)
    slots = np.array(edges)
    hours = np.diff(slots) / HOUR_SECONDS
    # The half in which each slot lies.
    # Facts are kept by half hours: a slot cut by an entitlement has the mean of its half.
    half = (slots[:-1] >= edges[0] + HOUR_SECONDS / 2).astype(np.intp)
    room = _half_means(np.array([capacity.whole]), np.array([capacity.first]))[half, 0]
    entitlement, weight = _entitled(teams, entitlements, slots[:-1])
    waited = np.zeros((hours.size, teams.size))
    waited[pending[0], np.searchsorted(teams, pending[1])] = pending[2]
    measured = measure(
        TierSlots(
            hours=hours,
            capacity=room,
            entitlement=entitlement,
            weight=weight,
            held=_half_means(whole, first)[half],
            # More pending than the tier has can never be served, however it is divided.
            pending=np.minimum(waited / (hours[:, np.newaxis] * NANO), room[:, np.newaxis]),
        )
    )
    return _TierHour(
        tier=tier,
        teams=teams,
        capacity=capacity.whole,
        allocated=whole,
        idle=idle,
        measured=measured,
        sums=nano_sums(measured),
    )


def _half_means(whole: NanoGpuHours, first: NanoGpuHours) -> Array:
    """Return the GPU-equivalents of both halves: (2, amounts)."""
    in_first = first.astype(np.float64)
    return np.stack([in_first, np.maximum(0.0, whole - in_first)]) * (2 / NANO)


def _entitled(teams: Ids, entitlements: TierEntitlements, starts: Array) -> tuple[Array, Array]:
    """Return entitlements and weights: (slots, teams) each; slots begin at `starts`."""
    table = np.zeros((2, starts.size, teams.size))
    # Nearly every team: its columns are filled at once, without a look at each slot.
    lasting = np.searchsorted(teams, entitlements.teams)
    table[0][:, lasting], table[1][:, lasting] = entitlements.gpus, entitlements.weights
    for team, gpus, weight, start, end in entitlements.changing:
        # An entitlement begins and ends with slots.
        slots = (start <= starts) & (starts < end)
        column = np.searchsorted(teams, team)
        table[0][slots, column], table[1][slots, column] = gpus, weight
    return table[0], table[1]


def roll_days(*, now: datetime) -> int:
    """Sum the hours of every finished day whose hours changed; return how many days.

    Until then a day is read from its hours.
    """
    due = FairnessDay.objects.filter(rolled=False, pruned=False, end__lte=now).order_by("-day")
    return sum(roll_day(pk) for pk in list(due.values_list("pk", flat=True)))


@transaction.atomic
def roll_day(date_id: int) -> bool:
    """Sum one day; False when another process did so meanwhile."""
    week = lock_week(FairnessDay.objects.values_list("day", flat=True).get(pk=date_id))
    date = next(one for one in week if one.pk == date_id)
    if date.rolled or date.pruned:
        return False
    tiers = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    span = Window(date.start, date.end)
    rows = sum_day(_TEAMS, date.day, span, tier_id__in=tiers)
    sum_day(_TIERS, date.day, span, tier_id__in=tiers)
    loans = LoanHour.objects.filter(tier__in=tiers, hour__gte=date.start, hour__lt=date.end)
    LoanDay.objects.filter(day=date.day).delete()
    day = day_value(date.day)
    insert(
        LoanDay,
        ("day", "tier_id", "lender_id", "borrower_id", "amount"),
        [(day, *row) for row in _largest_loans(loans)],
    )
    FairnessDay.objects.filter(pk=date_id).update(rolled=True, held=_held_by_team(date))
    # `write_week` looks at these rows, which the update above does not change.
    date.rolled = True
    write_blobs(TierTeamBlob.DAY, date.start, rows, TEAM_AMOUNTS)
    write_week(week)
    return True


def _held_by_team(date: FairnessDay) -> dict[int, int]:
    """Return what each team held of all tiers, also in hours that miss a tier."""
    clusters = list(Cluster.objects.order_by("pk").values_list("pk", flat=True))
    facts = TeamHour.objects.filter(
        cluster__in=clusters, hour__gte=date.start, hour__lt=date.end, allocated__gt=0
    )
    sums = facts.order_by().values_list("team_id").annotate(Sum("allocated"))
    return {team: int(amount) for team, amount in sums.order_by("team_id")}


def _largest_loans(rows: QuerySet[LoanHour]) -> Iterable[tuple[int, int, int, int]]:
    """Yield (tier, lender, borrower, amount), of each tier the largest."""
    keys = ("tier_id", "lender_id", "borrower_id")
    by_tier: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    sums = rows.order_by().values_list(*keys).annotate(Sum("amount")).order_by(*keys)
    for tier, lender, borrower, amount in sums:
        by_tier[tier].append((-int(amount), lender, borrower))
    for tier in sorted(by_tier):
        # Amounts are negative, so that equal loans are chosen by id and not by chance.
        for amount, lender, borrower in nsmallest(LOANS_AT_MOST, by_tier[tier]):
            yield tier, lender, borrower, -amount


def prune(*, now: datetime) -> int:
    """Delete the hours of rolled days past the hourly retention; return how many days.

    Sums of days are kept for good.
    """
    prune_blobs(now=now)
    horizon = now - timedelta(days=settings.HOURLY_RETENTION_DAYS)
    due = FairnessDay.objects.filter(rolled=True, pruned=False, end__lt=horizon).order_by("day")
    return sum(_prune_day(pk) for pk in list(due.values_list("pk", flat=True)))


@transaction.atomic
def _prune_day(date_id: int) -> bool:
    date = FairnessDay.objects.select_for_update().defer("held").get(pk=date_id)
    # An hour computed since the list was read has unrolled its day: its hours are needed again.
    if not date.rolled or date.pruned:
        return False
    tiers = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    for model in (TeamFairnessHour, TierFairnessHour, LoanHour):
        model._default_manager.filter(
            tier__in=tiers, hour__gte=date.start, hour__lt=date.end
        ).delete()
    FairnessDay.objects.filter(pk=date_id).update(pruned=True)
    return True
