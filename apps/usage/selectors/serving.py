"""What inference servers did: sums by service and model, by hour, and which hours were read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, NamedTuple

from django.db.models import Count, F, FloatField, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Cast
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.usage.domain.serving import GANG_KINDS, ServingState
from apps.usage.domain.usage_query import Filters, Grouping, GroupingRefused
from apps.usage.models import HAS_FACTS, CollectionWindow, PodHour, ServingHour
from apps.usage.selectors.fact_tables import FactTables, condition
from apps.usage.selectors.ledger import HOURLY_DAYS, pods_retained
from apps.usage.selectors.names import NameLookup

_SERVING = FactTables(PodHour, None, detailed=True)
_BY = (
    *(Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TEAM),
    Grouping.TIER,
)
_MEANS = ("running", "waiting", "kv_cache")


class ServiceKey(NamedTuple):
    """A workload of a team on a tier; `workload` reads `Kind/name`."""

    cluster: str
    namespace: str
    workload: str
    team: str
    tier: str


class ServingSums(Struct):
    """What was served, and the nano-GPU-hours (`measured`) of which that is known.

    `tokens` are those in and out where both are known, and `measured_of_tokens` is the part of it
    whose servers count both. None is what no server exported. `first_tokens` are those of servers
    of which it is known how many met the objective.
    `ttft_ms` are the lowest and the highest objective that they were held against; None without
    any, and where that of some hours was not kept (`lacks_ttft`).
    `is_marked`: a pod is marked to stay for quick answers.
    Means are (sum × seconds, seconds).
    """

    measured: int = 0
    measured_of_tokens: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens: int | None = None
    requests: int | None = None
    first_tokens: int | None = None
    first_tokens_in_time: int | None = None
    running: tuple[float, int] = (0.0, 0)
    waiting: tuple[float, int] = (0.0, 0)
    kv_cache: tuple[float, int] = (0.0, 0)
    is_marked: bool = False
    ttft_ms: tuple[int, int] | None = None
    lacks_ttft: bool = False

    def add(self, other: "ServingSums") -> None:
        """Add what another service did."""
        self.measured += other.measured
        self.measured_of_tokens += other.measured_of_tokens
        self.is_marked = self.is_marked or other.is_marked
        self.lacks_ttft = self.lacks_ttft or other.lacks_ttft
        known = [*(self.ttft_ms or ()), *(other.ttft_ms or ())]
        # One of several would be false of the others, and so would those that are known alone.
        is_told = known and not self.lacks_ttft
        self.ttft_ms = (min(known), max(known)) if is_told else None
        for name in _COUNTED:
            own, more = getattr(self, name), getattr(other, name)
            setattr(self, name, more if own is None else own + (more or 0))
        for name in _MEANS:
            (total, seconds), (more, added) = getattr(self, name), getattr(other, name)
            setattr(self, name, (total + more, seconds + added))


_STORED = ("tokens_in", "tokens_out", "requests", "first_tokens", "first_tokens_in_time")
_COUNTED = (*_STORED, "tokens")
# Null where either is: half of the tokens would stand beside GPU-hours that are not counted.
_BOTH = F("tokens_in") + F("tokens_out")


_ABSENT = "Null where no server exported it in this hour."


class ServingTime(Struct, frozen=True):
    """Replicas of services in an hour, and their load.

    What `silent` replicas served is not known, and is in neither sum.
    """

    schema: ClassVar[str] = "ServingHour"

    hour: Annotated[datetime, Column("Hour", help="Start of the hour.", shown_as="hour")]
    replicas: Annotated[int, Column("Replicas", help="Pods with GPUs that ran.")]
    silent: Annotated[
        int,
        Column(
            "Without metrics",
            key="replicas_without_metrics",
            help="Replicas that ran, and whose server has no series in this hour: their load is "
            "no data.",
        ),
    ]
    requests: Annotated[int | None, Column("Requests", help="Finished requests.", api_note=_ABSENT)]
    tokens: Annotated[
        int | None,
        Column("Tokens", help="Tokens in and out of servers that count both.", api_note=_ABSENT),
    ]


class LastRequest(NamedTuple):
    """When a service had its last request (start of the hour), and in how many hours it is known
    whether it had any."""

    at: datetime | None
    hours: int


def check_serving_window(window: Window) -> None:
    """Raise GroupingRefused for windows of which the hours of pods are not kept, or too many."""
    if window.seconds > HOURLY_DAYS * 86400 + 3600 or not pods_retained(window):
        raise GroupingRefused(
            "what services did is kept with the hours of pods, and shown for at most "
            f"{HOURLY_DAYS} days at a time: choose a shorter or a later window"
        )


def serving_sums(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[ServiceKey, dict[str, ServingSums]]:
    """Return what services did in a window, by model.

    Only services of teams that the reader sees. One query, and those for names.
    """
    columns = tuple(one.column for one in _BY)
    # How many were in time is known of some engines alone: only theirs are its divisor.
    told = Q(first_tokens_in_time__isnull=False)
    counted = Q(tokens_in__isnull=False, tokens_out__isnull=False)
    sums: dict[str, Any] = {
        **{f"sum_{name}": Sum(name) for name in ("measured", *_STORED)},
        "sum_tokens": Sum(_BOTH),
        "sum_measured_of_tokens": Sum("measured", filter=counted),
        "sum_first_tokens": Sum("first_tokens", filter=told),
        "least_ttft_ms": Min("ttft_objective_ms"),
        "most_ttft_ms": Max("ttft_objective_ms"),
        "without_ttft": Count("pk", filter=told & Q(ttft_objective_ms__isnull=True)),
        "marked_pods": Count("pk", filter=Q(pod__kept_for_latency=True)),
    }
    for name in _MEANS:
        seconds = Cast(F("measured_seconds"), FloatField())
        there = Q(**{f"{name}__isnull": False})
        # By time: a pod that was there for a minute counts less than one that was for an hour.
        sums[f"sum_{name}"] = Sum(F(name) * seconds)
        sums[f"seconds_{name}"] = Sum("measured_seconds", filter=there)
    facts = _facts(window, filters, visibility)
    found: dict[tuple[Any, ...], dict[str, ServingSums]] = defaultdict(dict)
    for row in facts.order_by().values(*columns, "model").annotate(**sums):
        found[tuple(row[column] for column in columns)][row["model"]] = _sums(row)
    lookup = NameLookup(_BY)
    tables = [lookup.of(one, {ids[n] for ids in found}) for n, one in enumerate(_BY)]
    named: dict[ServiceKey, dict[str, ServingSums]] = {}
    for ids, models in found.items():
        key = ServiceKey(*(table[pk] for table, pk in zip(tables, ids, strict=True)))
        own = named.setdefault(key, {})
        for model, one in models.items():
            # Added and not set, so that two ids of one name would not hide each other.
            own.setdefault(model, ServingSums()).add(one)
    return named


def _sums(row: Mapping[str, Any]) -> ServingSums:
    found = ServingSums(row["sum_measured"] or 0, row["sum_measured_of_tokens"] or 0)
    found.is_marked = row["marked_pods"] > 0
    found.lacks_ttft = row["without_ttft"] > 0
    if row["least_ttft_ms"] is not None and not found.lacks_ttft:
        found.ttft_ms = (row["least_ttft_ms"], row["most_ttft_ms"])
    for name in _COUNTED:
        setattr(found, name, row[f"sum_{name}"])
    for name in _MEANS:
        setattr(found, name, (row[f"sum_{name}"] or 0.0, row[f"seconds_{name}"] or 0))
    return found


def serving_times(window: Window, *, filters: Filters, visibility: Visibility) -> list[ServingTime]:
    """Return the hours in which pods of services ran, oldest first.

    A service is a workload of which any series are there in the window. Two queries. Raises
    GroupingRefused as `check_serving_window`.
    """
    check_serving_window(window)
    facts = _facts(window, filters, visibility)
    served: dict[tuple[datetime, int], tuple[int | None, ...]] = {
        (hour, workload): tuple(sums)
        for hour, workload, *sums in facts.order_by()
        .values_list("hour", "workload_id")
        .annotate(Count("pod_id", distinct=True), Sum("requests"), tokens=Sum(_BOTH))
    }
    ran = {
        (hour, workload): (kind, pods)
        for hour, workload, kind, pods in _running(window, filters, visibility, served)
    }
    by_hour: dict[datetime, list[tuple[datetime, int]]] = defaultdict(list)
    for key in {*served, *ran}:
        by_hour[key[0]].append(key)
    return [
        _serving_time(hour, [(*ran.get(key, ("", 0)), *served.get(key, _NOTHING)) for key in keys])
        for hour, keys in sorted(by_hour.items())
    ]


_NOTHING = (0, None, None)


def _running(
    window: Window,
    filters: Filters,
    visibility: Visibility,
    served: Iterable[tuple[datetime, int]],
) -> QuerySet[PodHour, tuple[datetime, int, str, int]]:
    """Return (hour, workload, its kind, pods that ran in it) of the workloads that served."""
    pods = PodHour.objects.filter(
        condition(_SERVING, filters, visibility),
        cluster__in=_clusters(filters).values("pk"),
        hour__gte=window.start,
        hour__lt=window.end,
        workload__in={workload for _, workload in served},
        # A pod that is only starting is no replica yet.
        allocated__gt=F("not_running"),
    )
    # A pod has a fact for each GPU model that it holds: it is one replica.
    counts = pods.order_by().values_list("hour", "workload_id", "workload__kind")
    return counts.annotate(Count("pod_id", distinct=True))


def _serving_time(hour: datetime, services: Iterable[tuple[Any, ...]]) -> ServingTime:
    """Sum up an hour of services: kind, pods that ran, pods with series, and what they served."""
    replicas = silent = 0
    sums: list[int | None] = [None, None]
    for kind, ran, told, *amounts in services:
        # A server that answers runs, whatever is known of its containers.
        replicas += max(ran, told)
        # In a gang one pod answers for all.
        silent += 0 if told and kind in GANG_KINDS else max(0, ran - told)
        for n, amount in enumerate(amounts):
            # What no server exported stays None: it is no zero.
            sums[n] = sums[n] if amount is None else (sums[n] or 0) + amount
    return ServingTime(hour, replicas, silent, *sums)


def last_requests(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[tuple[str, str, str], LastRequest]:
    """Return the last request of each service, by cluster, namespace and `Kind/name`.

    One query, and those for names.
    """
    by = _BY[:3]
    columns = tuple(one.column for one in by)
    rows = (
        _facts(window, filters, visibility)
        # Hours of which no series tell requests are neither with a request nor without one.
        .filter(requests__isnull=False)
        .order_by()
        .values_list(*columns)
        .annotate(at=Max("hour", filter=Q(requests__gt=0)), hours=Count("hour", distinct=True))
    )
    found = {row[:3]: LastRequest(row[3], row[4]) for row in rows}
    lookup = NameLookup(by)
    tables = [lookup.of(one, {ids[n] for ids in found}) for n, one in enumerate(by)]
    return {
        (tables[0][cluster], tables[1][space], tables[2][work]): one
        for (cluster, space, work), one in found.items()
    }


def serving_states(window: Window, *, filters: Filters) -> dict[str, int]:
    """Return how many hours with facts are of each `ServingState`; "" was not asked for.

    Everybody may see how complete the data is. One query.
    """
    rows = CollectionWindow.objects.filter(
        HAS_FACTS,
        cluster__in=_clusters(filters).values("pk"),
        hour__gte=window.start,
        hour__lt=window.end,
    )
    counts = rows.order_by().values_list("serving").annotate(Count("pk"))
    # Every state is told, also with no hour: a page need not ask which there are.
    return {**dict.fromkeys(["", *ServingState], 0), **dict(counts)}


def _clusters(filters: Filters) -> QuerySet[Cluster, Cluster]:
    clusters = Cluster.objects.order_by()
    return clusters.filter(name__in=filters.cluster) if filters.cluster else clusters


def _facts(
    window: Window, filters: Filters, visibility: Visibility
) -> QuerySet[ServingHour, ServingHour]:
    # The table has no node: that of a pod is with the pod.
    where = condition(_SERVING, replace(filters, node=()), visibility)
    if filters.node:
        where &= Q(pod__node_name__in=filters.node)
    return ServingHour.objects.filter(
        where,
        cluster__in=_clusters(filters).values("pk"),
        hour__gte=window.start,
        hour__lt=window.end,
    )
