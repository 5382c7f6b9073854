"""Joining what `watch` saw with what kube-state-metrics saw while it was away."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from apps.clusters.domain.pods.ledger import NodeInterval, PodRecord
from apps.clusters.domain.time_spans import Span, clip, union


def gaps(watched: Iterable[Span], start: float, end: float, *, tolerance: float) -> list[Span]:
    """Return the spans of start..end longer than `tolerance` seconds that nobody watched."""
    found = []
    at = start
    for a, b in union(clip(watched, start, end)):
        if a - at > tolerance:
            found.append((at, a))
        at = max(at, b)
    if end - at > tolerance:
        found.append((at, end))
    return found


def merge_pods(recorded: Iterable[PodRecord], inferred: Iterable[PodRecord]) -> list[PodRecord]:
    """Return every pod once, by uid; what the API said wins.

    A pod that the API saw and whose end nobody watched takes the end that the series show.
    """
    seen = {pod.uid: pod for pod in inferred}
    merged = []
    for pod in recorded:
        other = seen.pop(pod.uid, None)
        merged.append(_with_end(pod, other) if other is not None else pod)
    merged.extend(seen.values())
    return sorted(merged, key=lambda pod: pod.uid)


def _with_end(pod: PodRecord, other: PodRecord) -> PodRecord:
    if pod.bound is None and other.bound is not None:
        # Series know nothing of claims.
        requests = pod.requests if pod.claims else other.requests
        return replace(other, owner=pod.owner, requests=requests, claims=pod.claims)
    if pod.ended is None and other.ended is not None:
        return replace(pod, finished=other.finished, deleted=other.deleted)
    return pod


def merge_intervals(
    recorded: Iterable[NodeInterval],
    inferred: Iterable[NodeInterval],
    unwatched: Sequence[Span],
    *,
    tolerance: float,
) -> list[NodeInterval]:
    """Return the API's intervals where somebody watched, the series' intervals in the gaps.

    A hole of at most `tolerance` seconds between two intervals of a node belongs to the first: a
    watch that was taken up again did not see in it. Series that carry no node labels borrow
    those that the API showed, and always the devices of ResourceSlices, which no series has.
    """
    merged = []
    labels, devices = {}, {}
    for interval in recorded:
        labels[interval.node], devices[interval.node] = interval.labels, interval.devices
        at = interval.start
        for a, b in (*clip(unwatched, interval.start, interval.end), (interval.end, interval.end)):
            if a > at:
                merged.append(replace(interval, start=at, end=a))
            at = max(at, b)
    for interval in inferred:
        known = {**labels.get(interval.node, {}), **interval.labels}
        offered = devices.get(interval.node, ())
        merged.extend(
            replace(interval, start=a, end=b, labels=known, devices=offered)
            for a, b in clip(unwatched, interval.start, interval.end)
        )
    merged.sort(key=lambda interval: (interval.node, interval.start))
    return _bridged(merged, tolerance)


def _bridged(intervals: list[NodeInterval], tolerance: float) -> list[NodeInterval]:
    for place, (one, other) in enumerate(pairwise(intervals)):
        if one.node == other.node and 0 < other.start - one.end <= tolerance:
            intervals[place] = replace(one, end=other.start)
    return intervals
