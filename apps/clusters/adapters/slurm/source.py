"""A Slurm cluster, known by its job log alone: who held which GPUs, and what was pending.

No device series belong to it: what jobs did with their GPUs has no metrics.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.adapters.slurm.job_log import LogRejected, SlurmJob, jobs_of, read_text
from apps.clusters.adapters.slurm.node_events import NodeEvent, events_of, spans_of
from apps.clusters.domain.host_lists import hosts_of
from apps.clusters.domain.pods.ledger import LastSeen, NodeInterval, Owner, PodRecord, PodSource
from apps.clusters.domain.pods.people import PersonSource, person_in
from apps.clusters.domain.resources import GPU, counted
from apps.clusters.domain.tiers import PRODUCT_LABEL
from apps.clusters.domain.window import Window
from apps.clusters.ports import (
    LedgerAnswer,
    MetricsSource,
    ShownColumn,
    SourceHealth,
    SourceRejected,
    SourceUnavailable,
)

JOB_KIND = "SlurmJob"
# Of activity there is none: whatever jobs did with their GPUs, no column tells.
COLUMNS_BEHIND: Mapping[str, Sequence[ShownColumn]] = {
    "holding": (
        ShownColumn("JobIDRaw", "One job; its steps, with a dot in their number, are left out"),
        ShownColumn("Account", "The namespace, in small letters with dashes"),
        ShownColumn("Submit", "When it became pending"),
        ShownColumn("Start, End", "From when to when it held its GPUs"),
        ShownColumn("AllocTRES", "gres/gpu: how many; ReqTRES before it started"),
        ShownColumn("NodeList", "On which nodes, evenly"),
    ),
    "capacity": (
        ShownColumn("slurm.nodes of the catalog", "GPUs of each node, there all the time"),
        ShownColumn(
            "NodeName, TimeStart, TimeEnd, State",
            "When a node was down or drained, where slurm.events names a file",
        ),
    ),
}
_MOST_STRANGE = 3
# Files need not be written at one time, and a job may have been left out of one.
_STALE_SECONDS = 86_400.0
# sacct lists the jobs of the last two days: until then a file that has none is of other partitions.
_LISTED_SECONDS = 2 * 86_400.0
# Kept in Slurm's own words, every job that just ended would count as failed and its work as lost.
_ENDS: Mapping[str, str] = {
    "COMPLETED": "Completed",
    "CANCELLED": "Deleted",
    "REVOKED": "Deleted",
    "TIMEOUT": "DeadlineExceeded",
    "DEADLINE": "DeadlineExceeded",
    "PREEMPTED": "Preempted",
    "NODE_FAIL": "NodeLost",
    "BOOT_FAIL": "NodeLost",
    "OUT_OF_MEMORY": "OOMKilled",
    "FAILED": "Error",
    "REQUEUED": "EvictionByEvictionAPI",
}
"""How jobs end, in the words that Kubernetes has for pods; others stay as Slurm writes them."""
# The log names users as they sign in, and no label of a pod.
_USER = PersonSource("User")


class SlurmNode(Struct, frozen=True):
    """A node of the catalog's entry: its GPUs and labels."""

    name: str
    gpus: int
    labels: Mapping[str, str]


class _File(Struct, frozen=True):
    """What a job log said when it was `written` (Unix seconds)."""

    path: str
    written: float
    jobs: tuple[SlurmJob, ...]
    strange: tuple[str, ...]
    partitions: frozenset[str]

    def is_of(self, other: "_File") -> bool:
        """Whether it and another file tell of the same partitions, as far as their jobs say."""
        return not self.partitions.isdisjoint(other.partitions)


class SlurmSource(MetricsSource):
    """Answers from files that sacct wrote, which stay as long as somebody keeps them.

    A job log has no devices, no activity, no quotas and no queues of Kueue.
    """

    def __init__(
        self, jobs: str, zone: ZoneInfo, nodes: Sequence[SlurmNode], events: str = ""
    ) -> None:
        self._pattern = jobs
        self._events_pattern = events
        self._zone = zone
        self._nodes = nodes
        self._read: dict[str, tuple[tuple[int, int], _File]] = {}

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> "SlurmSource":
        """Return the source that the catalog's entry describes."""
        nodes = [
            SlurmNode(host, int(group["gpus"]), _labels(group))
            for group in entry["nodes"]
            for host in hosts_of(str(group["names"]))
        ]
        zone = ZoneInfo(str(entry.get("time_zone") or "UTC"))
        return cls(str(entry["jobs"]), zone, nodes, str(entry.get("events") or ""))

    # ------------------------------------------------------------ the job log

    def ledger(
        self,
        window: Window,
        *,
        gpu_resources: Sequence[str] = (),
        label_keys: Sequence[str] = (),
    ) -> LedgerAnswer:
        """Return the jobs of a window as pods, and its nodes.

        Raises SourceUnavailable where the log ends before the window, or that of a partition was
        not written for less than a day, and SourceRejected where it cannot be read.
        """
        del gpu_resources, label_keys
        files = self._files()
        until = files[-1].written
        if until < window.end_seconds:
            raise SourceUnavailable(f"the job log ends at {_time(until)}")
        behind = [one for one in _newest(files) if one.written < window.end_seconds]
        for one in behind:
            if one.written >= until - _STALE_SECONDS and not _is_idle(one, files[-1]):
                ends = _time(one.written)
                raise SourceUnavailable(f"the job log of {_partitions(one)} ends at {ends}")
        jobs = _jobs_in(files, window)
        pods = [pod for one in jobs for pod in _pods(one, until)]
        events, strange = self._events(window)
        return LedgerAnswer(
            pods=pods,
            nodes=list(self._intervals(window, events)),
            covered=dict.fromkeys(window.slots(), True),
            warnings=(*_warnings(files), *_lost_warnings(jobs), *_old_warnings(behind), *strange),
        )

    def _intervals(self, window: Window, events: Sequence[NodeEvent]) -> Iterator[NodeInterval]:
        of_node: dict[str, list[NodeEvent]] = defaultdict(list)
        for event in events:
            of_node[event.node].append(event)
        for node in self._nodes:
            amounts = {GPU: float(node.gpus)}
            for span in spans_of(of_node.get(node.name, ()), window):
                yield NodeInterval(
                    node=node.name,
                    start=span.start,
                    end=span.end,
                    capacity=amounts,
                    allocatable=amounts,
                    labels=node.labels,
                    ready=span.ready,
                    schedulable=span.schedulable,
                    source=PodSource.METRICS,
                )

    def _events(self, window: Window) -> tuple[list[NodeEvent], list[str]]:
        """Return what the catalog's file of node events says, and what of it could not be read.

        Of files that a pattern names the one that was written last counts: each has all events.
        Raises SourceUnavailable where it ends before the window: a node that is not said to be
        down then may be.
        """
        if not self._events_pattern:
            return [], []
        paths = glob(self._events_pattern)  # noqa: PTH207 - as of the job log
        if not paths:
            raise SourceUnavailable(f"no file matches {self._events_pattern}")
        try:
            written, path = max((Path(path).stat().st_mtime, path) for path in paths)
            text = read_text(path)
        except OSError as error:
            raise SourceUnavailable(
                f"{self._events_pattern} cannot be read: {error.strerror}"
            ) from error
        if written < window.end_seconds:
            raise SourceUnavailable(f"the node events end at {_time(written)}")
        try:
            events, strange = events_of(text, self._zone)
        except LogRejected as error:
            raise SourceRejected(f"{path} {error}") from error
        return events, list(_line_warnings(path, strange))

    def _files(self) -> list[_File]:
        """Return the files of the log, the one that was written last at the end."""
        paths = glob(self._pattern)  # noqa: PTH207 - the catalog has a pattern, not a folder
        if not paths:
            raise SourceUnavailable(f"no file matches {self._pattern}")
        found = [self._file(path) for path in sorted(paths)]
        self._read = {path: self._read[path] for path in paths}
        return sorted(found, key=lambda one: one.written)

    def _file(self, path: str) -> _File:
        try:
            stat = Path(path).stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            known = self._read.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            text = read_text(path)
        except OSError as error:
            raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error
        try:
            jobs, strange, partitions = jobs_of(text, self._zone)
        except LogRejected as error:
            raise SourceRejected(f"{path} {error}") from error
        found = _File(path, stat.st_mtime, tuple(jobs), tuple(strange), partitions)
        self._read[path] = (stamp, found)
        return found

    def people(self, window: Window, sources: Sequence[PersonSource]) -> Mapping[str, str]:
        """Return uid → user of the jobs of a window, where the log has the column `User`.

        No source is needed to tell it: `sources` are labels of pods.
        """
        del sources
        files = self._files()
        return {
            pod.uid: person
            for one in _jobs_in(files, window)
            if (person := person_in(one.job.user, _USER))
            for pod in _pods(one, files[-1].written)
        }

    def health(self) -> SourceHealth:
        """Return until when the log tells."""
        return SourceHealth(f"job log until {_time(self._files()[-1].written)}")


class _SeenJob(NamedTuple):
    """A job as the last file that names it has it, written at `seen` (Unix seconds).

    `lost`: it was there then, and files of its partition of a day later do not have it.
    """

    job: SlurmJob
    seen: float
    lost: bool

    @property
    def gone(self) -> float:
        """When a lost job was there last."""
        return max(self.seen, self.job.started or self.job.submitted)


def _jobs_in(files: Sequence[_File], window: Window) -> list[_SeenJob]:
    """Return the jobs that were there in a window, by their number, and those that were lost.

    sacct lists all jobs that are there: one that later files lack went while none was written, and
    would else hold its GPUs for ever. Whatever the window, its end has to be told.
    """
    # What was written last knows best, as of a job that ran when an older file was written.
    jobs = {job.id: (job, one) for one in files for job in one.jobs}
    later = {
        one.path: [two for two in files if two.written > one.written + _STALE_SECONDS]
        for one in files
    }
    known = [
        _SeenJob(job, one.written, job.ended is None and _is_lost(job, one, later[one.path]))
        for job, one in jobs.values()
    ]
    return [
        one
        for one in sorted(known, key=lambda one: one.job.id)
        if one.job.submitted < window.end_seconds
        and (one.job.ended is None or one.job.ended > window.start_seconds)
    ]


def _is_lost(job: SlurmJob, last: _File, later: Sequence[_File]) -> bool:
    """Return whether files that would have a job lack it: that of another partition would not."""
    if job.partitions <= last.partitions and any(one.is_of(last) for one in later):
        return True
    named = frozenset[str]().union(*(one.partitions for one in later))
    if named or not later:
        return bool(later) and job.partitions <= named
    # Files without any job are those of a cluster on which nothing runs any more.
    return later[-1].written > last.written + _LISTED_SECONDS


def _is_idle(old: _File, newest: _File) -> bool:
    """Return whether a newer file without jobs may be of the whole cluster, that is idle since.

    That of another partition has none either; but what ran here of late is missing in it.
    """
    since = newest.written - _STALE_SECONDS
    return not newest.partitions and not any(
        one.ended is None or one.ended > since for one in old.jobs
    )


def _newest(files: Sequence[_File]) -> list[_File]:
    """Return the files after which no other of their partitions was written, oldest first."""
    return [
        one
        for place, one in enumerate(files)
        if one.jobs and not any(two.is_of(one) for two in files[place + 1 :])
    ]


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _partitions(one: _File) -> str:
    named = sorted(one.partitions)
    more = ", …" if len(named) > _MOST_STRANGE else ""
    return f"partition {', '.join(named[:_MOST_STRANGE])}{more}"


def _labels(group: Mapping[str, Any]) -> dict[str, str]:
    given = {str(key): str(value) for key, value in (group.get("labels") or {}).items()}
    return {PRODUCT_LABEL: str(group["model"]), **given}


def _pods(one: _SeenJob, until: float) -> Iterator[PodRecord]:
    """Yield a pod for each node of a job; one that is pending is one pod."""
    job = one.job
    ended = job.ended if job.ended is not None and job.ended <= until else None
    deleted = one.gone if one.lost else None
    over = ended if deleted is None else deleted
    count = max(1, len(job.nodes))
    for number, node in enumerate(job.nodes or ("",)):
        # The first keeps the name that it had while it was pending.
        suffix = f"-{number}" if number else ""
        held = job.started is not None and job.started <= until
        runs = ((job.started, over),) if held and job.started is not None else ()
        yield PodRecord(
            uid=f"slurm-{job.id}{suffix}",
            namespace=job.account,
            name=f"{job.id}{suffix}",
            owner=Owner(JOB_KIND, job.name[:253]),
            requests={GPU: job.gpus / count},
            created=job.submitted,
            node=node if held else "",
            bound=job.started if held else None,
            started=job.started if held else None,
            finished=ended,
            deleted=deleted,
            runs=runs,
            # Whether the work of a lost one failed is not known.
            end_reason=_ENDS.get(job.state, job.state) if ended is not None else "",
            priority_class=job.qos,
            source=PodSource.METRICS,
            queue=job.partition,
            gang=job.id if count > 1 else "",
            last_seen=LastSeen(one.seen if over is None else over, gone=over is not None),
        )


def _warnings(files: Sequence[_File]) -> Iterator[str]:
    for one in files:
        yield from _line_warnings(one.path, one.strange)


def _lost_warnings(jobs: Sequence[_SeenJob]) -> Iterator[str]:
    lost = [one.job.id for one in jobs if one.lost]
    if lost:
        shown = ", ".join(lost[:_MOST_STRANGE])
        yield (
            f"{counted(len(lost), 'job')} went while no file was written, and the end is not known "
            f"({shown}): write a file that has that time"
        )


def _old_warnings(behind: Sequence[_File]) -> Iterator[str]:
    for one in behind:
        yield (
            f"no file of {_partitions(one)} was written since {_time(one.written)}: what ran then "
            f"counts as running, and later jobs are missing. Write one, or remove {one.path}"
        )


def _line_warnings(path: str, strange: Sequence[str]) -> Iterator[str]:
    if strange:
        shown = "; ".join(strange[:_MOST_STRANGE])
        yield f"{path}: {counted(len(strange), 'line')} could not be read ({shown})"
