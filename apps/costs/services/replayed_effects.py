"""Effects of recommendations as a replay of recorded demand found them.

Who replays knows more than costs do, and comes after them: it takes what is due, and hands back
what it found.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q
from msgspec import Struct
from msgspec.structs import asdict

from apps.costs.domain.recommendations.idle_time import TIMEOUT_MINUTES
from apps.costs.domain.recommendations.recommendation import (
    OF_QUOTA,
    REPLAYED_KINDS,
    SAVED_EACH,
    ChangeValues,
    PodRequest,
    RecommendationKind,
    RecommendationState,
    ReplayGap,
    Saving,
    ScaledPool,
    change_values_of,
    per_month,
)
from apps.costs.models import Recommendation
from apps.quotas.domain.keys import QuotaSource

MOST_REPLAYED = 20
"""Of a cluster and run: each takes a worker some seconds."""


_OF_NO_TEAM = (
    RecommendationKind.MIG_LAYOUT.value,
    RecommendationKind.EMPTY_NODES.value,
    RecommendationKind.EMPTY_HOURS.value,
)


class ReplayableChange(NamedTuple):
    """A recommended change of a team on a tier: an idle timeout in minutes, or its `change_values`.

    These are a lower limit, or one that is lent, of the ResourceQuota `quota` in the namespace; or
    what pods of the `workload` (Kind/name, or that of its family) there request instead. Or, of no
    team, fewer GPUs of a pool, or another MIG layout of all GPUs of a `node`.
    """

    pk: int
    team: str
    tier: str
    minutes: float | None = None
    namespace: str = ""
    quota: str = ""
    workload: str = ""
    node: str = ""
    change_values: ChangeValues | None = None


class ReplayedEffects(Struct, frozen=True):
    """What the change does to the recorded demand of so many days, in GPU-hours.

    `freed` is what ended work would have held; unmet is what all teams have pending on the tier,
    without and with the change, and p95 their queue time (None: nothing started). Of a MIG layout
    `freed` are compute slices that are in a MIG device only with it, in GPUs, and unmet and p95 are
    those of all tiers of the cluster.

    Of pods that request something else, `freed` is what they hold less while they run, and `held`
    what they still hold; unmet and p95 are of the tier that they leave and the one that they come
    to. Of `works` (pods, and gangs) so many `started` with the change.
    """

    replayed_days: float
    replayed_freed_gpu_hours: float
    replayed_unmet_before_gpu_hours: float
    replayed_unmet_after_gpu_hours: float
    replayed_p95_before_seconds: float | None = None
    replayed_p95_after_seconds: float | None = None
    replayed_held_gpu_hours: float | None = None
    replayed_works: int | None = None
    replayed_works_started: int | None = None


def take_replayable(cluster_id: int, *, since: datetime, now: datetime) -> list[ReplayableChange]:
    """Return open recommendations not replayed since then, and note that they are tried now.

    At most MOST_REPLAYED: those tried longest ago, and of these those that save most.
    """
    due = Recommendation.objects.filter(
        Q(replayed_at__isnull=True) | Q(replayed_at__lt=since),
        cluster_id=cluster_id,
        kind__in=[kind.value for kind in REPLAYED_KINDS],
        state=RecommendationState.OPEN.value,
    ).filter(
        # A layout is that of a node: it is of no team and no tier. A pool is of no team.
        Q(team__isnull=False, tier__isnull=False) | Q(kind__in=_OF_NO_TEAM)
    )
    with transaction.atomic():
        rows = list(
            due.select_for_update(of=("self",))
            .select_related("team", "tier")
            # The longest ago first: where there are more than a day can replay, none is left out.
            .order_by(
                F("replayed_at").asc(nulls_first=True),
                "alternative",
                F("saving_per_month").desc(nulls_last=True),
                "pk",
            )[:MOST_REPLAYED]
        )
        # Before they are replayed: a worker that dies over one must not be sent after it for ever.
        Recommendation.objects.filter(pk__in=[row.pk for row in rows]).update(replayed_at=now)
    return [found for row in rows if (found := _replayable(row)) is not None]


def _replayable(row: Recommendation) -> ReplayableChange | None:
    """Return what a replay has to know; None for what it cannot express."""
    values = change_values_of(row.kind, row.change_values)
    if row.kind == RecommendationKind.MIG_LAYOUT.value:
        return values and ReplayableChange(row.pk, "", "", node=row.node, change_values=values)
    if isinstance(values, ScaledPool) and row.tier is not None:
        return ReplayableChange(row.pk, "", row.tier.name, change_values=values)
    if row.team is None or row.tier is None:
        return None
    of = (row.pk, row.team.name, row.tier.name)
    if row.kind == RecommendationKind.IDLE_TIMEOUT.value:
        return ReplayableChange(*of, minutes=TIMEOUT_MINUTES)
    if isinstance(values, PodRequest):
        return ReplayableChange(
            *of, namespace=row.namespace, workload=row.workload, change_values=values
        )
    source, _, name = row.workload.partition("/")
    if source != QuotaSource.RESOURCE_QUOTA or values is None:
        return None
    return ReplayableChange(*of, namespace=row.namespace, quota=name, change_values=values)


def note_replayed_effects(effects: Mapping[int, ReplayedEffects]) -> None:
    """Keep what was replayed, by recommendation; one that is decided by now stays as it was."""
    rows = Recommendation.objects.filter(pk__in=effects, state=RecommendationState.OPEN.value)
    for row in rows.order_by("pk"):
        found = effects[row.pk]
        known = {name: value for name, value in asdict(found).items() if value is not None}
        worth = _worth_per_month(row, found)
        money = {} if worth is None else {"replayed_saving_per_month": f"{worth:f}"}
        open_ones = Recommendation.objects.filter(pk=row.pk, state=RecommendationState.OPEN.value)
        open_ones.update(replay={**known, **money}, replay_gap="")


def note_replay_gaps(gaps: Mapping[int, ReplayGap]) -> None:
    """Keep why changes were not replayed, and forget what was replayed of them before.

    Effects of days that are known no longer must not be told as those of now.
    """
    for gap in ReplayGap:
        own = [pk for pk, found in gaps.items() if found is gap]
        open_ones = Recommendation.objects.filter(pk__in=own, state=RecommendationState.OPEN.value)
        open_ones.update(replay=None, replay_gap=gap.value)


def _worth_per_month(row: Recommendation, found: ReplayedEffects) -> Decimal | None:
    """Return what the replayed GPU-hours are worth a month; None of quotas, and without a price."""
    evidence: Mapping[str, Any] = row.evidence
    of_pods = found.replayed_held_gpu_hours is not None
    price = evidence.get("price_per_gpu_hour" if of_pods else SAVED_EACH)
    if price is None or RecommendationKind(row.kind) in OF_QUOTA:
        return None
    held = found.replayed_held_gpu_hours or 0.0
    before = Saving(
        per_month(found.replayed_freed_gpu_hours + held, found.replayed_days), Decimal(price)
    )
    # What is held then may be of another model, at the price of that one.
    after = Saving(
        per_month(held, found.replayed_days), Decimal(evidence.get("price_there", price))
    )
    return (before.per_month or Decimal(0)) - (after.per_month or Decimal(0))
