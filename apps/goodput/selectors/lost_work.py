"""What pods lost hour by hour, from their runs, and what of them no watch saw."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.goodput.domain.ledger import (
    NOTHING_LOST,
    LostSpan,
    PodHistory,
    PodRuns,
    RunAmounts,
    lost_in_hour,
    runs_of,
)
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors import held_by_pods, running_hours

HISTORY_COLUMNS = (
    *("bound_at", "ended_at", "end_reason", "runs", "exits", "checkpoints"),
    "saved_states__times",
)
"""The columns of a pod that `pod_history` takes."""
# Of one that went in a gap of the watch the end is a guess, and its reason unknown.
UNSEEN = Q(observed_until__isnull=False) | Q(lost=True)
"""Pods whose restarts and ends no watch saw."""


class LostPart(NamedTuple):
    """What one failure cost of an hour of a pod; `of` are the values of the columns asked for.

    `checkpointed`: it cost what came after a known checkpoint, not the whole run.
    """

    pod: int
    hour: datetime
    span: LostSpan
    amounts: RunAmounts
    of: tuple[Any, ...]
    checkpointed: bool


def lost_parts(
    window: Window, *, columns: Sequence[str], filters: Filters, visibility: Visibility
) -> Iterator[LostPart]:
    """Yield what was lost of the window, hour by hour. Two queries.

    Only hours that are kept by the pod, of teams that the reader sees.
    """
    pods = pods_with_losses(window)
    runs = dict(_runs(pods, window))
    facts = running_hours(pods, window, columns=columns, filters=filters, visibility=visibility)
    for pod, hour, amounts, *of in facts:
        of_pod = runs.get(pod)
        # A pod that ended between the two queries is lost with the next reading.
        if of_pod is None or not (of_pod.lost or of_pod.waited):
            continue
        lost = lost_in_hour(RunAmounts(*amounts), of_pod, hour.timestamp())
        for span, part in lost.items():
            checkpointed = span.failed in of_pod.checkpointed
            yield LostPart(pod, hour, span, part, tuple(of), checkpointed)


def unwatched_amounts(
    window: Window, *, columns: Sequence[str], filters: Filters, visibility: Visibility
) -> Mapping[tuple[Any, ...], int]:
    """Return what pods held whose restarts and ends no watch saw, by the values of `columns`.

    Nano-GPU-hours. One query.
    """
    pods = Pod.objects.filter(UNSEEN, bound_at__lt=window.end)
    return held_by_pods(pods, window, columns=columns, filters=filters, visibility=visibility)


def pods_with_losses(window: Window) -> QuerySet[Pod, Pod]:
    """Return the pods of the window of which a run was lost, in it or after it."""
    there = Q(ended_at__isnull=True) | Q(ended_at__gte=window.start)
    # A second run: the first one ended in a restart.
    lost = Q(runs__1__isnull=False) | Q(exits__0__isnull=False)
    lost |= Q(ended_at__isnull=False) & ~Q(end_reason__in=NOTHING_LOST)
    return Pod.objects.filter(there, lost, bound_at__lt=window.end)


def _runs(pods: QuerySet[Pod, Pod], window: Window) -> Iterator[tuple[int, PodRuns]]:
    """Yield each pod's runs. One query."""
    for pk, *of_pod in pods.order_by().values_list("pk", *HISTORY_COLUMNS).iterator():
        yield pk, runs_of(pod_history(of_pod, window.end_seconds))


def pod_history(values: Sequence[Any], end: float) -> PodHistory:
    """Return what is known of a pod by its `HISTORY_COLUMNS`; one that lasts has run until `end`.

    `end` is in Unix seconds.
    """
    bound, ended, reason, spans, exits, annotated, shown = values
    # What is known of a pod that lasts goes on after the window: its runs end where they do.
    times = [at for span in spans for at in span if at is not None]
    # An exit may lie within a run that goes on: a container that is started again within a second.
    times += [at + 1.0 for at, _ in exits or ()]
    until = ended.timestamp() if ended else max(end, *times, 0.0)
    return PodHistory(
        (bound.timestamp(), until),
        ended=ended is not None,
        reason=reason,
        spans=spans,
        exits=[(at, why) for at, why in exits or ()],
        checkpoints=(*(annotated or ()), *(shown or ())),
    )
