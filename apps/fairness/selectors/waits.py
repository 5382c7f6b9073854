"""Waiting times of teams by tier, and what waits or went without having started."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Q

from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace
from apps.clusters.selectors import team_spans
from apps.pending.domain.causes import Counts, Outcome
from apps.pending.domain.history import nearest_rank
from apps.pending.models import Episode
from apps.usage.selectors.plan import Seconds

_INSTANT = timedelta(seconds=1)
_WAITS = (Counts.PENDING.value, Counts.SUPPRESSED.value)


@dataclass(slots=True)
class TeamWaits:
    """Seconds → how many waits of that length ended by a start; and what did not."""

    ended: Counter[float] = field(default_factory=Counter)
    waiting_now: int = 0
    gave_up: int = 0

    def percentiles(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile, by nearest rank; None where none ended."""
        if not self.ended:
            return None, None
        p50, p95 = nearest_rank(self.ended, (0.5, 0.95))
        return p50, p95


def team_waits(
    window: Window, tiers: Collection[int], *, now: datetime
) -> Mapping[tuple[int, int], TeamWaits]:
    """Return the waits of (tier, team); whose namespaces are at the window's end. Six queries.

    A wait is that of a pod from its creation to its start, in whole seconds.
    """
    teams = _teams_at(window.end - _INSTANT)
    found: dict[tuple[int, int], TeamWaits] = defaultdict(TeamWaits)
    of_tiers = Episode.objects.filter(tier__in=tiers).order_by()
    keys = ("tier_id", "workload__namespace_id")
    over = of_tiers.filter(until__gte=window.start, until__lt=window.end)
    started = over.filter(kind="Pod", outcome=Outcome.STARTED.value)
    timed = started.annotate(wait=Seconds("until") - Seconds("since"))
    for tier, space, wait, count in timed.values_list(*keys, "wait").annotate(Count("pk")):
        found[tier, teams[space]].ended[float(wait)] += count
    at = min(window.end, now)
    lasting = Q(until__isnull=True) | Q(until__gt=at)
    waiting = of_tiers.filter(lasting, since__lte=at, counts__in=_WAITS)
    for tier, space, count in waiting.values_list(*keys).annotate(Count("pk")):
        found[tier, teams[space]].waiting_now += count
    gone = over.filter(outcome=Outcome.GAVE_UP.value).exclude(counts=Counts.NOTHING.value)
    for tier, space, count in gone.values_list(*keys).annotate(Count("pk")):
        found[tier, teams[space]].gave_up += count
    return found


def _teams_at(at: datetime) -> dict[int, int]:
    """Return whose each namespace is at a moment."""
    spaces = dict(Namespace.objects.order_by("pk").values_list("pk", "name"))
    spans = team_spans(Window(at, at + _INSTANT), set(spaces.values()))
    return {pk: spans[name][0].team_id for pk, name in spaces.items()}
