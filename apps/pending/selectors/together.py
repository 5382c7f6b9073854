"""Which work needs its pods at the same time, by what its objects say."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from django.db.models import Q

from apps.clusters.domain.observed.objects import POD_GROUPS, ObservedKind
from apps.clusters.models import ObservedObject, Workload
from apps.pending.domain.gangs import GANG_KINDS

_COLUMNS = (
    *("kind", "cluster_id", "namespace", "name"),
    *("body__owner_kind", "body__owner", "body__group", "body__min_member", "body__together"),
    "body__pod_sets",
)
Controller = tuple[int, str, str, str]
"""Cluster, namespace, kind and name of a top controller."""


class _Seen(NamedTuple):
    """What an object says of the pods that belong together; what it does not say is None."""

    kind: str
    cluster: int
    namespace: str
    name: str
    owner_kind: str | None
    owner: str | None
    group: str | None
    min_member: int | None
    together: bool | None
    pod_sets: Any

    @property
    def of(self) -> Controller:
        return (self.cluster, self.namespace, self.owner_kind or "", self.owner or "")


def run_together(holding: Mapping[int, int], waiting: Any) -> set[int]:
    """Return the workloads, of these ids, whose pods must run at the same time and do not.

    `holding` counts the pods of each that hold GPUs, `waiting` is a query of the
    uids of pods that pend.
    See docs/definitions.md#waiting. Two queries.
    """
    columns = ("pk", "namespace__cluster_id", "namespace__name", "kind", "name")
    rows = Workload.objects.filter(pk__in=list(holding)).order_by("pk")
    jobs: dict[Controller, int] = {
        (c, n, k, w): pk for pk, c, n, k, w in rows.values_list(*columns)
    }
    spaces = {namespace for _, namespace, _, _ in jobs}
    seen = [one for one in _seen(spaces, waiting) if one.cluster in {job[0] for job in jobs}]
    groups = {(s.cluster, s.namespace, s.name): s.min_member or 0 for s in seen if _is_group(s)}
    needs = {of: groups.get(group) for of, group in _groups(seen) if of in jobs}
    said = {jobs[of] for one in seen if (of := _gang(one)) in jobs}
    found = {pk for of, pk in jobs.items() if of[2] in GANG_KINDS or pk in said or of in needs}
    # A PodGroup that has as many as it needs runs, whatever its work could take beside.
    whole = {jobs[of] for of, n in needs.items() if n is not None and holding[jobs[of]] >= n}
    return found - whole


def _seen(namespaces: Collection[str], waiting: Any) -> list[_Seen]:
    whole = (ObservedKind.JOB, ObservedKind.KUEUE_WORKLOAD, *POD_GROUPS)
    kinds = Q(kind=ObservedKind.POD.value, uid__in=waiting) | Q(kind__in=[k.value for k in whole])
    rows = ObservedObject.objects.filter(
        kinds, gone_at__isnull=True, namespace__in=list(namespaces)
    )
    return [_Seen(*row) for row in rows.order_by("pk").values_list(*_COLUMNS)]


def _is_group(one: _Seen) -> bool:
    return one.kind in POD_GROUPS


def _groups(seen: Collection[_Seen]) -> Iterator[tuple[Controller, tuple[int, str, str]]]:
    """Yield the controller and the group of each pod that is in one."""
    for one in seen:
        if one.kind == ObservedKind.POD and one.group:
            yield one.of, (one.cluster, one.namespace, one.group)


def _gang(one: _Seen) -> Controller | None:
    """Return whose pods an object says to belong together; None where it says nothing of it.

    Runs of one CronJob do not: of Jobs only those that nothing else made are asked.
    """
    if one.kind == ObservedKind.JOB and one.together and not one.owner:
        return (one.cluster, one.namespace, ObservedKind.JOB.value, one.name)
    if one.kind == ObservedKind.KUEUE_WORKLOAD and len(one.pod_sets or ()) > 1:
        return one.of
    return None
