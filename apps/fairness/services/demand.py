"""What waited, in whole nano-GPU-hours by slot, tier and team, as far as it counts for fairness."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django.db.models import Q

from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace
from apps.clusters.models.sql import UnixSeconds
from apps.clusters.selectors import team_spans
from apps.fairness.services.demand_sources import digest
from apps.pending.domain.demand import amount
from apps.pending.models import CauseInterval
from apps.pending.selectors import counted_causes, known_until


class PendingTeam(NamedTuple):
    """A team waiting for a tier in the slot of that number."""

    slot: int
    tier: int
    team: int


Waited = Mapping[PendingTeam, int]
"""Nano-GPU-hours; each part of an interval within a slot and under one team is rounded once."""


def counted_intervals() -> Q:
    """Return the condition on intervals that count for fairness; a tier must be known."""
    known_tier = Q(episode__tier__isnull=False) & ~Q(episode__tier__name=UNDETERMINED)
    return counted_causes() & known_tier


def read_waited(window: Window, edges: Sequence[float]) -> Waited:
    """Return what waited between edges (Unix seconds, ascending) within a window. Five queries.

    What still waits has waited until the last edge, but no longer than it was watched.
    """
    spans = _spans(window)
    known = {cluster: at.timestamp() for cluster, at in known_until().items()}
    found: dict[PendingTeam, int] = defaultdict(int)
    for cluster, tier, space, counted, start, end in _intervals(window):
        over = known.get(cluster, edges[-1]) if end is None else end
        for first, last, team in spans.get(space, ()):
            since = max(start, first, edges[0])
            until = min(over, last, edges[-1])
            slot = max(0, bisect_right(edges, since) - 1)
            while since < until:
                stop = min(until, edges[slot + 1])
                found[PendingTeam(slot, tier, team)] += amount(counted, stop - since)
                since, slot = stop, slot + 1
    return found


def _intervals(window: Window) -> Sequence[tuple[int, int, int, float, float, float | None]]:
    rows = CauseInterval.objects.filter(
        counted_intervals(), Q(end__isnull=True) | Q(end__gt=window.start), start__lt=window.end
    ).annotate(from_seconds=UnixSeconds("start"), to_seconds=UnixSeconds("end"))
    of = ("episode__cluster_id", "episode__tier_id", "episode__workload__namespace_id")
    return list(rows.order_by("pk").values_list(*of, "counted", "from_seconds", "to_seconds"))


def _spans(window: Window) -> dict[int, list[tuple[float, float, int]]]:
    """Return whose each namespace was: from and until (Unix seconds), team."""
    spaces = dict(Namespace.objects.order_by("pk").values_list("pk", "name"))
    by_name = {
        name: [(span.start.timestamp(), span.end.timestamp(), span.team_id) for span in spans]
        for name, spans in team_spans(window, set(spaces.values())).items()
    }
    # What has no namespace is of no team.
    return {pk: by_name[name] for pk, name in spaces.items() if name}


def half_hours(window: Window) -> list[float]:
    """Return the edges of a window's half-hour slots."""
    return [*map(float, window.slots()), window.end_seconds]


def waits_digests(waited: Waited, hours: int) -> list[str]:
    """Return a digest for each hour of what waited in its two slots; `waited` by half hours."""
    lines: list[list[str]] = [[] for _ in range(hours)]
    for who in sorted(waited):
        number, half = divmod(who.slot, 2)
        lines[number].append(f"{half} {who.tier} {who.team} {waited[who]}")
    return [digest(part) for part in lines]
