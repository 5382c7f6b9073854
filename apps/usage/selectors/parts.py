"""What a figure sums: the pods of a reading with their parts of it, and one pod's hours."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add
from typing import Any

from django.db.models import Count, F, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod
from apps.usage.domain.amounts import HELD_FIELDS, Amounts
from apps.usage.domain.rows import Filters
from apps.usage.models import PodHour
from apps.usage.selectors.sources import FactTables, condition
from apps.usage.selectors.sums import amounts_of, sums_of

_PODS = FactTables(PodHour, None, detailed=True)


@dataclass(frozen=True, slots=True)
class PodPart:
    """One pod's part of a figure; `workload` reads `Kind/name`."""

    cluster: str
    namespace: str
    workload: str
    pod: str
    uid: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class PodSum:
    """What some pods held together, and how many they are."""

    count: int
    total: Amounts


def pod_sum(window: Window, *, filters: Filters, visibility: Visibility) -> PodSum:
    """Return what the pods that `filters` leave held.

    Only pods whose hours are kept by the pod count, and only those that the reader sees. One
    query.
    """
    held = sums_of(capacity=False)
    facts = _facts(window, filters, visibility).order_by()
    whole = facts.aggregate(pods=Count("pod_id", distinct=True), **held)
    if not whole["pods"]:
        return PodSum(0, Amounts())
    return PodSum(whole["pods"], amounts_of([whole[name] for name in held]))


def pod_parts(
    window: Window,
    *,
    fields: Sequence[str],
    filters: Filters,
    visibility: Visibility,
    rows: slice,
) -> list[PodPart]:
    """Return some of the pods that `pod_sum` is over, those first that hold most.

    Most by the sum of `fields`, which are of HELD_FIELDS; `rows` are the places of those wanted
    in this order. Two queries. Raises ValueError for other fields.
    """
    held = sums_of(capacity=False)
    facts = _facts(window, filters, visibility)
    ranked = facts.values("pod_id").annotate(rank=_rank(fields), **held)
    found = ranked.order_by("-rank", "pod_id").values_list("pod_id", *held)[rows]
    return _named({row[0]: amounts_of(row[1:]) for row in found})


def pod_hours(
    cluster: str, uid: str, *, window: Window, visibility: Visibility
) -> list[tuple[datetime, Amounts]]:
    """Return what a pod held in each of the window's collected hours, oldest first. One query."""
    facts = _facts(window, Filters(cluster=(cluster,)), visibility).filter(pod__uid=uid)
    held = sums_of(capacity=False)
    hours = facts.values("hour").annotate(**held).order_by("hour")
    return [(row[0], amounts_of(row[1:])) for row in hours.values_list("hour", *held)]


def _facts(window: Window, filters: Filters, visibility: Visibility) -> QuerySet[PodHour, PodHour]:
    clusters = Cluster.objects.order_by()  # named even if all are meant: the index begins with it
    if filters.cluster:
        clusters = clusters.filter(name__in=filters.cluster)
    return PodHour.objects.filter(
        condition(_PODS, filters, visibility),
        cluster__in=clusters.values("pk"),
        hour__gte=window.start,
        hour__lt=window.end,
    )


def _rank(fields: Sequence[str]) -> Any:
    unknown = set(fields) - set(HELD_FIELDS)
    if unknown or not fields:
        raise ValueError(f"pods have no {', '.join(sorted(unknown)) or 'rank without a field'}")
    return Sum(reduce(add, (F(name) for name in fields)))


def _named(sums: dict[int, Amounts]) -> list[PodPart]:
    pods = Pod.objects.filter(pk__in=list(sums)).order_by("pk")
    names = {
        row[0]: row[1:]
        for row in pods.values_list(
            *("pk", "cluster__name", "workload__namespace__name", "workload__kind"),
            *("workload__name", "name", "uid"),
        )
    }
    found = []
    for pk, amounts in sums.items():
        cluster, namespace, kind, owner, pod, uid = names[pk]
        found.append(PodPart(cluster, namespace, f"{kind}/{owner}", pod, uid, amounts))
    return found
