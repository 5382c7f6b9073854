"""What was asked for and held at once: of namespaces, and of nodes, from the ledger of pods."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import QuotaScope
from apps.clusters.models import Pod
from apps.clusters.models.sql import UnixSeconds
from apps.costs.domain.recommendations.at_once import AllocationInterval, most_at_once
from apps.costs.services.evidence.span import EvidenceSpan
from apps.pending.services import amounts
from apps.quotas.domain.headroom import Asking, counts
from apps.quotas.domain.keys import IMPLICIT
from apps.quotas.domain.saturation import RefusedSpan
from apps.quotas.selectors import BlockedWork, waits_in

_NAMED = 500
"""More names than this are not named in a query: then all are read."""
_ROWS_AT_A_TIME = 2000


@dataclass(slots=True)
class AskedAtOnce:
    """What namespaces asked for from the first day on until now, and what was refused of them.

    Intervals are by (namespace, resource), then by the pods' priority class.
    """

    intervals: dict[tuple[str, str], dict[str, list[AllocationInterval]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    refused: Mapping[str, Sequence[RefusedSpan]] = field(default_factory=dict)

    def most(
        self, namespace: str, resource: str, *, quota: str, scopes: Sequence[QuotaScope] = ()
    ) -> float:
        """Return the most that a quota counted of a resource at once, with what it refused then.

        As Kubernetes counts: a pod from its creation to its end, bound or not. What scopes do not
        tell of a pod counts.
        """
        return most_at_once(self._counted(namespace, resource, quota, scopes))

    def _counted(
        self, namespace: str, resource: str, quota: str, scopes: Sequence[QuotaScope]
    ) -> Iterator[AllocationInterval]:
        for priority, intervals in self.intervals.get((namespace, resource), {}).items():
            if counts(scopes, Asking(priority_class=priority)) is not False:
                yield from intervals
        for one in self.refused.get(namespace, ()):
            if one.resource == resource and (not one.quotas or quota in one.quotas):
                yield AllocationInterval(one.start, one.end, one.units)


def asked_at_once(span: EvidenceSpan, namespaces: Collection[str]) -> AskedAtOnce:
    """Return what these namespaces asked for. Two queries, none for no namespace."""
    if not namespaces:
        return AskedAtOnce()
    waits = waits_in(span.until_now, {}, clusters=[span.cluster.pk])
    found = AskedAtOnce(refused=waits.get(span.cluster.pk, BlockedWork()).refused)
    pods = _pods(span, "workload__namespace__name", namespaces)
    columns = ("workload__namespace__name", "priority_class", "by_claim", "created", "ended")
    for resources, namespace, priority, by_claim, start, end in _read(pods, columns):
        for resource, units in resources.items():
            # What claims serve is counted by the claims themselves.
            if not by_claim or "/" in resource:
                key = (namespace, resource.removeprefix(IMPLICIT))
                found.intervals[key][priority].append(AllocationInterval(start, end, units))
    return found


def held_at_once(span: EvidenceSpan, nodes: Collection[str]) -> dict[tuple[str, str], float]:
    """Return the most units of each (node, resource) that pods held at once.

    One query, none for no node.
    """
    if not nodes:
        return {}
    pods = _pods(span, "node_name", nodes).filter(bound_at__isnull=False)
    intervals: dict[tuple[str, str], list[AllocationInterval]] = defaultdict(list)
    for resources, node, start, end in _read(pods, ("node_name", "bound", "ended")):
        for resource, units in resources.items():
            intervals[node, resource].append(AllocationInterval(start, end, units))
    return {key: most_at_once(of_key) for key, of_key in intervals.items()}


def _pods(span: EvidenceSpan, column: str, names: Collection[str]) -> QuerySet[Pod, Pod]:
    """Return the pods that were there at some time from the first day on, until now."""
    lasted = Q(ended_at__isnull=True) | Q(ended_at__gt=span.window.start)
    rows = Pod.objects.filter(lasted, cluster=span.cluster).exclude(workload__kind=CLAIM_KIND)
    return rows.filter(**{f"{column}__in": list(names)}) if len(names) <= _NAMED else rows


def _read(pods: QuerySet[Pod, Pod], columns: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Yield (units by resource, *columns) of pods."""
    rows = pods.annotate(
        requests_text=Cast("requests", TextField()),
        by_claim=Case(When(claims=[], then=Value(0)), default=Value(1)),
        created=UnixSeconds("created_at"),
        bound=UnixSeconds("bound_at"),
        ended=UnixSeconds("ended_at"),
    ).order_by("pk")
    named = rows.values_list("requests_text", "resource", "units", *columns)
    for text, resource, units, *rest in named.iterator(_ROWS_AT_A_TIME):
        yield amounts(text) or {resource: units}, *rest
