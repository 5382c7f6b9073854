"""Recommendations as rows: one for each change of each subject, however often it is found."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from apps.clusters.models import Cluster, Tier
from apps.costs.domain.recommendations import Recommendation as Found
from apps.costs.domain.recommendations.recommendation import Figure
from apps.costs.domain.recommendations.states import FROZEN, State, found_again, not_found
from apps.costs.models import Recommendation

_FIGURES = (
    *("team_id", "change", "patch", "saving_per_month", "currency", "confidence", "reason"),
    "evidence",
)
_WRITTEN = (*(name.removesuffix("_id") for name in _FIGURES), "last_seen", "state")
_AT_A_TIME = 500
_STANDING = (State.OPEN.value, State.ACCEPTED.value)

_Key = tuple[str, ...]


class OfTeam(NamedTuple):
    """What a rule found, and whose it is; None: nobody's in particular."""

    found: Found
    team_id: int | None


def store(cluster: Cluster, found: Iterable[OfTeam], *, now: datetime) -> None:
    """Write what was found of a cluster; must run in a transaction.

    What is open and was not found again is gone. What was accepted keeps the figures that it was
    accepted with. Of one change found twice the larger saving counts.
    """
    tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))
    known = {_key_of(row): row for row in _rows(cluster)}
    fresh: list[Recommendation] = []
    changed: list[Recommendation] = []
    seen: set[_Key] = set()
    for one in sorted(found, key=lambda each: each.found.order):
        key = one.found.key
        if key in seen:
            continue
        seen.add(key)
        row = known.get(key)
        if row is None:
            fresh.append(_new(cluster, tiers, one, now))
        else:
            changed.append(_updated(row, one, now))
    for key, row in known.items():
        if key not in seen:
            row.state = not_found(State(row.state)).value
            changed.append(row)
    Recommendation.objects.bulk_create(fresh, batch_size=_AT_A_TIME)
    Recommendation.objects.bulk_update(changed, _WRITTEN, batch_size=_AT_A_TIME)
    mark_alternatives(list(_rows(cluster)))


def _rows(cluster: Cluster) -> Iterable[Recommendation]:
    rows = Recommendation.objects.filter(cluster=cluster).select_related("cluster", "tier")
    return rows.select_for_update(of=("self",)).order_by("pk")


def _key_of(row: Recommendation) -> _Key:
    tier = row.tier.name if row.tier else ""
    return row.kind, row.cluster.name, row.namespace, row.workload, tier, row.node


def _new(cluster: Cluster, tiers: Mapping[str, int], one: OfTeam, now: datetime) -> Recommendation:
    about = one.found.subject
    return Recommendation(
        kind=one.found.kind.value,
        cluster=cluster,
        tier_id=tiers.get(about.tier),
        namespace=about.namespace,
        workload=about.workload,
        node=about.node,
        first_seen=now,
        last_seen=now,
        **_figures(one),
    )


def _updated(row: Recommendation, one: OfTeam, now: datetime) -> Recommendation:
    row.last_seen = now
    if row.state not in FROZEN:
        row.state = found_again(State(row.state)).value
        for name, value in _figures(one).items():
            setattr(row, name, value)
    return row


def _figures(one: OfTeam) -> dict[str, object]:
    found = one.found
    values = (
        *(one.team_id, found.change, found.patch, found.saving_per_month, found.currency),
        *(found.confidence.value, found.reason, _plain(found.evidence)),
    )
    return dict(zip(_FIGURES, values, strict=True))


def _plain(evidence: Mapping[str, Figure]) -> dict[str, float | int | str]:
    """Return evidence as JSON can carry it: prices as texts, with all their digits."""
    return {
        name: f"{value:f}" if isinstance(value, Decimal) else value
        for name, value in evidence.items()
    }


def mark_alternatives(rows: Sequence[Recommendation]) -> None:
    """Of each subject's recommendations that stand, count one: what is accepted, else the best.

    The others are alternatives to it, so their savings are not added up.
    """
    subjects: dict[tuple[object, ...], list[Recommendation]] = defaultdict(list)
    for row in rows:
        subjects[row.cluster_id, row.tier_id, row.namespace, row.workload, row.node].append(row)
    changed = []
    for alike in subjects.values():
        standing = sorted((row for row in alike if row.state in _STANDING), key=_rank)
        for row in alike:
            alternative = row in standing[1:]
            if row.alternative != alternative:
                row.alternative = alternative
                changed.append(row)
    Recommendation.objects.bulk_update(changed, ["alternative"], batch_size=_AT_A_TIME)


def _rank(row: Recommendation) -> tuple[bool, bool, Decimal, int]:
    saving = row.saving_per_month
    accepted = row.state == State.ACCEPTED.value
    return not accepted, saving is None, -(saving or Decimal(0)), row.pk
