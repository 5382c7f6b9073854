"""Effects of recommendations as a replay of recorded demand found them.

Who replays knows more than costs do, and comes after them: it takes what is due, and hands back
what it found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Q

from apps.costs.domain.recommendations.idle_time import TIMEOUT_MINUTES
from apps.costs.domain.recommendations.recommendation import (
    REPLAYED_KINDS,
    ChangeValues,
    RecommendationKind,
    RecommendationState,
    change_values_of,
)
from apps.costs.models import Recommendation
from apps.quotas.domain.keys import QuotaSource

MOST_REPLAYED = 20
"""Of a cluster and run, those that save most: each takes a worker some seconds."""


class ReplayableChange(NamedTuple):
    """A recommended change of a team on a tier: an idle timeout in minutes, or its `change_values`.

    These are a lower limit, or one that is lent, of the ResourceQuota `quota` in the namespace. Or,
    of no team, another MIG layout of all GPUs of a `node`.
    """

    pk: int
    team: str
    tier: str
    minutes: float | None = None
    namespace: str = ""
    quota: str = ""
    node: str = ""
    change_values: ChangeValues | None = None


@dataclass(frozen=True, slots=True)
class ReplayedEffects:
    """What the change does to the recorded demand of so many days, in GPU-hours.

    `freed` is what ended work would have held; unmet is what all teams have pending on the tier,
    without and with the change. Of a MIG layout `freed` are compute slices that are in a MIG device
    only with it, in GPUs, and unmet is that of all tiers of the cluster.
    """

    replayed_days: float
    replayed_freed_gpu_hours: float
    replayed_unmet_before_gpu_hours: float
    replayed_unmet_after_gpu_hours: float


def take_replayable(cluster_id: int, *, since: datetime, now: datetime) -> list[ReplayableChange]:
    """Return open recommendations not replayed since then, and note that they are tried now."""
    due = Recommendation.objects.filter(
        Q(replayed_at__isnull=True) | Q(replayed_at__lt=since),
        cluster_id=cluster_id,
        kind__in=[kind.value for kind in REPLAYED_KINDS],
        state=RecommendationState.OPEN.value,
    ).filter(
        # A layout is that of a node: it is of no team and no tier.
        Q(team__isnull=False, tier__isnull=False) | Q(kind=RecommendationKind.MIG_LAYOUT.value)
    )
    with transaction.atomic():
        rows = list(
            due.select_for_update(of=("self",))
            .select_related("team", "tier")
            .order_by(F("saving_per_month").desc(nulls_last=True), "pk")[:MOST_REPLAYED]
        )
        # Before they are replayed: a worker that dies over one must not be sent after it for ever.
        Recommendation.objects.filter(pk__in=[row.pk for row in rows]).update(replayed_at=now)
    return [found for row in rows if (found := _replayable(row)) is not None]


def _replayable(row: Recommendation) -> ReplayableChange | None:
    """Return what a replay has to know; None for what it cannot express."""
    values = change_values_of(row.kind, row.change_values)
    if row.kind == RecommendationKind.MIG_LAYOUT.value:
        return values and ReplayableChange(row.pk, "", "", node=row.node, change_values=values)
    if row.team is None or row.tier is None:
        return None
    of = (row.pk, row.team.name, row.tier.name)
    if row.kind == RecommendationKind.IDLE_TIMEOUT.value:
        return ReplayableChange(*of, minutes=TIMEOUT_MINUTES)
    source, _, name = row.workload.partition("/")
    if source != QuotaSource.RESOURCE_QUOTA or values is None:
        return None
    return ReplayableChange(*of, namespace=row.namespace, quota=name, change_values=values)


def note_replayed_effects(effects: Mapping[int, ReplayedEffects]) -> None:
    """Keep what was replayed, by recommendation; one that is decided by now stays as it was."""
    for pk, found in effects.items():
        open_ones = Recommendation.objects.filter(pk=pk, state=RecommendationState.OPEN.value)
        open_ones.update(replay=asdict(found))


def forget_replayed_effects(pks: Sequence[int]) -> None:
    """Forget what was replayed: days that are known no longer must not be told as those of now."""
    Recommendation.objects.filter(pk__in=pks, state=RecommendationState.OPEN.value).update(
        replay=None
    )
