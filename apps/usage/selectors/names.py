"""Names of the dimensions that facts hold as ids."""

from collections.abc import Iterable, Mapping

from apps.accounts.models import Team
from apps.clusters.models import Cluster, GpuModel, Namespace, Node, Tier, Workload
from apps.usage.domain.rows import Filters, Grouping

_NOT_KNOWN = "unknown"
_ALL_OF = 1000
"""With more ids than this a whole table is read: long lists cost more than rows."""
_GUESS = 32
"""Namespaces, workloads or nodes that a period may have, before any was read."""


class Names:
    """Looks names up once for each dimension; keeps them for the pages that follow.

    Clusters, tiers, teams and GPU models are few and read whole; of namespaces, workloads and
    nodes only those asked for, where these are not too many.
    """

    def __init__(self) -> None:
        self._known: dict[Grouping, dict[object, str]] = {}

    def clusters(self) -> Mapping[int, str]:
        """Return every cluster, the inactive ones too: their history stays."""
        return self.of(Grouping.CLUSTER, ())  # type: ignore[return-value]

    def of(self, grouping: Grouping, ids: Iterable[object]) -> Mapping[object, str]:
        """Return id → name for at least `ids`; one query for what is not known yet, or none."""
        if grouping is Grouping.CAPACITY_TYPE:
            return {value: str(value) for value in ids}
        known = self._known.setdefault(grouping, {})
        new = set(ids) - known.keys()
        if grouping in _WHOLE:
            if not known:
                known.update(_WHOLE[grouping].objects.order_by("pk").values_list("pk", "name"))
        elif new - {None}:
            known.update(_named(grouping, new - {None}))
        for missing in new - known.keys():
            known[missing] = _NOT_KNOWN if missing is None else f"{grouping} {missing}"
        return known

    def groups_expected(self, group_by: Iterable[Grouping], filters: Filters) -> int:
        """Return how many groups a period may have: a guess from above, at no further query."""
        expected = 1
        for grouping in group_by:
            there = len(self.of(grouping, ())) if grouping in _WHOLE else _GUESS
            asked: int = len(getattr(filters, grouping))
            expected *= max(1, min(there, asked or there))
        return expected


_WHOLE: dict[Grouping, type[Cluster] | type[Tier] | type[Team] | type[GpuModel]] = {
    Grouping.CLUSTER: Cluster,
    Grouping.TIER: Tier,
    Grouping.TEAM: Team,
    Grouping.GPU_MODEL: GpuModel,
}


def _named(grouping: Grouping, ids: set[object]) -> dict[object, str]:
    where = {} if len(ids) > _ALL_OF else {"pk__in": ids}
    if grouping is Grouping.WORKLOAD:
        rows = Workload.objects.filter(**where).order_by("pk")
        return {pk: f"{kind}/{name}" for pk, kind, name in rows.values_list("pk", "kind", "name")}
    model = Namespace if grouping is Grouping.NAMESPACE else Node
    return dict(model._default_manager.filter(**where).order_by("pk").values_list("pk", "name"))
