"""The pod ledger as kube-state-metrics series tell it.

Their values are exact times (created, scheduled, started, completed); what has no value, such as
the end of a pod that was deleted while it ran, is estimated from how many samples there are.
Everything about a slot is taken from that slot and the start of the next one, so that an hour
gives the same whether it is read alone or as part of a day. Times are Unix seconds.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct, field

from apps.clusters.domain.gpu_shares import hami_parts, in_parts
from apps.clusters.domain.pods.ledger import LastSeen, Owner, PodRecord, PodSource
from apps.clusters.domain.resources import GPU, GPU_MEMORY, desanitise, sanitise
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, union

# How far past the window is looked: what happened before its end shows at the next scrape only.
# Shorter than the settling delay after which an hour is collected.
READ_AHEAD_SECONDS = 90
# Samples that may lack without meaning anything: the phase of the scrapes, and one that failed.
TOLERATED_SAMPLES = 1.5
# A pod that lived shorter than this may be missed; a longer hole is time without data.
LARGEST_HOLE_SECONDS = 90.0
# One scrape that fails doubles the spacing. Two that fail are a hole.
_HOLE_INTERVALS = 2.5
SUCCEEDED = "Succeeded"
_NO_OWNER = {"", "<none>"}
# Series may name owners in a circle: names are used again, and these have no UIDs.
_MOST_OWNERS = 5

Samples = Mapping[int, float]
"""Number of samples by slot."""


class SeriesCoverage(Struct, frozen=True):
    """When kube-state-metrics was there.

    `full` gives by slot how many samples a series has that was there throughout; none where it
    was away. `after` says that it was seen shortly after the window, too. `scrapes` gives the
    times of the samples of one such series by slot, where they are known.
    """

    slots: Sequence[int]
    full: Samples
    after: bool = False
    scrapes: Mapping[int, Sequence[float]] = field(default_factory=dict)

    def covers(self, slot: int) -> bool:
        """Say whether kube-state-metrics was seen in that slot at all."""
        return self.full.get(slot, 0.0) > 0.0

    def complete(self, slot: int) -> bool:
        """Say whether kube-state-metrics was seen throughout that slot.

        Where it is scraped slowly one scrape may fail, as at any other interval. Without the
        times of its scrapes, being seen at all must do.
        """
        times = self.scrapes.get(slot, ())
        if not times or not self.covers(slot):
            return self.covers(slot)
        spacings = [b - a for a, b in pairwise(times)]
        usual = _usual_spacing(times)
        edges = (times[0] - slot, slot + SLOT_SECONDS - times[-1])
        return max(*spacings, *edges) <= max(LARGEST_HOLE_SECONDS, _HOLE_INTERVALS * usual)

    def interval(self, slot: int) -> float:
        """Return the seconds that one sample stands for in a covered slot."""
        return SLOT_SECONDS / self.full[slot]

    def vanished(self, samples: Samples, created: float | None, *, after: bool) -> float | None:
        """Return when an object went; None when it was still there at the end of the window.

        `after` says that it was seen shortly after the window. Without samples after the window, an
        object counts as still there unless it lacks samples at the end.
        """
        seen = [slot for slot, count in samples.items() if count > 0 and self.covers(slot)]
        if after or not seen:
            return None
        last = max(seen)
        looked_later = self.after or any(self.covers(slot) for slot in self.slots if slot > last)
        begin = max(float(last), created or 0.0)
        lacking = (last + SLOT_SECONDS - begin) / self.interval(last) - samples[last]
        if not looked_later and lacking < TOLERATED_SAMPLES:
            return None
        return self.reached(last, samples[last], begin)

    def last_seen(self, samples: Samples, created: float | None, *, after: bool) -> LastSeen | None:
        """Return until when an object was seen; None where no slot shows it.

        Other than `vanished` this is the same in whatever window the object's last slot is read.
        An object that `after` shows is in the samples of the next slot, which will say more.
        """
        seen = [slot for slot, count in samples.items() if count > 0 and self.covers(slot)]
        if after:
            return LastSeen(float(self.slots[-1] + SLOT_SECONDS), gone=False)
        if not seen:
            return None
        last = max(seen)
        end = float(last + SLOT_SECONDS)
        begin = max(float(last), created or 0.0)
        until = self._scraped_until(last)
        lacking = (end - begin) / self.interval(last) - samples[last]
        if until == end and lacking < TOLERATED_SAMPLES and not self._followed(last):
            return LastSeen(end, gone=True)
        # To the millisecond, which a database keeps as it is: rows are joined time and again.
        at = round(self.reached(last, samples[last], begin), 3)
        return LastSeen(min(at, max(begin, until)), gone=True)

    def _scraped_until(self, slot: int) -> float:
        """Return the end of a slot, or its last scrape where it has none up to its end.

        An hour is read before its last samples are there while Prometheus is behind. It must claim
        no more than they show: of what hours say about an object the latest time stays.
        """
        times = self.scrapes.get(slot, ())
        end = float(slot + SLOT_SECONDS)
        if len(times) < 2 or end - times[-1] <= TOLERATED_SAMPLES * _usual_spacing(times):
            return end
        return times[-1]

    def _followed(self, slot: int) -> bool:
        """Say whether kube-state-metrics was seen shortly after a slot."""
        following = slot + SLOT_SECONDS
        if slot == self.slots[-1]:
            return self.after
        times = self.scrapes.get(following, ())
        if not times:
            return self.covers(following)
        return times[0] < following + READ_AHEAD_SECONDS

    def reached(self, slot: int, count: float, begin: float) -> float:
        """Return until when something lasted that began at `begin` and has `count` samples.

        It ended between the last scrape that shows it and the next one; the middle of the two
        is the estimate without bias. It lies within the slot, so that no other hour than the
        one that shows the samples has a part in it.
        """
        times = self.scrapes.get(slot, ())
        end = float(slot + SLOT_SECONDS)
        if not times:
            return min(end, begin + count * self.interval(slot))
        spacing = self.interval(slot) * self.full[slot] / len(times)
        # Copies of kube-state-metrics multiply the samples of everything alike.
        place = bisect_left(times, begin) + count * len(times) / self.full[slot] - 0.5
        if place < 0.0:
            return begin
        low = min(int(place), len(times) - 1)
        high = times[low + 1] if low + 1 < len(times) else times[low] + spacing
        return min(end, max(begin, times[low] + (place - low) * (high - times[low])))


def _usual_spacing(times: Sequence[float]) -> float:
    """Return the median of the seconds between scrapes; 0 of fewer than two."""
    spacings = [b - a for a, b in pairwise(times)]
    return median(spacings) if spacings else 0.0


class PodSeries(Struct):
    """The facts that series give about one pod; the reader of the series fills them in.

    `requests` and `init_requests` hold units by container and resource as kube-state-metrics
    writes it. `samples` counts its presence by slot, `after` whether it was seen shortly after
    the window. `starts` is the earliest start of a GPU container that each slot shows (under
    the window's end: what was seen after it), `running` how many samples show one running.
    `terminal` is the phase Succeeded or Failed once it was reached, `terminal_samples` how many
    samples of each slot show that. `unschedulable` says whether any sample shows that a scheduler
    refused the pod, or that it was gated. `of_each_gpu` holds by container what is asked of each
    GPU that HAMi shares, under the resources' real names; `given_mib` is what HAMi gave in all,
    `given_gpus` of which GPUs (UUIDs), where that is known, and `gpu_mib` what one GPU has.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    requests: dict[str, dict[str, float]] = field(default_factory=dict)
    init_requests: dict[str, dict[str, float]] = field(default_factory=dict)
    sidecars: set[str] = field(default_factory=set)
    created: float | None = None
    bound: float | None = None
    started: float | None = None
    completed: float | None = None
    terminal: str = ""
    owner: Owner | None = None
    priority_class: str = ""
    samples: dict[int, float] = field(default_factory=dict)
    after: bool = False
    starts: dict[int, float] = field(default_factory=dict)
    running: dict[int, float] = field(default_factory=dict)
    terminal_samples: dict[int, float] = field(default_factory=dict)
    unschedulable: bool = False
    of_each_gpu: dict[str, dict[str, float]] = field(default_factory=dict)
    given_mib: float = 0.0
    given_gpus: tuple[str, ...] = ()
    gpu_mib: float = 0.0


class OptionalSeries(Struct, frozen=True):
    """Which optional series the cluster has at all; without them, others stand in."""

    phases: bool = True
    starts: bool = True
    running: bool = True


def pod_record(
    pod: PodSeries,
    coverage: SeriesCoverage,
    *,
    known: OptionalSeries,
    named: Collection[str] = (),
    owners: Mapping[tuple[str, str, str], Owner] | None = None,
) -> PodRecord | None:
    """Return the record of a pod; None when it asked for nothing.

    One that is still listed after it completed has a record in every window: another hour may
    have seen it last before that, and then knows its end from here alone.

    `named` are resources that tiers name, `owners` maps (namespace, kind, name) of a controller
    to its own owner.
    """
    start, end = float(coverage.slots[0]), float(coverage.slots[-1] + SLOT_SECONDS)
    _drop_earlier_pod(pod)
    created = _created(pod, start)
    requests = _held_units(pod, named)
    if not requests or created >= end:
        return None
    bound = _bound(pod, created)
    deleted = coverage.vanished(pod.samples, pod.created, after=pod.after)
    finished = _finished(pod, coverage, bound, known)
    if _estimated_before(pod, finished, start) and _ran(pod, known):
        return None  # It may have run: an earlier window shows until when.
    if deleted is not None:
        deleted = max(deleted, finished or 0.0, bound or 0.0, created)
    ended = finished if finished is not None else deleted
    runs = _runs(pod, coverage, bound, ended, known)
    return PodRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        owner=_top_owner(pod, owners or {}),
        requests=requests,
        created=created,
        node=pod.node,
        bound=bound,
        started=_started(pod, runs, end),
        finished=finished,
        deleted=deleted,
        runs=runs,
        end_reason=_end_reason(pod, finished),
        priority_class=pod.priority_class,
        source=PodSource.METRICS,
        last_seen=coverage.last_seen(pod.samples, pod.created, after=pod.after),
        estimated=_estimated(pod, bound, finished),
        unschedulable=pod.unschedulable,
        gpus=pod.given_gpus,
    )


def _drop_earlier_pod(pod: PodSeries) -> None:
    """Drop the end and the starts that series have of an earlier pod with the same uid.

    Of two pods with one uid in a window the later one counts; the earlier one must not end it.
    """
    if pod.completed is None or pod.created is None or pod.completed >= pod.created:
        return
    # A node whose clock is behind also seems to end pods before they were made; on it no container
    # starts after the end, and what ended stays so.
    if max(pod.starts.values(), default=0.0) > pod.completed:
        pod.starts = {slot: at for slot, at in pod.starts.items() if at > pod.completed}
        pod.completed, pod.terminal = None, ""


def _held_units(pod: PodSeries, named: Collection[str]) -> dict[str, float]:
    """Return resource → units that a pod holds, of GPUs that HAMi shares its part."""
    requests = effective_units(pod, named)
    if pod.given_mib:
        return in_parts(requests, {GPU_MEMORY: pod.given_mib})
    if not pod.of_each_gpu:
        return requests
    gpu = sanitise(GPU)
    containers = (
        {**pod.of_each_gpu.get(name, {}), GPU: units.get(gpu, 0.0)}
        for name, units in pod.requests.items()
    )
    return in_parts(requests, hami_parts(containers, pod.gpu_mib))


def effective_units(pod: PodSeries, named: Collection[str] = ()) -> dict[str, float]:
    """Return resource → units that a pod holds: max(sum of containers, each init container).

    Sidecars (init containers that keep running) add to the containers. The series do not tell
    the order of init containers, so none is added to the sidecars before it.
    """
    running: dict[str, float] = {}
    for requests in (
        *pod.requests.values(),
        *(units for name, units in pod.init_requests.items() if name in pod.sidecars),
    ):
        for resource, units in requests.items():
            running[resource] = running.get(resource, 0.0) + units
    for name, requests in pod.init_requests.items():
        if name not in pod.sidecars:
            for resource, units in requests.items():
                running[resource] = max(running.get(resource, 0.0), units)
    return {
        desanitise(resource, named): units
        for resource, units in sorted(running.items())
        if units > 0
    }


def _estimated(pod: PodSeries, bound: float | None, finished: float | None) -> frozenset[str]:
    times = {
        "created": pod.created is None,
        "bound": bound is not None and pod.bound is None,
        "finished": finished is not None and pod.completed is None,
    }
    return frozenset(name for name, estimated in times.items() if estimated)


def _created(pod: PodSeries, start: float) -> float:
    # Times are exact, samples are not: a pod may be older than the first scrape that shows it.
    known = [at for at in (pod.created, pod.bound, pod.started) if at is not None]
    return known[0] if known else max(start, float(min(pod.samples, default=int(start))))


def _bound(pod: PodSeries, created: float) -> float | None:
    """Return the time of scheduling; where that is not exported, the next best there is."""
    if pod.bound is not None or not pod.node:
        return pod.bound
    # Its GPUs were held from before it started; the creation would count pending time as held.
    return created if pod.started is None else pod.started


def _finished(
    pod: PodSeries, coverage: SeriesCoverage, bound: float | None, known: OptionalSeries
) -> float | None:
    """Return when its containers had all finished.

    A completion time alone proves nothing: it also shows while one container of several has
    ended, or between two runs of one. A pod that ended without running (refused by the kubelet)
    has none; its end is estimated from how long it has been seen failed.
    """
    if pod.terminal or not known.phases:
        if pod.completed is not None:
            return pod.completed
        if pod.terminal:
            return _seen_to_end(pod, coverage, bound)
    return None


def _estimated_before(pod: PodSeries, finished: float | None, start: float) -> bool:
    """Say whether a pod was over when the window began, and nothing tells since when."""
    return finished is not None and finished <= start and pod.completed is None


def _ran(pod: PodSeries, known: OptionalSeries) -> bool:
    return bool(pod.starts) or (not known.starts and pod.started is not None)


def _seen_to_end(pod: PodSeries, coverage: SeriesCoverage, bound: float | None) -> float | None:
    ended = [slot for slot, count in pod.terminal_samples.items() if count > 0]
    if not ended:
        return None
    first = min(ended)
    if not coverage.covers(first):
        return float(first)
    begin = max(float(first), pod.created or 0.0)
    alive = pod.samples.get(first, 0.0) - pod.terminal_samples[first]
    end = round(coverage.reached(first, alive, begin), 3) if alive > 0 else begin
    return max(end, bound or 0.0)


def _end_reason(pod: PodSeries, finished: float | None) -> str:
    if finished is None or not pod.terminal:
        return ""
    return "Completed" if pod.terminal == SUCCEEDED else pod.terminal


def _top_owner(pod: PodSeries, owners: Mapping[tuple[str, str, str], Owner]) -> Owner:
    """Follow the owners as far as the series tell; a bare pod is its own."""
    owner = pod.owner
    if owner is None or owner.kind in _NO_OWNER:
        return Owner("Pod", pod.name)
    for _ in range(_MOST_OWNERS):
        above = owners.get((pod.namespace, owner.kind, owner.name))
        if above is None or above.kind in _NO_OWNER:
            break
        owner = above
    return owner


# ---------------------------------------------------------------- runs


def _runs(
    pod: PodSeries,
    coverage: SeriesCoverage,
    bound: float | None,
    ended: float | None,
    known: OptionalSeries,
) -> tuple[tuple[float, float | None], ...]:
    """Return the spans in which a GPU container ran; None ends one that still runs."""
    if bound is None:
        return ()
    # Without the start of containers a pod counts as running from its own start to its end.
    if not known.starts:
        ran = pod.started is not None and (ended is None or ended > pod.started)
        return ((float(pod.started or 0.0), ended),) if ran else ()
    window_end = float(coverage.slots[-1] + SLOT_SECONDS)
    until = window_end if ended is None else min(ended, window_end)
    spans: list[TimeSpan] = []
    for slot in coverage.slots:
        if slot >= until:
            break
        carried = bool(spans) and spans[-1][1] == slot and not coverage.covers(slot)
        span = (
            (float(slot), min(until, float(slot + SLOT_SECONDS)))
            if carried
            else _run_in(pod, coverage, slot, until, known)
        )
        if span is not None and span[1] > span[0]:
            spans.append(span)
    merged = union(spans)
    if not merged or ended is not None or merged[-1][1] < window_end:
        return merged
    return (*merged[:-1], (merged[-1][0], None))


def _started(
    pod: PodSeries, runs: tuple[tuple[float, float | None], ...], end: float
) -> float | None:
    """Return the first start of a GPU container before the end of the window."""
    exact = [at for at in pod.starts.values() if at < end]
    return min(exact) if exact else runs[0][0] if runs else None


def _run_in(
    pod: PodSeries, coverage: SeriesCoverage, slot: int, until: float, known: OptionalSeries
) -> TimeSpan | None:
    """Return when a GPU container ran in one slot; None when none did.

    Where every sample there could be shows it running, the run reaches from its exact start to
    the end; else (it restarts, or crashes) it is as long as it has running samples.
    """
    end = min(until, float(slot + SLOT_SECONDS))
    start = pod.starts.get(slot)
    if start is None:
        # Started after the slot's last scrape: the next slot shows when.
        start = pod.starts.get(slot + SLOT_SECONDS)
        return (start, end) if start is not None and slot <= start < end else None
    if start >= end or not coverage.covers(slot):
        return None
    begin = max(start, float(slot))
    interval = coverage.interval(slot)
    count = pod.running.get(slot, 0.0)
    if not known.running or (end - begin) / interval - count < TOLERATED_SAMPLES:
        return start, end
    return (begin, min(end, begin + count * interval)) if count > 0 else None


def presence(*counts: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return by slot the largest of some counts: the samples of what was there throughout."""
    full: dict[int, float] = {}
    for some in counts:
        for slot, count in some:
            full[slot] = max(full.get(slot, 0.0), count)
    return full
