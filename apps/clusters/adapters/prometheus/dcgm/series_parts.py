"""The parts of a window in which all series of devices have one family and one label scheme."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import (
    ACTIVITY,
    DCGM,
    DCGM_1,
    KNOWN_EXPORTERS,
    SIGNS,
    UTILIZATION,
    ExporterMetrics,
    exporters_with,
)
from apps.clusters.adapters.prometheus.dcgm.label_schemes import (
    EXPORTED,
    OLD,
    PLAIN,
    HolderLabels,
    LabelScheme,
    Pods,
    workload,
)
from apps.clusters.adapters.prometheus.http_api import MAX_STEPS, Matcher, by, one_of, over
from apps.clusters.adapters.prometheus.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.window import SLOT_SECONDS

UP = "up"  # 0 or 1, for each scrape target, with exactly the target's labels

_Plan = tuple[tuple[ExporterMetrics, LabelScheme, tuple[str, ...]], ...]


class SeriesPart(NamedTuple):
    """Some consecutive slots whose series, as far as `matchers` choose them, have one label scheme.

    `target_pods` are by slot the pods that are scrape targets, of slots where that is known. `jobs`
    are those that scrape the series, `levels` the levels' metrics that they show.
    """

    slots: Sequence[int]
    scheme: LabelScheme
    matchers: tuple[Matcher, ...]
    target_pods: Mapping[int, Pods] = MappingProxyType({})
    exporter: ExporterMetrics = DCGM
    jobs: tuple[str, ...] = ()
    levels: frozenset[str] = frozenset()

    def workload(self, holder: HolderLabels, slot: int) -> tuple[str, str, str]:
        """Return (namespace, pod, container) of the workload that a series of a slot names."""
        return workload(holder, self.target_pods.get(slot))


class _TargetPod(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""


class _Job(msgspec.Struct, frozen=True, gc=False):
    metric: str = msgspec.field(name="__name__", default="")
    job: str = ""
    exported_namespace: str = ""
    uuid: str = ""  # only with the labels of release 1.x, and Intel's


def series_parts(
    reading: WindowReader, chunked: Sequence[Sequence[int]]
) -> Iterator[list[SeriesPart]]:
    """Yield, for every stretch of slots with one answer, the parts to read it in.

    There are several where several exporters, or several label schemes, are scraped. Slots
    without any device series come out in no part.
    """
    seen = _jobs(reading, [slot for slots in chunked for slot in slots])
    for slots in chunked:
        for plan, group in groupby(slots, key=lambda slot: _plan(seen.get(slot, ()))):
            stretch = list(group)
            if plan:
                shown = {one.metric for slot in stretch for one in seen.get(slot, ())}
                yield [
                    _part(reading, stretch, plan, number)._replace(levels=frozenset(shown))
                    for number in range(len(plan))
                ]


def parts_within(
    known: Iterable[Sequence[SeriesPart]], slots: Collection[int]
) -> Iterator[list[SeriesPart]]:
    """Yield of parts that were found already what concerns some of their slots."""
    wanted = set(slots)
    for stretch in known:
        some = [slot for slot in stretch[0].slots if slot in wanted]
        if some:
            yield [part._replace(slots=some) for part in stretch]


def _part(reading: WindowReader, slots: Sequence[int], plan: _Plan, number: int) -> SeriesPart:
    exporter, scheme, jobs = plan[number]
    alone = sum(one.family is exporter.family for one, _, _ in plan) == 1
    only = () if alone else (one_of("job", jobs),)
    target_pods = _target_pods(reading, slots, jobs) if scheme.plain else {}
    return SeriesPart(slots, scheme, reading.matchers + only, target_pods, exporter, jobs)


def _target_pods(
    reading: WindowReader, slots: Sequence[int], jobs: Sequence[str]
) -> dict[int, set[tuple[str, str]]]:
    """Return by slot the pods that are targets of these jobs; no slot that keeps no `up`."""
    matchers = (*reading.matchers, one_of("job", jobs))
    inner = over("present_over_time", UP, matchers)
    found: dict[int, set[tuple[str, str]]] = {}
    query = SlotQuery(by("count", ("namespace", "pod"), inner), _TargetPod, slots)
    for slot, target, _ in reading.one(query):
        found.setdefault(slot, set()).add((target.namespace, target.pod))
    return found


def _plan(jobs: Collection[_Job]) -> _Plan:
    """Return the exporters and label schemes that occur, with the jobs of each."""
    exported = {one.job for one in jobs if one.exported_namespace}
    old = {one.job for one in jobs if one.uuid}
    by_kind: dict[tuple[ExporterMetrics, LabelScheme], list[str]] = {}
    for job in sorted({one.job for one in jobs}):
        for exporter in exporters_with({one.metric for one in jobs if one.job == job}):
            scheme = EXPORTED if job in exported else PLAIN
            if exporter is DCGM_1 or (exporter is DCGM and job in old):
                scheme = OLD
            by_kind.setdefault((exporter, scheme), []).append(job)
    order = [
        (exporter, scheme) for exporter in KNOWN_EXPORTERS for scheme in (EXPORTED, PLAIN, OLD)
    ]
    return tuple((*kind, tuple(by_kind[kind])) for kind in order if kind in by_kind)


def _jobs(reading: WindowReader, slots: Sequence[int]) -> dict[int, set[_Job]]:
    """Return the jobs that scraped devices in each slot, by the metrics that show them."""
    seen: dict[int, set[_Job]] = {}
    missing = list(slots)
    # DCGM exports memory for whole devices and MIG instances alike; the others are asked where
    # no device has it.
    for metric in ("|".join((*SIGNS, *DCGM.levels)), ACTIVITY, UTILIZATION):
        inner = over("last_over_time", metric, reading.matchers)
        query = by("count", ("__name__", "job", "exported_namespace", "uuid"), inner)
        for points in reading.slots([SlotQuery(query, _Job, some) for some in _in_row(missing)]):
            for slot, job, _ in points:
                seen.setdefault(slot, set()).add(job)
        missing = [
            slot
            for slot in missing
            if all(one.metric not in DCGM.signs for one in seen.get(slot, ()))
        ]
        if not missing:
            break
    return seen


def _in_row(slots: Sequence[int]) -> Iterator[list[int]]:
    """Yield slots that follow each other, at most as many as one query may have."""
    row: list[int] = []
    for slot in slots:
        if row and (slot != row[-1] + SLOT_SECONDS or len(row) == MAX_STEPS):
            yield row
            row = []
        row.append(slot)
    if row:
        yield row
