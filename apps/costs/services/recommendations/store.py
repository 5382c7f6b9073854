"""Recommendations as rows: one for each change of each subject, however often it is found."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeVar

from django.db.models import QuerySet

from apps.clusters.models import Cluster, Tier
from apps.costs.domain.recommendations import Recommendation as Found
from apps.costs.domain.recommendations.coverage import Cell
from apps.costs.domain.recommendations.recommendation import Figure
from apps.costs.domain.recommendations.states import (
    FROZEN,
    RecommendationState,
    found_again,
    not_found,
)
from apps.costs.models import Recommendation

_FIGURES = (
    *("team_id", "change", "patch", "saving_per_month", "currency", "confidence", "reason"),
    *("evidence", "covers"),
)
_WRITTEN = (*(name.removesuffix("_id") for name in _FIGURES), "state")
_AT_A_TIME = 500
GONE_FOR = timedelta(days=90)
"""What has not been found for longer is deleted: nobody waits for its return."""
_STANDING = (RecommendationState.OPEN.value, RecommendationState.ACCEPTED.value)

_Key = tuple[str, ...]
_T = TypeVar("_T")


class TeamFinding(NamedTuple):
    """What a rule found, whose it is (None: nobody's in particular), and what it covers."""

    found: Found
    team_id: int | None
    covers: Mapping[Cell, int] = {}


def store(cluster: Cluster, found: Iterable[TeamFinding], *, now: datetime) -> None:
    """Write what was found of a cluster; must run in a transaction.

    What is open and was not found again is gone, and after GONE_FOR deleted. What was accepted
    keeps the figures that it was accepted with. Of one change found twice the larger saving
    counts. Only rows that say something else than before are written.
    """
    tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))
    best: dict[_Key, TeamFinding] = {}
    for one in sorted(found, key=lambda each: each.found.order):
        best.setdefault(one.found.key, one)
    known = {_key_of(row): row for row in _standing(cluster)}
    known |= _returned(cluster, best.keys() - known.keys())
    before = {key: _content(row) for key, row in known.items()}
    fresh = [_new(cluster, tiers, one, now) for key, one in best.items() if key not in known]
    for key, row in known.items():
        if key in best:
            _update(row, best[key])
        else:
            row.state = not_found(RecommendationState(row.state)).value
    changed = [row for key, row in known.items() if _content(row) != before[key]]
    again = [row.pk for key, row in known.items() if key in best]
    Recommendation.objects.bulk_create(fresh, batch_size=_AT_A_TIME)
    Recommendation.objects.bulk_update(changed, _WRITTEN, batch_size=_AT_A_TIME)
    for some in _portions(again):
        Recommendation.objects.filter(pk__in=some).update(last_seen=now)
    mark_alternatives([*known.values(), *fresh])
    _gone(cluster).filter(last_seen__lt=now - GONE_FOR).delete()


def _standing(cluster: Cluster) -> QuerySet[Recommendation, Recommendation]:
    """Return all rows but those that are gone, of which there are ever more."""
    return _locked(
        Recommendation.objects.filter(cluster=cluster).exclude(state=RecommendationState.GONE.value)
    )


def _returned(cluster: Cluster, keys: Iterable[_Key]) -> dict[_Key, Recommendation]:
    """Return the rows of keys that are gone. One query for every _AT_A_TIME keys."""
    found: dict[_Key, Recommendation] = {}
    for some in _portions(sorted(keys)):
        kinds, _, namespaces, workloads, _, nodes = map(set, zip(*some, strict=True))
        rows = _gone(cluster).filter(
            kind__in=kinds, namespace__in=namespaces, workload__in=workloads, node__in=nodes
        )
        named = {_key_of(row): row for row in _locked(rows)}
        found |= {key: named[key] for key in some if key in named}
    return found


def _gone(cluster: Cluster) -> QuerySet[Recommendation, Recommendation]:
    return Recommendation.objects.filter(cluster=cluster, state=RecommendationState.GONE.value)


def _locked(
    rows: QuerySet[Recommendation, Recommendation],
) -> QuerySet[Recommendation, Recommendation]:
    rows = rows.select_related("cluster", "tier")
    return rows.select_for_update(of=("self",)).order_by("pk")


def _portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for at in range(0, len(values), _AT_A_TIME):
        yield values[at : at + _AT_A_TIME]


def _content(row: Recommendation) -> tuple[object, ...]:
    return (row.state, *(getattr(row, name) for name in _FIGURES))


def _key_of(row: Recommendation) -> _Key:
    tier = row.tier.name if row.tier else ""
    return row.kind, row.cluster.name, row.namespace, row.workload, tier, row.node


def _new(
    cluster: Cluster, tiers: Mapping[str, int], one: TeamFinding, now: datetime
) -> Recommendation:
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


def _update(row: Recommendation, one: TeamFinding) -> None:
    if row.state not in FROZEN:
        row.state = found_again(RecommendationState(row.state)).value
        for name, value in _figures(one).items():
            setattr(row, name, value)


def _figures(one: TeamFinding) -> dict[str, object]:
    found = one.found
    evidence = {**found.evidence, **found.saved.figures()}
    values = (
        *(one.team_id, found.change, found.patch, found.saving_per_month, found.currency),
        *(found.confidence.value, found.reason, _plain(evidence)),
        [[*cell, units] for cell, units in sorted(one.covers.items())],
    )
    return dict(zip(_FIGURES, values, strict=True))


def _plain(evidence: Mapping[str, Figure]) -> dict[str, float | int | str]:
    """Return evidence as JSON can carry it: prices as texts, with all their digits."""
    return {
        name: f"{value:f}" if isinstance(value, Decimal) else value
        for name, value in evidence.items()
    }


def mark_alternatives(rows: Sequence[Recommendation]) -> None:
    """Mark those whose savings must not be added to the others', of whole tiers.

    What is accepted comes first, then what saves most. One is an alternative where another one of
    its subject, or one that avoids the same waste, came before it.
    """
    standing = sorted((row for row in rows if row.state in _STANDING), key=_rank)
    alternatives: set[int] = set()
    subjects: set[tuple[object, ...]] = set()
    cells: set[tuple[object, ...]] = set()
    for row in standing:
        place = (row.cluster_id, row.tier_id)
        subject = (*place, row.namespace, row.workload, row.node)
        own = {(*place, row.team_id, name, cause) for name, cause, _ in row.covers}
        if subject in subjects or own & cells:
            alternatives.add(row.pk)
        else:
            subjects.add(subject)
            cells |= own
    changed = [row for row in rows if row.alternative != (row.pk in alternatives)]
    for row in changed:
        row.alternative = not row.alternative
    Recommendation.objects.bulk_update(changed, ["alternative"], batch_size=_AT_A_TIME)


def _rank(row: Recommendation) -> tuple[bool, bool, Decimal, int]:
    saving = row.saving_per_month
    accepted = row.state == RecommendationState.ACCEPTED.value
    return not accepted, saving is None, -(saving or Decimal(0)), row.pk
