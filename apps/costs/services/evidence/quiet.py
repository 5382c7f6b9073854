"""What a stop of idle work would have freed, and what could have run instead."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import fsum

from apps.clusters.domain.calendar import day_start
from apps.clusters.models import Tier
from apps.costs.domain.recommendations.quiet import TEAM, TimeoutEvidence
from apps.costs.domain.recommendations.recommendation import Subject
from apps.costs.services.evidence.pending import PendingHours
from apps.costs.services.evidence.span import EvidenceSpan
from apps.costs.services.evidence.workloads import TeamEvidence
from apps.usage.domain.amounts import NANO
from apps.usage.models import WorkloadActivityDay

_ROWS_AT_A_TIME = 2000
_HOUR = 3600
_Hours = dict[int, float]
"""GPU-hours by hour, in Unix seconds."""
_Holder = tuple[int, str, str]
"""A workload's id, and the GPU model and capacity type that it held."""


@dataclass(frozen=True, slots=True)
class TimeoutOfTeam:
    evidence: TimeoutEvidence
    team_id: int


@dataclass(slots=True)
class _Freed:
    """What would have been freed of a team's work, in GPU-hours."""

    by_hour: _Hours = field(default_factory=lambda: defaultdict(float))
    by_holder: dict[_Holder, float] = field(default_factory=lambda: defaultdict(float))
    pods: dict[_Holder, int] = field(default_factory=lambda: defaultdict(int))


def timeout_evidence(
    span: EvidenceSpan, tier: Tier, pending: PendingHours | None, found: Sequence[TeamEvidence]
) -> Iterator[TimeoutOfTeam]:
    """Yield for each team what a stop after an idle hour would have freed of a tier.

    `found` is the evidence of the tier's workloads: one that is well used, or of which too little
    was measured, is left alone. `pending` is what waited for the tier. One query.
    """
    known = {
        (pk, one.evidence.gpu_model, one.evidence.capacity_type): one
        for one in found
        for pk in one.members
    }
    freed: dict[int, _Freed] = defaultdict(_Freed)
    for team, held, day_at, after, pods in _days(span, tier):
        one = known.get(held)
        if one is None or one.evidence.is_well_used:
            continue
        of = freed[team]
        of.pods[held] += pods
        for place, nano in enumerate(after):
            if nano:
                of.by_hour[day_at + place * _HOUR] += nano / NANO
                of.by_holder[held] += nano / NANO
    for team, of in sorted(freed.items()):
        yield TimeoutOfTeam(_evidence(span, tier, known, of, pending), team)


def _days(span: EvidenceSpan, tier: Tier) -> Iterator[tuple[int, _Holder, int, Sequence[int], int]]:
    """Yield (team, holder, start of the day, freed by hour of the day, pods)."""
    rows = WorkloadActivityDay.objects.filter(
        cluster=span.cluster, tier=tier, day__gte=span.first, day__lte=span.last, idle_pods__gt=0
    ).order_by("day", "pk")
    columns = ("day", "idle_after", "idle_pods", "team_id")
    holder = ("workload_id", "gpu_model__name", "capacity_type")
    for row in rows.values_list(*columns, *holder).iterator(_ROWS_AT_A_TIME):
        day, after, pods, team, *held = row
        at = int(day_start(day, span.zone).timestamp())
        yield team, (held[0], held[1], held[2]), at, after or (), pods


def _evidence(
    span: EvidenceSpan,
    tier: Tier,
    known: Mapping[_Holder, TeamEvidence],
    of: _Freed,
    pending: PendingHours | None,
) -> TimeoutEvidence:
    freed: dict[str, float] = defaultdict(float)
    waste: dict[str, float] = {}
    hit: dict[str, int] = defaultdict(int)
    worth, currencies, whole = Decimal(0), set(), True
    team = ""
    for holder, gpu_hours in sorted(of.by_holder.items()):
        one = known[holder].evidence
        team = known[holder].team
        freed[one.cell] += gpu_hours
        waste[one.cell] = one.idle_gpu_hours + one.underused_gpu_hours
        hit[one.subject.workload] += of.pods[holder]
        currencies.add(one.currency)
        whole = whole and one.price_per_gpu_hour is not None
        worth += Decimal(repr(gpu_hours)) * (one.price_per_gpu_hour or 0)
    could = None
    if pending is not None:
        could = fsum(min(gpus, pending.of_all(at)) for at, gpus in of.by_hour.items())
    one_currency = len(currencies) == 1 and whole
    return TimeoutEvidence(
        subject=Subject(span.cluster.name, workload=f"{TEAM}/{team}", tier=tier.name),
        days=span.days(span.first),
        coverage=span.coverage(span.first),
        freed=dict(freed),
        waste=waste,
        hit=dict(hit),
        could_have_run=could,
        worth=worth if one_currency else None,
        currency=currencies.pop() if one_currency else "",
    )
