"""Names of the dimensions that facts hold as ids, and the choices of filters."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Any, cast

from django.db.models import CharField, QuerySet, Value

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED, UNMATCHED, CapacityType
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, GpuModel, Namespace, Node, Tier, Workload
from apps.clusters.selectors import team_spans
from apps.usage.domain.usage_query import Filters, Grouping, NamesUnknown
from apps.usage.selectors.fact_tables import filtered
from gpuportal.queries import BatchQuery, read_once

CHECKED = (Grouping.CLUSTER, Grouping.TIER, Grouping.TEAM)
"""Dimensions whose names anybody may know, so that a mistaken one can be told."""
_NOT_KNOWN = "unknown"
_BUILTIN = {UNMATCHED, UNDETERMINED, UNASSIGNED}
_ALL_OF = 1000
"""With more ids than this a whole table is read: long lists cost more than rows."""
_GUESSES = {
    Grouping.NAMESPACE: 32,
    Grouping.WORKLOAD: 32,
    Grouping.NODE: 32,
    Grouping.CAPACITY_TYPE: len(CapacityType),
}
"""How many of these a period may have, before any was read."""
_WHOLE: dict[Grouping, type[Cluster] | type[Tier] | type[Team] | type[GpuModel]] = {
    Grouping.CLUSTER: Cluster,
    Grouping.TIER: Tier,
    Grouping.TEAM: Team,
    Grouping.GPU_MODEL: GpuModel,
}
"""Few enough to be read whole, whether asked for or not; what is inactive keeps its history."""

_NAMED = (Grouping.TIER, Grouping.TEAM, Grouping.GPU_MODEL)
_CACHED = timedelta(days=400)  # how long facts go back
_INSTANT = timedelta(seconds=1)


class NameLookup:
    """Looks names up once; keeps them for the pages that follow.

    `wanted` of the small tables are read at once, in one query: each query would cost a page of
    rows more than all their names. Of namespaces, workloads and nodes only those met are read,
    one query for each.
    """

    def __init__(self, wanted: Iterable[Grouping]) -> None:
        self._known: dict[Grouping, dict[object, str]] = {g: {} for g in Grouping}
        if whole := _WHOLE.keys() & set(wanted):
            # All of them: they are few, and other figures of a page want the others.
            names = _whole_names()
            for grouping in whole:
                self._known[grouping].update(names[grouping])

    def known(self, grouping: Grouping) -> Mapping[object, str]:
        """Return id → name as far as they were read."""
        return self._known[grouping]

    def clusters(self, filters: Filters) -> tuple[int, ...]:
        """Return the ids of clusters, of those that the filters name alone, in order."""
        wanted = filters.cluster
        known = self._known[Grouping.CLUSTER].items()
        return tuple(sorted(cast("int", pk) for pk, n in known if not wanted or n in wanted))

    def of(self, grouping: Grouping, ids: Iterable[object]) -> Mapping[object, str]:
        """Return id → name for at least `ids`; one query for what is not known yet, or none."""
        if grouping is Grouping.CAPACITY_TYPE:
            return {value: str(value) for value in ids}
        known = self._known[grouping]
        new = set(ids) - known.keys()
        if grouping not in _WHOLE and new - {None}:
            met = _met(grouping)
            if unread := new - {None} - met.keys():
                met.update(_named(grouping, unread, _met(Grouping.NAMESPACE)))
            known.update({pk: met[pk] for pk in new & met.keys()})
        for missing in new - known.keys():
            known[missing] = _NOT_KNOWN if missing is None else f"{grouping} {missing}"
        return known

    def groups_expected(self, group_by: Iterable[Grouping], filters: Filters) -> int:
        """Return how many groups a period may have, at no further query.

        A guess from above, but for the built-in names, which most periods have nothing of: a
        little read too much costs less than to read again for the rest of a page.
        """
        expected = 1
        for grouping in group_by:
            there = _GUESSES.get(grouping) or len(set(self._known[grouping].values()) - _BUILTIN)
            asked: int = len(getattr(filters, grouping))
            expected *= max(1, min(there, asked or there))
        return expected


@read_once
def _whole_names() -> Mapping[Grouping, Mapping[object, str]]:
    """Return id → name of everything in the small tables. One query."""
    found: dict[Grouping, dict[object, str]] = {grouping: {} for grouping in _WHOLE}
    for kind, pk, name in WHOLE_NAMES.rows():
        found[Grouping(kind)][pk] = name
    return found


def _every_name() -> QuerySet[Any, tuple[str, int, str]]:
    """Return (grouping, id, name) of everything in the small tables.

    All of them are read where teams are written: a union is of one database.
    """
    parts: list[QuerySet[Any, tuple[str, int, str]]] = [
        _WHOLE[grouping]
        .objects.order_by()
        .values_list(Value(grouping.value, output_field=CharField()), "pk", "name")
        for grouping in sorted(_WHOLE)
    ]
    return reduce(lambda one, two: one.union(two, all=True), parts).using(Team.objects.db)


WHOLE_NAMES = BatchQuery(_every_name)


def check_names(filters: Filters) -> None:
    """Refuse clusters, tiers and teams in filters that there never were. One query, or none.

    Names of namespaces, workloads, nodes are not checked: to say that one exists would tell.
    Raises NamesUnknown.
    """
    check_known(filters, NameLookup(filtered(filters) & set(CHECKED)))


def check_known(filters: Filters, names: NameLookup) -> None:
    """Do the same with names that were read for these filters."""
    unknown = {}
    for grouping in CHECKED:
        there = sorted(names.known(grouping).values())
        if strange := [name for name in getattr(filters, grouping) if name not in there]:
            unknown[grouping.value] = (strange, there)
    if unknown:
        raise NamesUnknown(unknown)


@read_once
def _met(grouping: Grouping) -> dict[object, str]:
    """Return id → name of what was met so far: all figures of a page add to it."""
    return {}


def _named(
    grouping: Grouping, ids: set[object], namespaces: dict[object, str]
) -> dict[object, str]:
    """Return id → name; `namespaces` also gets those of workloads. One query."""
    where = {} if len(ids) > _ALL_OF else {"pk__in": ids}
    if grouping is Grouping.WORKLOAD:
        rows = Workload.objects.filter(**where).order_by("pk")
        found: dict[object, str] = {}
        columns = ("pk", "kind", "name", "namespace_id", "namespace__name")
        for pk, kind, name, namespace, its_name in rows.values_list(*columns):
            # Read along: a caller that names workloads names their namespaces next.
            found[pk], namespaces[namespace] = f"{kind}/{name}", its_name
        return found
    model = Namespace if grouping is Grouping.NAMESPACE else Node
    return dict(model._default_manager.filter(**where).order_by("pk").values_list("pk", "name"))


def filter_names(*, visibility: Visibility) -> Mapping[str, Sequence[str]]:
    """Return the names of tiers, teams, GPU models and capacity types there ever were, sorted.

    By the keys of `Filters`. Everybody may know them: `visibility` narrows nothing. One query.
    """
    names = NameLookup(_NAMED)
    found = {grouping.value: sorted(set(names.known(grouping).values())) for grouping in _NAMED}
    return {**found, Grouping.CAPACITY_TYPE.value: [kind.value for kind in CapacityType]}


def namespaces_seen(
    names: Collection[str], *, visibility: Visibility, now: datetime
) -> tuple[str, ...]:
    """Return those of `names` that are namespaces the reader sees, sorted.

    A namespace is seen when it belonged to a team that the reader sees at some time of which
    facts are kept. What is not there and what may not be seen are left out alike. One query, and
    two more for who does not see everything; none without names.
    """
    if not names:
        return ()
    there = Namespace.objects.filter(name__in=names).order_by("name")
    found: list[str] = list(there.values_list("name", flat=True).distinct())
    if visibility.everything or not found:
        return tuple(found)
    spans = team_spans(Window(now - _CACHED, now + _INSTANT), found)
    return tuple(
        name for name in found if any(visibility.sees(span.team_id) for span in spans[name])
    )
