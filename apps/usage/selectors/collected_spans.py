"""How many hours of each cluster were asked for and have facts, and which are not complete."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.usage.domain.collection import CollectionState
from apps.usage.models import HAS_FACTS, CollectionWindow, TierHour
from gpuportal.queries import QueryOfTimes, read_once


class CollectedSpan(NamedTuple):
    """The first and last hour ever asked for of a cluster, and of those with facts.

    `in_window` is how many of those asked for lie in the window, `with_facts` and `before` how many
    of it and of another one have facts.
    """

    cluster: str
    first: datetime | None
    last: datetime | None
    in_window: int = 0
    first_facts: datetime | None = None
    last_facts: datetime | None = None
    with_facts: int = 0
    before: int = 0
    ready: bool = False


_COMPLETE = CollectionState.COMPLETE.value
_FAILED = CollectionState.FAILED.value
_Spans = Mapping[int, CollectedSpan]
_Troubled = Mapping[tuple[int, datetime], str]


def _collected_query(
    start: datetime, end: datetime, before_start: datetime, before_end: datetime
) -> QuerySet[Cluster, Any]:
    """Return (trouble, cluster, its name, then what a CollectedSpan has), to be compiled once."""
    inside = Q(hour__gte=start, hour__lt=end)
    compared = Q(hour__gte=before_start, hour__lt=before_end)
    hours = CollectionWindow.objects.filter(cluster=OuterRef("pk"))
    # Ends of an index and ranges of it: of years of hours only those of the windows are read.
    spans = Cluster.objects.annotate(
        trouble=Value("", output_field=CharField()),
        first=_end_of(hours, "hour"),
        last=_end_of(hours, "-hour"),
        in_window=_count_of(hours, inside),
        first_facts=_end_of(hours.filter(HAS_FACTS), "hour"),
        last_facts=_end_of(hours.filter(HAS_FACTS), "-hour"),
        with_facts=_count_of(hours, HAS_FACTS & inside),
        before=_count_of(hours, HAS_FACTS & compared),
        ready=Exists(TierHour.objects.all()),
    ).order_by()
    troubled = CollectionWindow.objects.filter(inside).exclude(state=_COMPLETE).order_by()
    nothing = Value(None, output_field=DateTimeField())
    each = troubled.annotate(
        # No figure of a contradictory hour is in any sum, as of one that failed.
        trouble=Case(When(withheld=True, then=Value(_FAILED)), default=F("state")),
        first=F("hour"),
        **dict.fromkeys(("last", "first_facts", "last_facts"), nothing),
        **dict.fromkeys(("in_window", "with_facts", "before"), Value(0)),
        ready=Value(False),  # noqa: FBT003 - as Django has it
    )
    columns = ("trouble", "cluster_id", "cluster__name", *CollectedSpan._fields[1:])
    of_clusters = spans.values_list("trouble", "pk", "name", *CollectedSpan._fields[1:])
    return of_clusters.union(each.values_list(*columns), all=True)


_COLLECTED = QueryOfTimes(Cluster, _collected_query, 4)


@read_once
def collected_spans(window: Window, before: Window | None) -> tuple[_Spans, _Troubled]:
    """Return the hours of each cluster, and the state of every hour that is not complete.

    Those are few, also in a long window. One query.
    """
    other = (before.start, before.end) if before else (window.start, window.start)
    found = _COLLECTED.rows(window.start, window.end, *other)
    known: dict[int, CollectedSpan] = {}
    states: dict[tuple[int, datetime], str] = {}
    for trouble, pk, *span in found:
        of_row = CollectedSpan(*span)
        if of_row.first is None:  # no hour was ever asked for
            continue
        if trouble:
            states[pk, of_row.first] = trouble
        else:
            known[pk] = of_row
    return known, states


def _end_of(hours: QuerySet[CollectionWindow], order: str) -> Subquery:
    return Subquery(hours.order_by(order).values("hour")[:1])


def _count_of(hours: QuerySet[CollectionWindow], where: Q) -> Coalesce:
    counts = hours.filter(where).order_by().values("cluster").annotate(count=Count("pk"))
    return Coalesce(Subquery(counts.values("count")), 0)
