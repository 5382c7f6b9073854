"""One hour's fairness: from facts, promises and what waited to rows. One transaction."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Q

from apps.clusters.domain.calendar import day_of, day_window
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import Tier
from apps.clusters.selectors import report
from apps.fairness.domain.arrays import Array
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.integrate import Measured, TierSlots, measure
from apps.fairness.domain.whole import WholeSums, largest_loans, whole_sums
from apps.fairness.models import (
    FairnessDay,
    FairnessWindow,
    LoanHour,
    TeamFairnessHour,
    TierFairnessHour,
    TierTeamBlob,
)
from apps.fairness.services.demand import Waited, half_hours, read_waited, waits_digests
from apps.fairness.services.entitlements import EntitlementSpan
from apps.fairness.services.facts import (
    Halves,
    HourKnown,
    collections_digests,
    read_hour,
)
from apps.fairness.services.packs import write_packs
from apps.usage.domain.amounts import NANO
from apps.usage.services import gc_paused, insert, instant

LOANS_AT_MOST = 500
"""Pairs of a tier and hour; the sums of lenders and borrowers hold what they do not tell."""

_SUMS = (
    *("entitlement", "weight", "demand", "fair_share", "borrowed", "lent", "denied"),
    *("from_pool", "overdrawn"),
)
TEAM_AMOUNTS = (*_SUMS, "allocated", "idle")
TIER_AMOUNTS = ("capacity", "from_pool", "overdrawn", "borrowable")
_NOTHING = Halves(0, 0)


class HourForgotten(Exception):
    """The hours of its day were deleted after their retention; the day's sums are kept."""


def compute_hour(hour: datetime, *, now: datetime) -> int:
    """Compute the hour that begins at `hour`, of all tiers; return how many rows of teams.

    The same facts and waits give the same rows, in whatever order and however often hours are
    computed. Raises HourForgotten, and ValueError for what is no hour of facts.
    """
    window = Window.hour(hour)
    with gc_paused(), transaction.atomic():
        _lock_day(window.start)
        # What the rows are made of is noted before it is read: a change in between shows later.
        facts = collections_digests(Q(hour=window.start)).get(window.start, "")
        known = read_hour(window)
        waited = read_waited(window, half_hours(window))
        noted = {"facts": facts, "promises": known.mark, "watch": known.watch, "computed_at": now}
        noted["waits"] = waits_digests(waited, 1)[0]
        edges = known.edges(window)
        if len(edges) > 3:
            waited = read_waited(window, edges)
        count = _write(window, known, edges, waited)
        FairnessWindow.objects.update_or_create(hour=window.start, defaults=noted)
    return count


def _lock_day(at: datetime) -> None:
    """Lock the hour's local day until the transaction ends; its sums are to be made anew."""
    zone = report().zone
    local = day_of(at, zone)
    locked = FairnessDay.objects.select_for_update().defer("held").filter(day=local)
    day = locked.first()
    if day is None:
        span = day_window(local, zone)
        new = FairnessDay(day=local, start=span.start, end=span.end)
        FairnessDay.objects.bulk_create([new], ignore_conflicts=True)
        day = locked.get()
    if day.pruned:
        raise HourForgotten(f"the hours of {local} were deleted; its sums are kept")
    if day.rolled:
        FairnessDay.objects.filter(pk=day.pk).update(rolled=False)


@dataclass(frozen=True)
class _TierHour:
    """A tier of an hour, measured, and the teams that it is of."""

    tier: int
    teams: list[int]
    capacity: int
    allocated: list[int]
    idle: list[int]
    measured: Measured
    sums: WholeSums

    def team_rows(self, at: object) -> Iterator[tuple[Any, ...]]:
        columns = [getattr(self.sums, name).tolist() for name in _SUMS]
        for team, *values in zip(self.teams, *columns, self.allocated, self.idle, strict=True):
            if any(values):
                yield (at, self.tier, team, *values)

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
        for lender, borrower, amount in largest_loans(self.measured, at_most=LOANS_AT_MOST):
            yield (at, self.tier, self.teams[lender], self.teams[borrower], amount)


def _write(hour: Window, known: HourKnown, edges: Sequence[float], waited: Waited) -> int:
    """Replace the hour's rows; return how many of them are of teams."""
    waiting: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for (slot, tier, team), amount in waited.items():
        waiting[tier][team].append((slot, amount))
    tiers = sorted({*known.capacity, *known.held, *known.promises, *waiting})
    measured = [
        _measure(tier, known, edges, waiting[tier])
        for tier in tiers
        if known.state(tier) != HourState.MISSING.value
    ]
    every = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    for model in (TeamFairnessHour, TierFairnessHour, LoanHour):
        model._default_manager.filter(hour=hour.start, tier__in=every).delete()
    at = instant(hour.start)
    rows = [row for one in measured for row in one.team_rows(at)]
    insert(TeamFairnessHour, ("hour", "tier_id", "team_id", *TEAM_AMOUNTS), rows)
    write_packs(TierTeamBlob.HOUR, hour.start, (row[1:] for row in rows), TEAM_AMOUNTS)
    loans = [row for one in measured for row in one.loan_rows(at)]
    insert(LoanHour, ("hour", "tier_id", "lender_id", "borrower_id", "amount"), loans)
    of_tiers = {one.tier: one.tier_row() for one in measured}
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


def _measure(
    tier: int,
    known: HourKnown,
    edges: Sequence[float],
    waiting: Mapping[int, Sequence[tuple[int, int]]],
) -> _TierHour:
    held, promises = known.held.get(tier, {}), known.promises.get(tier, {})
    teams = sorted({*held, *promises, *waiting})
    amounts = [held[team].held if team in held else _NOTHING for team in teams]
    capacity = known.capacity.get(tier, _NOTHING)
    slots = np.array(edges)
    hours = np.diff(slots) / HOUR_SECONDS
    # The half in which each slot lies.
    half = (slots[:-1] >= edges[0] + HOUR_SECONDS / 2).astype(np.intp)
    room = _means([capacity])[half, 0]
    entitlement, weight = _promised(teams, promises, edges)
    measured = measure(
        TierSlots(
            hours=hours,
            capacity=room,
            entitlement=entitlement,
            weight=weight,
            held=_means(amounts)[half],
            pending=np.minimum(_pending(teams, waiting, hours), room[:, np.newaxis]),
        )
    )
    return _TierHour(
        tier=tier,
        teams=teams,
        capacity=capacity.whole,
        allocated=[amount.whole for amount in amounts],
        idle=[held[team].idle if team in held else 0 for team in teams],
        measured=measured,
        sums=whole_sums(measured),
    )


def _means(amounts: Sequence[Halves]) -> Array:
    """Return the GPU-equivalents of both halves: (2, amounts)."""
    first = np.array([amount.first for amount in amounts], dtype=np.float64)
    whole = np.array([amount.whole for amount in amounts], dtype=np.float64)
    return np.stack([first, np.maximum(0.0, whole - first)]) * (2 / NANO)


def _promised(
    teams: Sequence[int], promises: Mapping[int, Sequence[EntitlementSpan]], edges: Sequence[float]
) -> tuple[Array, Array]:
    """Return entitlements and weights: (slots, teams) each."""
    starts = edges[:-1]
    columns = [_in_slots(promises.get(team, ()), starts) for team in teams]
    table = np.array(columns, dtype=np.float64).reshape(len(teams), len(starts), 2)
    return table[:, :, 0].T.copy(), table[:, :, 1].T.copy()


def _in_slots(
    promises: Sequence[EntitlementSpan], starts: Sequence[float]
) -> Sequence[tuple[float, float]]:
    """Return (GPU-equivalents, weight) in each slot; a promise begins and ends with slots."""
    if len(promises) == 1 and promises[0].start <= starts[0] and promises[0].end > starts[-1]:
        return [promises[0][:2]] * len(starts)
    found = [(0.0, 0.0)] * len(starts)
    for promise in promises:
        for number, start in enumerate(starts):
            if promise.start <= start < promise.end:
                found[number] = promise[:2]
    return found


def _pending(
    teams: Sequence[int], waiting: Mapping[int, Sequence[tuple[int, int]]], hours: Array
) -> Array:
    """Return the mean GPU-equivalents that waited: (slots, teams)."""
    table = np.zeros((hours.size, len(teams)))
    for column, team in enumerate(teams):
        for slot, amount in waiting.get(team, ()):
            table[slot, column] += amount
    return table / (hours[:, np.newaxis] * NANO)
