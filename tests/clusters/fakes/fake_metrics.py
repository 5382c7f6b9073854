"""A metrics source from rows in memory, for tests of what stands on the port."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.errors import HealthAnswer
from apps.clusters.domain.devices.exporter_profile import ExporterProfile
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot, DeviceState
from apps.clusters.domain.pods.ledger import LastSeen, NodeInterval, PodRecord, PodSource
from apps.clusters.domain.pods.people import PersonSource
from apps.clusters.domain.serving_objectives import TtftObjectives
from apps.clusters.domain.window import Window
from apps.clusters.ports import (
    Answered,
    DeviceAnswer,
    Item,
    LedgerAnswer,
    PodCheckpoints,
    QueuePendingSlot,
    QueueSlot,
    QuotaSlot,
    ServingPodHour,
    ShownMetric,
    SourceHealth,
)


class FakeMetrics(Struct):
    """Implements `apps.clusters.ports.MetricsSource` with what it is given.

    `pods` and `nodes` are the whole truth, of which a window shows what could be known by its
    end. `away` are slots without kube-state-metrics, `intervals` those of
    devices that differ from `scrape_interval_seconds`. `profile` and `findings` are those of every
    window in which a device has samples. Every call raises `failure` while it is
    set; `calls` notes the names of the methods called.
    """

    device_slots: Sequence[DeviceSlot] = ()
    samples: Sequence[ActivitySample] = ()
    pods: Sequence[PodRecord] = ()
    nodes: Sequence[NodeInterval] = ()
    quota_slots: Sequence[QuotaSlot] = ()
    queue_slots: Sequence[QueueSlot] = ()
    pending_slots: Sequence[QueuePendingSlot] = ()
    serving_hours: Sequence[ServingPodHour] = ()
    saved: Sequence[PodCheckpoints] = ()
    health_hours: HealthAnswer = field(default_factory=HealthAnswer)
    away: Collection[int] = ()
    states: Sequence[DeviceState] = ()
    activity_metric: str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    scrape_interval_seconds: float | None = 30.0
    intervals: Mapping[tuple[int, str, str], float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    kept: timedelta | None = None
    persons: Mapping[str, str] = field(default_factory=dict)
    profile: ExporterProfile = field(default_factory=ExporterProfile)
    findings: Mapping[tuple[int, str], int] = field(default_factory=dict)
    failure: Exception | None = None
    calls: list[str] = field(default_factory=list)

    def devices(self, window: Window) -> DeviceAnswer:
        self._called("devices")
        slots = set(window.slots())
        rows = [row for row in self.device_slots if row.slot in slots]
        measured = any(row.samples for row in rows)
        return DeviceAnswer(
            rows=rows,
            activity_metric=self.activity_metric if measured else "",
            scrape_interval_seconds=self.scrape_interval_seconds if measured else None,
            warnings=self.warnings,
            incomplete=self.incomplete,
            intervals={key: value for key, value in self.intervals.items() if key[0] in slots},
            profile=self.profile if measured else ExporterProfile(),
            findings=self.findings if measured else {},
        )

    def activity_samples(self, uuids: Sequence[str], window: Window) -> Answered[ActivitySample]:
        self._called("activity_samples")
        wanted = set(uuids)
        return self._answered(
            sample
            for sample in self.samples
            if sample.uuid in wanted and window.start_seconds <= sample.at < window.end_seconds
        )

    def ledger(
        self,
        window: Window,
        *,
        gpu_resources: Sequence[str] = (),
        label_keys: Sequence[str] = (),
    ) -> LedgerAnswer:
        self._called("ledger")
        start, end = window.start_seconds, window.end_seconds
        return LedgerAnswer(
            pods=[
                _as_known(pod, end)
                for pod in self.pods
                if pod.created < end and (pod.ended is None or pod.ended > start)
            ],
            nodes=[
                replace(
                    interval,
                    start=max(interval.start, start),
                    end=min(interval.end, end),
                    source=PodSource.METRICS,
                )
                for interval in self.nodes
                if interval.start < end and interval.end > start
            ],
            covered={slot: slot not in self.away for slot in window.slots()},
            warnings=self.warnings,
            incomplete=self.incomplete,
        )

    def quotas(self, window: Window) -> Answered[QuotaSlot]:
        self._called("quotas")
        slots = set(window.slots())
        return self._answered(row for row in self.quota_slots if row.slot in slots)

    def queues(self, window: Window) -> Answered[QueueSlot]:
        self._called("queues")
        slots = set(window.slots())
        return self._answered(row for row in self.queue_slots if row.slot in slots)

    def queue_pending(
        self, window: Window, *, gpu_resources: Sequence[str] = ()
    ) -> Answered[QueuePendingSlot]:
        del gpu_resources
        self._called("queue_pending")
        slots = set(window.slots())
        return self._answered(row for row in self.pending_slots if row.slot in slots)

    def people(self, window: Window, sources: Sequence[PersonSource]) -> Mapping[str, str]:
        del window, sources
        self._called("people")
        return self.persons

    def shown_metrics(self, window: Window) -> Answered[ShownMetric]:
        del window
        self._called("shown_metrics")
        return Answered(())

    def serving(
        self,
        window: Window,
        *,
        objectives: TtftObjectives,
        shown: Collection[ShownMetric] | None = None,
    ) -> Answered[ServingPodHour]:
        del objectives, shown
        self._called("serving")
        start, end = window.start_seconds, window.end_seconds
        return self._answered(row for row in self.serving_hours if start <= row.hour < end)

    def checkpoints(self, window: Window) -> Answered[PodCheckpoints]:
        self._called("checkpoints")
        start, end = window.start_seconds, window.end_seconds
        return self._answered(
            row._replace(times=tuple(at for at in row.times if start <= at < end))
            for row in self.saved
        )

    def device_health(
        self, window: Window, *, shown: Collection[ShownMetric] | None = None
    ) -> HealthAnswer:
        del shown
        self._called("device_health")
        start, end = window.start_seconds, window.end_seconds
        known = self.health_hours
        return replace(
            known,
            rows=tuple(row for row in known.rows if start <= row.hour < end),
            exported={at: some for at, some in known.exported.items() if start <= at < end},
        )

    def device_states(self, at: datetime) -> Answered[DeviceState]:
        del at
        self._called("device_states")
        return self._answered(self.states)

    def health(self) -> SourceHealth:
        self._called("health")
        return SourceHealth(version="fake")

    def retention(self) -> timedelta | None:
        self._called("retention")
        return self.kept

    def _answered(self, rows: Iterable[Item]) -> Answered[Item]:
        return Answered(list(rows), self.incomplete)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failure is not None:
            raise self.failure


def _as_known(pod: PodRecord, end: float) -> PodRecord:
    """Return a pod as it was known at `end`: what happened later is not known yet."""
    return replace(
        pod,
        bound=_known(pod.bound, end),
        started=_known(pod.started, end),
        finished=_known(pod.finished, end),
        deleted=_known(pod.deleted, end),
        runs=tuple((a, _known(b, end)) for a, b in pod.runs if a < end),
        node=pod.node if _known(pod.bound, end) is not None else "",
        end_reason=pod.end_reason if _known(pod.ended, end) is not None else "",
        source=PodSource.METRICS,
        last_seen=LastSeen(min(end, pod.ended or end), gone=_known(pod.ended, end) is not None),
    )


def _known(at: float | None, end: float) -> float | None:
    return at if at is not None and at <= end else None
