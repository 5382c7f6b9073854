"""What is known of a pod, joined over time, and for which time it changed."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.kube_objects import Run, tidy_runs
from apps.clusters.domain.pods.ledger import ContainerExit, LastSeen, Owner, PodRecord
from apps.clusters.domain.window import TimeSpan

# How near to the top an owner is. Deployments, CronJobs and custom kinds own these.
_RANK = {"Pod": 0, "ReplicaSet": 1, "Job": 2}


def updated(known: PodRecord, seen: PodRecord, *, at: float, vague: bool = False) -> PodRecord:
    """Return `known` after the API showed `seen`, a later look at the same pod, at time `at`.

    Exact times once known stay; runs that the status has forgotten since are kept, and so is an
    owner that has gone since. The same look twice changes nothing.

    `vague`: the look shows that the pod is over and not when one of its GPU containers was. What
    is known to run then ran until now, whatever other containers did.

    A claim goes when its pod is over: what the pod was once seen to ask for by claims stays.
    """
    # `extended_runs` would close a known run that the status has lost: here it lasted.
    join = _all_runs if vague else extended_runs
    runs = join(known.runs, seen.runs)
    finished = _finished(known, seen, runs, at)
    deleted = known.deleted if known.deleted is not None else seen.deleted
    ended = finished if finished is not None else deleted
    starts = [t for t in (known.started, seen.started) if t is not None]
    requests, claims = _requested(known, seen)
    return replace(
        seen,
        requests=requests,
        claims=claims,
        owner=max(seen.owner, known.owner, key=lambda owner: _height(owner)[0]),
        created=known.created or seen.created,
        node=seen.node or known.node,
        bound=seen.bound if known.bound is None else known.bound,
        started=min(starts) if starts else None,
        unschedulable=known.unschedulable or seen.unschedulable,
        finished=finished,
        deleted=deleted,
        runs=closed_runs(runs, ended),
        end_reason=(seen.end_reason or known.end_reason) if ended is not None else "",
        # A pod keeps its GPUs, also where who reserves them is gone before it.
        gpus=seen.gpus or known.gpus,
        **_exits_and_checkpoints(runs, finished, known, seen),
    )


def _exits_and_checkpoints(
    runs: tuple[Run, ...], finished: float | None, *looks: PodRecord
) -> dict[str, Any]:
    """Return the exits of all looks before the end, and of checkpoints the last of each run."""
    exits = tuple(sorted({one for look in looks for one in look.exits if one.at != finished}))
    saved = {at for look in looks for at in look.checkpoints}
    return {"exits": exits, "checkpoints": last_of_runs(saved, runs, exits)}


def last_of_runs(
    saved: Iterable[float], runs: Sequence[Run], exits: Sequence[ContainerExit]
) -> tuple[float, ...]:
    """Return of checkpoints the last one of each run, in order."""
    # A run may be restarted within a second, which the runs do not show.
    edges = sorted({*(start for start, _ in runs), *(one.at for one in exits)})
    return tuple(sorted({bisect_left(edges, at): at for at in sorted(saved)}.values()))


def _requested(known: PodRecord, seen: PodRecord) -> tuple[Mapping[str, float], tuple[str, ...]]:
    """Return a pod's requests: as seen, unless claims are missing that it was known to have."""
    if set(known.claims) <= set(seen.claims):
        return seen.requests, seen.claims
    if set(seen.claims) <= set(known.claims):
        return known.requests, known.claims
    return _most(known.requests, seen.requests), _all_claims(known, seen)


def _most(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {r: max(one.get(r, 0.0), other.get(r, 0.0)) for r in sorted(one.keys() | other.keys())}


def _all_claims(one: PodRecord, other: PodRecord) -> tuple[str, ...]:
    return tuple(sorted({*one.claims, *other.claims}))


def extended_runs(known: tuple[Run, ...], seen: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return every run of both; `seen` tells what runs now and the last run of each container.

    A run known as open that `seen` shows neither as open nor as over ended during a gap of the
    watch: it is closed where the next run began.
    """
    runs: list[Run] = [*seen]
    for start, end in known:
        if end is None and not _covered(start, seen):
            end = min((other for other, _ in seen if other > start), default=None)
        elif end is None:
            continue
        runs.append((start, end))
    return tidy_runs(runs)


def _all_runs(known: tuple[Run, ...], seen: tuple[Run, ...]) -> tuple[Run, ...]:
    return tidy_runs((*known, *seen))


def _covered(start: float, runs: tuple[Run, ...]) -> bool:
    return any(a <= start and (b is None or start < b) for a, b in runs)


def closed_runs(runs: tuple[Run, ...], ended: float | None) -> tuple[Run, ...]:
    """Return runs of which the open one is closed at the end of the pod, if it has ended."""
    if ended is None:
        return runs
    return tidy_runs((start, ended if end is None else end) for start, end in runs)


def reopened(lost: PodRecord) -> PodRecord:
    """Return a pod that went during a gap of the watch, without the end that was assumed for it.

    The run that lasted until that end is open again. What series show of the pod in a window
    then says whether and when it ended there.
    """
    runs = tuple((a, None if b == lost.ended else b) for a, b in lost.runs)
    return replace(lost, finished=None, deleted=None, runs=runs)


def _finished(known: PodRecord, seen: PodRecord, runs: tuple[Run, ...], at: float) -> float | None:
    if seen.finished is None or known.finished is not None:
        both = [t for t in (known.finished, seen.finished) if t is not None]
        return max(both) if both else None
    if runs and runs[-1][1] is None:
        # Over, and the end of what ran is not told: all that is known is when that was seen.
        return max(at, seen.finished)
    return seen.finished


def merged_inferred(one: PodRecord, other: PodRecord) -> PodRecord:
    """Join what two hours of kube-state-metrics series say of one pod, in any order.

    Commutative, associative and idempotent, so hours may be collected in any order and again.
    An exact time replaces an estimate, which an hour makes where the series that tell it are
    missing; of several estimates the earliest stays. The deletion is always an estimate: the hour
    that saw the pod last decides, also when it says that the pod is still there. `runs` is one
    span from the first start to the end, for the series do not show restarts.
    """
    guessed = {}
    guessed["created"], created = min(_times_of("created", one, other))
    guessed["bound"], bound = min(_times_of("bound", one, other), default=(False, None))
    guessed["finished"], finished = finished_inferred(one, other)
    if guessed["finished"]:
        # No pod ends before it began, which an hour that estimated its end may not have known.
        began = (("created", created), ("bound", bound))
        finished = latest(finished, *(at for name, at in began if not guessed[name]))
    seen = max(last_seen(one), last_seen(other))
    deleted = max(seen.at, created, bound or 0.0, finished or 0.0) if seen.gone else None
    first = _earliest(one.started, other.started)
    runs: tuple[Run, ...] = ()
    if first is not None:
        end = finished if finished is not None else deleted
        # Never dropped, even when of no length: a later hour may know of a later end.
        runs = ((first, None if end is None else max(first, end)),)
    return replace(
        one,
        owner=max(one.owner, other.owner, key=_height),
        # The largest of both, here and below: hours may be stored in any order.
        requests=_most(one.requests, other.requests),
        claims=_all_claims(one, other),
        created=created,
        node=max(one.node, other.node),
        bound=bound,
        started=first,
        finished=finished,
        deleted=deleted,
        runs=runs,
        end_reason=max(one.end_reason, other.end_reason),
        priority_class=max(one.priority_class, other.priority_class),
        queue=max(one.queue, other.queue),
        gang=max(one.gang, other.gang),
        unschedulable=one.unschedulable or other.unschedulable,
        kept_for_latency=one.kept_for_latency or other.kept_for_latency,
        node_selector=max(one.node_selector, other.node_selector, key=lambda s: sorted(s.items())),
        last_seen=seen,
        estimated=frozenset(name for name, estimated in guessed.items() if estimated),
    )


def finished_inferred(one: PodRecord, other: PodRecord) -> tuple[bool, float | None]:
    """Return when a pod's containers had all finished, as two hours tell, after if it is estimated.

    A phase (`end_reason`) proves that a pod was over by then: the last completion of a container
    tells when, else no later than any hour shows the phase. Without phases the last completion is
    all that is known.
    """
    proven = _times_of("finished", *(pod for pod in (one, other) if pod.end_reason))
    exact = [at for estimated, at in proven if not estimated]
    if exact or not proven:
        return False, latest(*(exact or (one.finished, other.finished)))
    return min(proven)


def _times_of(name: str, *pods: PodRecord) -> list[tuple[bool, float]]:
    """Return what pods tell of a time, each after whether it is an estimate."""
    times = ((name in pod.estimated, getattr(pod, name)) for pod in pods)
    return [(estimated, at) for estimated, at in times if at is not None]


def last_seen(pod: PodRecord) -> LastSeen:
    """Return until when series showed a pod; of one of the API, what its times tell."""
    if pod.last_seen is not None:
        return pod.last_seen
    if pod.deleted is not None:
        return LastSeen(pod.deleted, gone=True)
    times = (pod.created, pod.bound, pod.started, pod.finished)
    return LastSeen(max(t for t in times if t is not None), gone=False)


def _height(owner: Owner) -> tuple[int, str, str]:
    return (_RANK.get(owner.kind, 3), owner.kind, owner.name)


def _earliest(*times: float | None) -> float | None:
    return min((t for t in times if t is not None), default=None)


def latest(*times: float | None) -> float | None:
    """Return the last of the times that are known; None without any."""
    return max((t for t in times if t is not None), default=None)


def changed_span(known: PodRecord | None, now: PodRecord) -> TimeSpan | None:
    """Return the time in which a pod counts otherwise by `now` than by `known`; None where never.

    Of a pod that was not known that is all its life.
    """
    if known is None:
        return (now.created, _end(now))
    if known.requests != now.requests or known.priority_class != now.priority_class:
        return (min(known.created, now.created), max(_end(known), _end(now)))
    times: list[float] = []
    if known.created != now.created:
        times += (known.created, now.created)
    if known.bound != now.bound:
        times += (at if at is not None else _end(now) for at in (known.bound, now.bound))
    if _end(known) != _end(now):
        times += (_end(known), _end(now))
    return (min(times), max(times)) if times else None


def hull(spans: Iterable[TimeSpan | None]) -> TimeSpan | None:
    """Return the shortest span that holds all of some; None without any."""
    found = [span for span in spans if span is not None]
    if not found:
        return None
    return (min(start for start, _ in found), max(end for _, end in found))


def _end(pod: PodRecord) -> float:
    """Return when a pod ended, or until when it was seen."""
    return pod.ended if pod.ended is not None else last_seen(pod).at
