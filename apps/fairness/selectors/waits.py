"""Waiting times of teams by tier, and what waits or went without having started."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace
from apps.clusters.selectors import team_spans
from apps.pending.domain.causes import Counts, Outcome
from apps.pending.domain.history import nearest_rank
from apps.pending.models import CauseSpell, Episode
from apps.pending.selectors.known import known_until
from apps.usage.selectors.plan import Seconds

_INSTANT = timedelta(seconds=1)
_POD = "Pod"
_WAITS = (Counts.PENDING.value, Counts.SUPPRESSED.value)
_MADE_WITHIN_SECONDS = 300
"""So long after work was let in its pods are made; later ones wait for themselves."""
_LAG = timedelta(hours=2)
"""Clusters without API access are known by the hour, some time after it has ended."""
_SPACE = "workload__namespace_id"


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
    """Return the waits of (tier, team); whose namespaces are at its end. Seven queries at most.

    A wait is that of a pod from its creation to its start, in whole seconds. Work that waited
    before it had all its pods (a Workload of Kueue, a group, a controller that was refused) waits
    once, until it is let in; the pods that are made for it then are not counted again.
    `waiting_now` counts what waited at the end of the window, or now, as it was at that moment.
    """
    teams = _teams_at(window.end - _INSTANT)
    found: dict[tuple[int, int], TeamWaits] = defaultdict(TeamWaits)
    over = Episode.objects.filter(
        tier__in=tiers, until__gte=window.start, until__lt=window.end
    ).order_by()
    timed = over.filter(_started() | _let_in()).annotate(wait=Seconds("until") - Seconds("since"))
    rows = timed.values_list("tier_id", _SPACE, "wait").annotate(Count("pk"))
    for tier, space, wait, count in rows:
        found[tier, teams[space]].ended[float(wait)] += count
    lasting = _spells_at(min(window.end, now)).filter(episode__tier__in=tiers)
    keys = ("episode__tier_id", f"episode__{_SPACE}")
    for tier, space, count in lasting.values_list(*keys).annotate(Count("pk")):
        found[tier, teams[space]].waiting_now += count
    gone = over.filter(outcome=Outcome.GAVE_UP.value).exclude(counts=Counts.NOTHING.value)
    for tier, space, count in gone.values_list("tier_id", _SPACE).annotate(Count("pk")):
        found[tier, teams[space]].gave_up += count
    return found


def _let_in() -> Q:
    """Return the condition on work that got in after it had waited beyond what pods it had."""
    alone = CauseSpell.objects.filter(
        episode=OuterRef("pk"), counts=Counts.SUPPRESSED.value, counted__gt=0
    )
    return Q(Exists(alone), outcome=Outcome.SETTLED.value) & ~Q(kind=_POD)


def _started() -> Q:
    """Return the condition on pods that started, but those made for work that was let in."""
    made_for = Episode.objects.filter(_let_in(), workload=OuterRef("workload"))
    same = made_for.annotate(latest=Seconds("until") + _MADE_WITHIN_SECONDS).filter(
        since__lte=OuterRef("since"), latest__gte=Seconds(OuterRef("since"))
    )
    return Q(~Exists(same.order_by()), kind=_POD, outcome=Outcome.STARTED.value)


def _spells_at(at: datetime) -> QuerySet[CauseSpell]:
    """Return what waited at a moment: an episode has one spell then, and counts as it says.

    What seemed to wait when its cluster was watched last, long before, may be over since.
    """
    unknown = [cluster for cluster, until in known_until().items() if until < at - _LAG]
    lasts = Q(end__gt=at) | (Q(end__isnull=True) & ~Q(episode__cluster__in=unknown))
    return CauseSpell.objects.filter(lasts, start__lte=at, counts__in=_WAITS).order_by()


def _teams_at(at: datetime) -> dict[int, int]:
    """Return whose each namespace is at a moment."""
    spaces = dict(Namespace.objects.order_by("pk").values_list("pk", "name"))
    spans = team_spans(Window(at, at + _INSTANT), set(spaces.values()))
    return {pk: spans[name][0].team_id for pk, name in spaces.items()}
