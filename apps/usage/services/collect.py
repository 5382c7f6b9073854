"""Turning hours of a cluster into facts: read the sources, compute, write."""

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.db import DataError, OperationalError, transaction
from django.db.models import F, Q
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.gateways import metrics_source
from apps.clusters.models import Cluster
from apps.clusters.ports import (
    DeviceAnswer,
    MetricsSource,
    QueuePendingSlot,
    ServingPodHour,
    SourceRejected,
    SourceUnavailable,
)
from apps.clusters.selectors import report
from apps.clusters.services import TierHistory, team_finder_at, tier_ids, tier_rules_at
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import (
    HourDevices,
    HourFacts,
    HourInput,
    attribute_hour,
)
from apps.usage.domain.collection import (
    CollectionState,
    HourEvidence,
    HourVerdict,
    ReferenceHour,
    judge,
    late_recheck,
    next_daily_try,
)
from apps.usage.models import CollectionWindow, NodeHour, PodHour
from apps.usage.services.aside import AsideAnswer, read_aside
from apps.usage.services.checkpoints import write_checkpoints
from apps.usage.services.facts import (
    Dimensions,
    HourPruned,
    clear_hour,
    has_same_totals,
    model_ids,
    node_ids,
    pod_ids,
    set_up_id,
    write_hour,
    write_queue_hour,
)
from apps.usage.services.health import measures_of, write_health, write_pod_devices
from apps.usage.services.outages import without_outages, write_outages
from apps.usage.services.serving import write_serving
from apps.usage.services.serving_objectives import ttft_objectives
from apps.usage.services.sources import (
    LedgerInput,
    gather_evidence,
    lacks_series,
    nearest_reference,
    read_ledger,
    recheck_hours,
    stored_reference,
    with_quotas,
)
from gpuportal.garbage import gc_paused
from gpuportal.partitions import prepare_months

logger = logging.getLogger(__name__)

_DEFAULT_INTERVAL_SECONDS = 30.0
_INTERVAL_DIFFERS = 0.2


# What unforeseen data makes Python raise. An hour must not wait for ever without a word because of
# it, nor take the others of its window along.
_STRANGE = (ArithmeticError, LookupError, TypeError, ValueError, DataError)


# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DISK_FULL = "53100"


class UnknownCluster(Exception):
    """No active cluster of that name is in the catalog."""


class HourOutcome(Struct, frozen=True):
    """How the collection of one hour ended; `error` is for a person to act on."""

    hour: datetime
    state: CollectionState
    error: str = ""
    coverage_ratio: float | None = None


class _Answers(Struct, dict=True):
    """Everything read for a window, before any of it is written.

    Device rows and what is read `aside` may still be on their way: the first reader blocks until
    they are there. `reference` is the complete hour that the next one is compared with. `queues` is
    what Kueue's series show where nothing was watched, `lacking` the server's words for what these
    lack.
    """

    cluster: Cluster
    now: datetime
    ledger: LedgerInput
    coming: Future[DeviceAnswer]
    coming_aside: Future[AsideAnswer]
    first: int
    source: MetricsSource
    reference: ReferenceHour | None = None
    queues: Sequence[QueuePendingSlot] = ()
    lacking: Sequence[str] = ()

    @property
    def devices(self) -> DeviceAnswer:
        """The answer of the metrics source; raises what the source raised."""
        return self.coming.result()

    @property
    def aside(self) -> AsideAnswer:
        """What was read aside; raises SourceUnavailable."""
        return self.coming_aside.result()

    def served(self, hour: Window) -> Sequence[ServingPodHour]:
        """Return what inference servers did in an hour."""
        return [one for one in self.aside.serving if one.hour == int(hour.start_seconds)]

    def rows(self, hour: Window) -> Sequence[DeviceSlot]:
        """Return the device rows of an hour; raises as `devices`."""
        return self._by_hour.get(int(hour.start_seconds), ())

    @cached_property
    def retention(self) -> timedelta:
        """For how long the source keeps samples, as it says, else as is set."""
        return self.source.retention() or timedelta(days=settings.METRICS_RETENTION_DAYS)

    def note_complete(self, reference: ReferenceHour) -> None:
        """Hold later hours against this one; what series there were only unwatched ones tell."""
        shares = reference.shares or (self.reference.shares if self.reference else {})
        self.reference = replace(reference, shares=shares)

    @cached_property
    def _by_hour(self) -> dict[int, list[DeviceSlot]]:
        rows: dict[int, list[DeviceSlot]] = defaultdict(list)
        for slot, some in groupby(self.devices.rows, attrgetter("slot")):
            # Counted from the window: in zones such as India's no hour of facts is a full hour of
            # UTC.
            rows[self.first + (slot - self.first) // 3600 * 3600] += some
        return rows


def collect_window(
    cluster_name: str,
    window: Window,
    *,
    now: datetime,
    source: MetricsSource | None = None,
) -> list[HourOutcome]:
    """Collect every whole hour of a window of at most a day; return how each ended.

    The same window gives the same facts however often, in whatever order and by however many
    processes it is collected. What goes wrong with a source is written to the hours' rows in
    data quality and returned, never raised; facts of an earlier success stay as they are.
    Raises UnknownCluster, and ValueError for a window that is not made of fact hours.
    """
    cluster = Cluster.objects.filter(name=cluster_name, active=True).first()
    if cluster is None:
        raise UnknownCluster(f"no cluster {cluster_name!r} in the catalog")
    hours = fact_hours(window)
    _claim(cluster, hours, now)
    with gc_paused():
        return _collect(cluster, window, hours, source, now)


def _collect(
    cluster: Cluster,
    window: Window,
    hours: Sequence[Window],
    source: MetricsSource | None,
    now: datetime,
) -> list[HourOutcome]:
    started = time.monotonic()
    # The metrics server works on its queries while the ledger is read and who held what is found.
    with ThreadPoolExecutor(2, thread_name_prefix="beside") as beside:
        try:
            answers = _read(cluster, window, source or metrics_source(cluster), beside, now)
        except (SourceUnavailable, SourceRejected) as error:
            return [_failed(cluster, hour, str(error), started, now) for hour in hours]
        except _STRANGE as error:
            return [_failed(cluster, hour, _strange(error), started, now) for hour in hours]
        except OperationalError as error:
            why = _refusal(error)
            return [_failed(cluster, hour, why, started, now) for hour in hours]
        outcomes = []
        # Each in its own transaction: an hour that fails takes no other along.
        for hour in hours:
            outcomes.append(_collect_hour(hour, answers, source, started))
            started = time.monotonic()
    return outcomes


def fact_hours(window: Window) -> list[Window]:
    """Return the fact hours that make up a window.

    Raises ValueError where it does not begin and end on the report zone's grid of hours: hours
    laid otherwise would overlap those that are there.
    """
    zone = report().zone
    for edge in (window.start, window.end):
        if hour_floor(edge, zone) != edge:
            raise ValueError(
                f"{edge.isoformat()} is not the start of an hour of facts; in {zone.key} one "
                f"starts at {hour_floor(edge, zone).isoformat()}"
            )
    return list(window.hours())


def _claim(cluster: Cluster, hours: Sequence[Window], now: datetime) -> None:
    """Note the attempt and take the lease; one short transaction."""
    lease = now + timedelta(seconds=settings.LEASE_SECONDS)
    with transaction.atomic():
        CollectionWindow.objects.bulk_create(
            [
                CollectionWindow(
                    cluster=cluster, hour=hour.start, state=CollectionState.WAITING.value
                )
                for hour in hours
            ],
            ignore_conflicts=True,
        )
        rows = CollectionWindow.objects.filter(
            cluster=cluster, hour__in=[hour.start for hour in hours]
        )
        # Locked in one order, so that overlapping windows wait for each other and never cross.
        list(rows.select_for_update().order_by("hour").values_list("pk"))
        rows.update(attempts=F("attempts") + 1, lease_until=lease, attempted_at=now)


def _read(
    cluster: Cluster,
    window: Window,
    source: MetricsSource,
    beside: ThreadPoolExecutor,
    now: datetime,
) -> _Answers:
    coming = beside.submit(source.devices, window)
    catalog = TierHistory.load()
    ledger = read_ledger(cluster, window, source, catalog, now=now)
    # Small answers, but they come after those of devices: a worker that blocks on them here
    # computes nothing.
    objectives = ttft_objectives(cluster, window, ledger.pods)
    aside = beside.submit(read_aside, source, window, objectives)
    answers = _Answers(cluster, now, ledger, coming, aside, int(window.start_seconds), source)
    # Only series can lack something unseen: what was watched needs no comparison.
    if ledger.unwatched:
        answers.reference = nearest_reference(cluster, window.start, window.end)
        rules = catalog.within(window.start_seconds, window.end_seconds)
        named = sorted({resource for rule in rules for resource in rule.resources})
        answers.queues, answers.lacking = source.queue_pending(window, gpu_resources=named)
    return answers


def _collect_hour(
    hour: Window, answers: _Answers, source: MetricsSource | None, started: float
) -> HourOutcome:
    cluster, now = answers.cluster, answers.now
    try:
        found = _computed(hour, answers, source, started)
        verdict = found.verdict
        if verdict.state is CollectionState.FAILED:
            return _failed(cluster, hour, verdict.error, started, now)
        if verdict.withheld:
            _withhold(hour, answers, found)
        else:
            _store(hour, answers, found)
    except (SourceUnavailable, SourceRejected, HourPruned) as error:
        return _failed(cluster, hour, str(error), started, now)
    except _STRANGE as error:
        return _failed(cluster, hour, _strange(error), started, now)
    except OperationalError as error:
        return _failed(cluster, hour, _refusal(error), started, now)
    return HourOutcome(hour.start, verdict.state, verdict.error, verdict.coverage_ratio)


class _Computed(Struct, frozen=True):
    """An hour before it is written; `started` is when work on it began (monotonic seconds)."""

    facts: HourFacts
    interval: float
    evidence: HourEvidence
    verdict: HourVerdict
    started: float


def _computed(
    hour: Window, answers: _Answers, source: MetricsSource | None, started: float
) -> _Computed:
    facts, interval, lacking = _compute(hour, answers, source)
    evidence = _evidence(hour, answers, facts, lacking)
    verdict = judge(
        facts,
        slots_without_ledger=answers.ledger.slots_without_ledger(hour),
        device_rows=len(answers.rows(hour)),
        evidence=evidence,
        reference=answers.reference,
    )
    return _Computed(facts, interval, evidence, verdict, started)


def _compute(
    hour: Window, answers: _Answers, source: MetricsSource | None
) -> tuple[HourFacts, float, Sequence[str]]:
    """Return the hour's facts, the sampling interval of most of its devices, and the server's words
    for what raw samples lack."""
    cluster = answers.cluster
    configured = float(
        cluster.prometheus.get("scrape_interval_seconds") or _DEFAULT_INTERVAL_SECONDS
    )

    def devices() -> HourDevices:
        seconds = answers.devices.scrape_interval_seconds or configured
        return HourDevices(answers.rows(hour), SampleInterval(seconds, answers.devices.intervals))

    known = HourInput(int(hour.start_seconds), answers.ledger, tier_rules_at(hour.start), devices)
    raw = _RawSamples(cluster, hour, source)
    result, attribution = attribute_hour(known, raw, idle_below=settings.IDLE_BELOW)
    result.findings.update(answers.devices.findings_of(hour.slots()))
    result.findings["serving_without_pod"] += sum(not one.pod for one in answers.served(hour))
    result.findings["pods_without_node"] += answers.ledger.pods_without_node(hour)
    usual = attribution.usual_interval() or devices().interval.seconds
    if abs(usual - configured) > _INTERVAL_DIFFERS * configured:
        result.findings["scrape_interval_differs"] += 1
    return result, usual, raw.lacking


def _evidence(
    hour: Window, answers: _Answers, result: HourFacts, lacking: Sequence[str]
) -> HourEvidence:
    known = (*answers.devices.incomplete, *answers.ledger.incomplete, *answers.lacking)
    incomplete = dict.fromkeys((*known, *lacking))
    gathered = gather_evidence(
        hour,
        answers.ledger,
        answers.rows(hour),
        result,
        tier_rules_at(hour.start),
        tuple(incomplete),
    )
    evidence = replace(gathered, without_devices=bool(answers.cluster.slurm))
    return with_quotas(
        evidence, answers.reference, answers.ledger, hour, lambda: answers.source.quotas(hour)
    )


class _RawSamples(Struct, frozen=True):
    """Reads the raw samples of some devices in an hour; None where the source refuses.

    `lacking` collects the server's words for what they lack.
    """

    cluster: Cluster
    hour: Window
    source: MetricsSource | None
    lacking: list[str] = field(default_factory=list)

    def __call__(self, uuids: Sequence[str]) -> Sequence[ActivitySample] | None:
        reader = self.source or metrics_source(self.cluster)
        try:
            samples, lacking = reader.activity_samples(uuids, self.hour)
        except SourceRejected:
            # Some servers refuse raw samples. Labels are believed then, with a lower grade.
            return None
        self.lacking.extend(lacking)
        return samples


def _noted(hour: Window, answers: _Answers, found: _Computed) -> dict[str, Any]:
    """Return what data quality keeps of an hour, with facts or without."""
    counts = sorted(found.facts.findings.items())
    aside = answers.aside
    return {
        "state": found.verdict.state.value,
        "error": found.verdict.error,
        "samples": sum(row.samples for row in answers.rows(hour)),
        "findings": {name: count for name, count in counts if count},
        "warnings": [
            *(*answers.devices.warnings, *answers.ledger.warnings),
            *(*aside.warnings, *aside.health.warnings),
        ],
        "ledger_source": answers.ledger.source_of(hour),
        "duration_seconds": round(time.monotonic() - found.started, 3),
        "lease_until": None,
    }


def _store(hour: Window, answers: _Answers, found: _Computed) -> None:
    cluster, now, verdict, aside = answers.cluster, answers.now, found.verdict, answers.aside
    late = timedelta(seconds=settings.LATE_SAMPLES_SECONDS)
    # Before the transaction: other workers need the same rows and would wait for its end.
    dimensions = _dimensions(hour, answers, found.facts)
    exporters = set_up_id(cluster, answers.devices.profile)
    for table in (PodHour, NodeHour):
        prepare_months(table._meta.db_table, [hour.start])
    with transaction.atomic():
        facts, away = without_outages(hour, found.facts, dimensions)
        write_hour(hour, facts, dimensions, zone=report().zone)
        write_outages(away)
        write_serving(hour, answers.served(hour), answers.ledger.pods, found.facts, dimensions)
        write_health(cluster, hour, aside.health, answers.rows(hour))
        write_pod_devices(found.facts.devices, dimensions)
        write_checkpoints(hour, aside.checkpoints, answers.ledger.pods, dimensions)
        write_queue_hour(cluster, hour, answers.queues, answers.ledger.intervals)
        CollectionWindow.objects.filter(cluster=cluster, hour=hour.start).update(
            **_noted(hour, answers, found),
            coverage_ratio=verdict.coverage_ratio,
            serving=aside.serving_state.value,
            health=measures_of(aside.health, hour),
            partials=F("partials") + 1 if verdict.state is CollectionState.PARTIAL else 0,
            slots_without_pods=answers.ledger.slots_without_ledger(hour),
            scrape_interval_seconds=found.interval,
            activity_metric=answers.devices.activity_metric,
            exporters_id=exporters,
            collected_at=now,
            withheld=False,
            evidence=stored_reference(found.evidence.reference),
            again_at=late_recheck(
                hour.end,
                verdict.coverage_ratio,
                # GPU-hours are whole without what is read aside, which is asked for once more.
                is_partial=verdict.state is CollectionState.PARTIAL or aside.is_lacking,
                late=late,
                now=now,
            ),
        )
    if verdict.state is CollectionState.COMPLETE:
        before = answers.reference
        # A better hour shows what earlier ones lacked: they were complete for all that was known.
        if before is not None and lacks_series(before, found.evidence.reference):
            recheck_hours(cluster, hour.start, found.evidence.reference, now=now)
        answers.note_complete(found.evidence.reference)


def _withhold(hour: Window, answers: _Answers, found: _Computed) -> None:
    """Note that sources contradict each other; the hour has no facts then.

    Facts of an earlier success stay, unless they rest on the same answers: those were taken for
    true when nothing was held against them.
    """
    cluster, now = answers.cluster, answers.now
    again = next_daily_try(hour.end, retention=answers.retention, now=now)
    noted = _noted(hour, answers, found) | {"again_at": again}
    with transaction.atomic():
        rows = CollectionWindow.objects.filter(cluster=cluster, hour=hour.start)
        # Two workers may collect one hour: what decides is read under lock.
        row = rows.select_for_update().get()
        has_facts = row.collected_at is not None and not row.withheld
        if has_facts and not has_same_totals(cluster, hour, found.facts.total()):
            # The row goes on describing the facts that stay.
            kept = ("error", "duration_seconds", "lease_until", "again_at")
            rows.update(**{name: noted[name] for name in kept})
            return
        if has_facts:
            clear_hour(cluster, hour, zone=report().zone)
            noted["collected_at"] = now
        rows.update(
            **noted, withheld=True, coverage_ratio=None, partials=F("partials") + 1, evidence={}
        )
    if answers.reference is not None:
        recheck_hours(cluster, hour.start, answers.reference, now=now)


def _dimensions(hour: Window, answers: _Answers, result: HourFacts) -> Dimensions:
    """Find or make the rows that the facts refer to; before the hour's own transaction."""
    cluster = answers.cluster
    gpu_classes = {fact.gpu_class for facts in (result.pods, result.nodes) for fact in facts}
    return Dimensions(
        cluster=cluster.pk,
        pods=pod_ids(cluster, {fact.uid for fact in result.pods}, answers.ledger.ids),
        nodes=node_ids(cluster, {fact.node for fact in result.nodes}),
        models=model_ids({gpu_class.model for gpu_class in gpu_classes}),
        tiers=tier_ids(),
        team_of=team_finder_at(hour.start),
    )


def _strange(error: Exception) -> str:
    logger.error("collecting met what it cannot read", exc_info=error)
    return (
        f"the sources hold something that cannot be read ({type(error).__name__}: {error}); the "
        "log of the worker shows where: please report it"
    )


def _refusal(error: OperationalError) -> str:
    """Return why a database on a full disk takes no facts, which it may still note.

    Raises any other error: of a database that is away nothing can be noted.
    """
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    if sqlstate != _DISK_FULL and "disk is full" not in str(error):
        raise error
    return (
        f"the disk of the database is full ({str(error).splitlines()[0]}): make room on it; the "
        "hour is collected again then"
    )


def collect_enqueued(
    cluster_id: int, hour: datetime, *, now: datetime, enqueued: datetime | None = None
) -> int:
    """Collect the hour that a message names; 1 when it has facts now that it had not before.

    A message for an hour that is complete meanwhile, or was tried since the message was sent, or
    for a cluster that is gone, is late: nothing is done.
    """
    cluster = Cluster.objects.filter(pk=cluster_id, active=True).first()
    late = Q(state=CollectionState.COMPLETE.value) & ~Q(again_at__lte=now)
    if enqueued is not None:
        # What was tried at a time to come was tried by a clock that is ahead.
        late |= Q(attempted_at__gte=enqueued, attempted_at__lte=now)
    row = CollectionWindow.objects.filter(cluster_id=cluster_id, hour=hour)
    if cluster is None or row.filter(late).exists():
        return 0
    outcomes = collect_window(cluster.name, Window.hour(hour), now=now)
    return sum(outcome.state is not CollectionState.FAILED for outcome in outcomes)


def _failed(
    cluster: Cluster, hour: Window, error: str, started: float, now: datetime
) -> HourOutcome:
    """Note a failure; an hour that has facts already keeps them and its state.

    A look that was still to come is given up when the source does not keep the hour any longer.
    """
    rows = CollectionWindow.objects.filter(cluster=cluster, hour=hour.start)
    with transaction.atomic():
        rows.update(
            error=error, duration_seconds=round(time.monotonic() - started, 3), lease_until=None
        )
        without = rows.filter(Q(collected_at__isnull=True) | Q(withheld=True))
        without.update(state=CollectionState.FAILED.value)
        oldest = now - timedelta(days=settings.METRICS_RETENTION_DAYS)
        rows.filter(again_at__lte=now, hour__lt=oldest).update(again_at=None)
    logger.warning("collect %s %s failed: %s", cluster.name, hour.start.isoformat(), error)
    return HourOutcome(hour.start, CollectionState.FAILED, error)
