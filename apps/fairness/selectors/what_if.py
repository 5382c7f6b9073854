"""What if: the work of a window replayed against other entitlements, capacity or tiers."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.models import Namespace, Pod
from apps.clusters.selectors import team_spans
from apps.clusters.services.unix_seconds import UnixSeconds
from apps.fairness.domain.layout import Change, Layout, TierPlan
from apps.fairness.domain.replay import Work
from apps.fairness.domain.whatif import TierOutcome
from apps.fairness.domain.whatif import what_if as replayed
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.rows import OutcomeRow, TierOutcomeRow, WhatIfReport
from apps.fairness.selectors.sums import parts_of, tier_sums
from apps.pending.models import Episode
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import hours

LONGEST = timedelta(days=31)
_INSTANT = timedelta(seconds=1)
_CLAIM = "ResourceClaim"
_READ_FROM = (
    "A tier's capacity is its mean over the window; entitlements are those at its end.",
    "A pod is its own work; pods of one job are started one by one.",
)


class WindowTooLong(ValueError):
    """A replay is of 31 days at most."""


def what_if(window: Window, changes: Sequence[Change], *, visibility: Visibility) -> WhatIfReport:
    """Replay the window's work of all tiers as it was and after the changes; GPU-hours, waits.

    Work is what the pod ledger knows: what waited, ran or came within the window. Sums of GPUs of
    teams, which everybody may see: `visibility` narrows nothing. Raises WindowTooLong, and
    ChangeImpossible where a change names what there is not. At most twelve queries.
    """
    if window.end - window.start > LONGEST:
        raise WindowTooLong(f"what-if looks at {LONGEST.days} days at most")
    tiers, names = tier_names(), team_names()
    layout = _layout(window, tiers, names)
    works = [work for work in _works(window, tiers) if work.tier in layout]
    found = replayed(works, layout, changes, edges=_edges(window))
    order = [name for name in tiers.values() if name in layout]
    return WhatIfReport(
        window=window,
        changes=tuple(changes),
        told=found.changes,
        before=tuple(_tier_row(name, found.before[name]) for name in order),
        after=tuple(_tier_row(name, found.after[name]) for name in order),
        assumptions=(*_READ_FROM, *found.assumptions),
    )


def _edges(window: Window) -> list[float]:
    edges = np.arange(window.start_seconds, window.end_seconds, SLOT_SECONDS).tolist()
    return [*map(float, edges), window.end_seconds]


def _layout(window: Window, tiers: Mapping[int, str], names: Mapping[int, str]) -> Layout:
    """Return the plans of tiers with capacity in the window, and of those promised to anybody."""
    sums = tier_sums(parts_of(window), tiers)
    at = window.end - _INSTANT
    holds = Q(valid_to__isnull=True) | Q(valid_to__gt=at)
    entitled: dict[int, dict[str, tuple[float, float]]] = {tier: {} for tier in tiers}
    rows = Entitlement.objects.filter(holds, valid_from__lte=at, tier__in=tiers).order_by("pk")
    for tier, team, gpus, weight in rows.values_list("tier_id", "team_id", "gpus", "weight"):
        entitled[tier][names.get(team, UNASSIGNED)] = (gpus, weight)
    return {
        name: TierPlan(
            capacity=hours(sums[tier].capacity) / sums[tier].known
            if tier in sums and sums[tier].known
            else 0.0,
            entitlements={team: gpus for team, (gpus, _) in entitled[tier].items()},
            weights={team: weight for team, (_, weight) in entitled[tier].items()},
        )
        for tier, name in tiers.items()
        if name != UNDETERMINED and (tier in sums or entitled[tier])
    }


class _Row(NamedTuple):
    """A pod of the ledger; times are Unix seconds."""

    uid: str
    namespace: str
    tier: int | None
    gpus: float
    created: float
    bound: float | None
    ended: float | None


def _works(window: Window, tiers: Mapping[int, str]) -> list[Work]:
    rows = _pods(window)
    asked = _asked_tiers(window) if any(row.tier is None for row in rows) else {}
    names = set(Namespace.objects.order_by("pk").values_list("name", flat=True))
    spans = team_spans(window, names)
    works = []
    for row in rows:
        tier, gpus = row.tier, row.gpus
        if tier is None:
            tier, gpus = asked.get(row.uid, (None, 0.0))
        if tier is None or gpus <= 0:
            continue
        at = max(window.start_seconds, row.created)
        span = next(s for s in spans[row.namespace] if s.end.timestamp() > at)
        works.append(_work(row, span.team, tiers[tier], gpus, window))
    return works


def _work(row: _Row, team: str, tier: str, gpus: float, window: Window) -> Work:
    start, end = window.start_seconds, window.end_seconds
    running = row.bound is not None and row.bound < start
    began = start if running else row.bound
    over = row.ended if row.ended is not None and row.ended < end else None
    return Work(
        team=team,
        tier=tier,
        gpus=gpus,
        asked_at=row.created,
        runs_seconds=None if began is None or row.ended is None else max(0.0, row.ended - began),
        leaves_at=over if row.bound is None else None,
        running=running,
    )


def _pods(window: Window) -> list[_Row]:
    """Return the pods that waited or held within the window; claims are their pods' holding."""
    lived = Q(ended_at__isnull=True) | Q(ended_at__gt=window.start)
    rows = Pod.objects.filter(lived, created_at__lt=window.end).exclude(workload__kind=_CLAIM)
    timed = rows.annotate(
        created=UnixSeconds("created_at"),
        bound=UnixSeconds("bound_at"),
        end=UnixSeconds("ended_at"),
    )
    columns = ("uid", "workload__namespace__name", "tier_id", "gpu_equivalents")
    found = timed.order_by("created_at", "pk").values_list(*columns, "created", "bound", "end")
    return [_Row(*row) for row in found]


def _asked_tiers(window: Window) -> dict[str, tuple[int | None, float]]:
    """Return the tier and GPU-equivalents of pods that waited, by uid: not all were bound."""
    rows = Episode.objects.filter(
        Q(until__isnull=True) | Q(until__gt=window.start), since__lt=window.end, kind="Pod"
    ).order_by("since", "pk")
    return {
        uid: (tier, gpus)
        for uid, tier, gpus in rows.values_list("uid", "tier_id", "gpu_equivalents")
    }


def _tier_row(name: str, outcome: TierOutcome) -> TierOutcomeRow:
    sums = outcome.sums
    rows = []
    for number, team in enumerate(outcome.teams):
        waits = outcome.waits[team]
        rows.append(
            OutcomeRow(
                tier=name,
                team=team,
                entitlement_gpu_hours=float(sums.entitlement[number]),
                demand_gpu_hours=float(sums.demand[number]),
                fair_share_gpu_hours=float(sums.fair_share[number]),
                allocated_gpu_hours=float(sums.allocated[number]),
                borrowed_gpu_hours=float(sums.borrowed[number]),
                denied_gpu_hours=float(sums.denied[number]),
                wait_p50_seconds=waits.p50_seconds,
                wait_p95_seconds=waits.p95_seconds,
                waits_ended=waits.ended,
                waiting_now=waits.waiting_now,
                gave_up=waits.gave_up,
            )
        )
    return TierOutcomeRow(
        tier=name,
        capacity_gpu_hours=sums.capacity,
        allocated_gpu_hours=float(sums.allocated.sum()),
        denied_gpu_hours=float(sums.denied.sum()),
        jain_index=sums.jain_index,
        teams=tuple(rows),
    )
