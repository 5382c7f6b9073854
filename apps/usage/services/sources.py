"""What the sources of an hour say: its pods and nodes, and counts to compare with another hour."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil

from django.conf import settings
from django.db.models import QuerySet
from msgspec import field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.gpu_shares import names_reservation
from apps.clusters.domain.pods.history import closed_runs, reopened
from apps.clusters.domain.pods.kube_state_nodes import NODE_LABELS, ShownSeries
from apps.clusters.domain.pods.ledger import PodRecord, gaps, merge_intervals, merge_pods
from apps.clusters.domain.resources import PARTS_OF_GPU
from apps.clusters.domain.tiers import UNKNOWN_MODEL, UNMATCHED, TierRule
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, Window, clip
from apps.clusters.models import Cluster
from apps.clusters.ports import Answered, LedgerAnswer, MetricsSource, QuotaSlot, SourceRejected
from apps.clusters.services import (
    RecordedPod,
    TierHistory,
    last_watched,
    lost_pods,
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
    store_inferred_pods,
    watched_spans,
    write_people,
)
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.domain.attribution.gpu_classes import BoundTier
from apps.usage.domain.collection import (
    CollectionState,
    HourEvidence,
    ReferenceHour,
    Thresholds,
    contradictions,
    has_fallen,
)
from apps.usage.models import CollectionWindow
from apps.usage.services.facts import PodIds

# The stream of a watch may pause for a moment without anything being missed.
_GAP_SECONDS = 90.0

_NEAR = timedelta(days=7)
_NANO = 1e9
_REQUESTS_PREFIX = "requests."
THRESHOLDS = Thresholds()
AskQuotas = Callable[[], Answered[QuotaSlot]]
_Key = tuple[int, str, str]
"""(slot, namespace, resource)."""


class LedgerInput(PodLedger, frozen=True):
    """The ledger of a window. `unwatched` are the spans that had to be read from series.

    `covered` says for each of their slots whether kube-state-metrics was there, `ids` gives the
    ids of the pods that the API showed. `shown` describes the series themselves, `incomplete` are
    the server's warnings that answers lack something.
    """

    unwatched: Sequence[TimeSpan] = ()
    covered: Mapping[int, bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ids: Mapping[str, PodIds] = field(default_factory=dict)
    shown: ShownSeries = field(default_factory=ShownSeries)
    incomplete: tuple[str, ...] = ()

    def slots_without_ledger(self, hour: Window) -> int:
        """Return in how many slots of the hour the pods and nodes are unknown."""
        return sum(
            bool(clip(self.unwatched, slot, slot + SLOT_SECONDS))
            and not self.covered.get(slot, False)
            for slot in hour.slots()
        )

    def source_of(self, hour: Window) -> str:
        """Return `api`, `metrics` or `mixed`."""
        open_seconds = sum(
            b - a for a, b in clip(self.unwatched, hour.start_seconds, hour.end_seconds)
        )
        if not open_seconds:
            return "api"
        return "metrics" if open_seconds >= hour.seconds else "mixed"

    def pods_without_node(self, hour: Window) -> int:
        """Return how many pods held GPUs in the hour on a node that is not known."""
        nodes = {
            interval.node
            for interval in self.intervals
            if interval.start < hour.end_seconds and interval.end > hour.start_seconds
        }
        held = ((pod, pod.held(hour.end_seconds)) for pod in self.pods if pod.node not in nodes)
        return sum(span is not None and span[1] > hour.start_seconds for _, span in held)


def read_ledger(
    cluster: Cluster,
    window: Window,
    source: MetricsSource,
    catalog: TierHistory,
    *,
    now: datetime,
) -> LedgerInput:
    """Return the ledger of a window, and store the pods that only series know.

    Raises what the source raises; a window that was watched throughout asks no source, unless a
    pod was lost: then series tell when that one ended.
    """
    start, end = window.start_seconds, window.end_seconds
    watched = watched_spans(cluster, window)
    unwatched = gaps(watched, start, end, tolerance=_GAP_SECONDS)
    answer = LedgerAnswer(pods=(), nodes=(), covered={})
    lost = frozenset[str]() if unwatched else lost_pods(cluster, _with_gap_before(window))
    if unwatched or lost:
        rules = catalog.within(start, end)
        named = sorted({resource for rule in rules for resource in rule.resources})
        keys = sorted({key for rule in rules for key in rule.node_selector})
        answer = source.ledger(window, gpu_resources=named, label_keys=keys)
        if not unwatched:
            # Whatever else they show, the watch has told it better.
            ends = [pod for pod in answer.pods if pod.uid in lost]
            answer = replace(answer, pods=ends, nodes=())
        labels = {interval.node: interval.labels for interval in answer.nodes}
        store_inferred_pods(cluster, answer.pods, catalog, labels, now=now)
        if settings.PEOPLE is not None and answer.pods:
            persons = source.people(window, settings.PEOPLE.sources)
            uids = {pod.uid for pod in answer.pods}
            write_people(cluster.pk, {uid: persons[uid] for uid in uids & persons.keys()})
        # Those that were over before have no part in these hours.
        living = [pod for pod in answer.pods if pod.ended is None or pod.ended > start]
        answer = replace(answer, pods=living)
    # Read after the rows of series are stored: these give lost pods their end.
    rows = recorded_pod_rows(cluster, window)
    recorded = [pod for pod in _recorded(rows, answer.pods) if pod.owner.kind != CLAIM_KIND]
    if unwatched and (last_watched(cluster.pk) or start) <= start:
        recorded = _ended_unseen(recorded, answer, window)
    answer = replace(answer, pods=_without_reservations(answer.pods, recorded))
    shown = {pod.uid for pod in recorded}
    intervals = recorded_intervals(cluster, window)
    return LedgerInput(
        pods=merge_pods(recorded, answer.pods),
        intervals=merge_intervals(intervals, answer.nodes, unwatched, tolerance=_GAP_SECONDS),
        bound=_bound(rows),
        unwatched=unwatched,
        covered=answer.covered,
        warnings=answer.warnings,
        # While a watch ran, a pod that it did not see was not there.
        limits={pod.uid: unwatched for pod in answer.pods if pod.uid not in shown},
        ids={
            row.record.uid: PodIds(row.id, row.workload_id, row.namespace_id, row.record.namespace)
            for row in rows
        },
        claims=recorded_claims(cluster, window),
        shown=answer.shown,
        incomplete=answer.incomplete,
    )


def _without_reservations(
    inferred: Sequence[PodRecord], recorded: Sequence[PodRecord]
) -> list[PodRecord]:
    """Return pods of series without those that reserve GPUs whose users the watch has shown.

    Where nothing shows the users, as from series alone, who reserves a GPU stands for them.
    """
    sharing = {pod.node for pod in recorded if not PARTS_OF_GPU.isdisjoint(pod.requests)}
    return [
        pod
        for pod in inferred
        if pod.node not in sharing or not names_reservation(pod.namespace, pod.name)
    ]


def _with_gap_before(window: Window) -> Window:
    """Return the window in which a pod may seem to have ended that ended in the given one."""
    return Window(window.start - timedelta(seconds=_GAP_SECONDS), window.end)


def _recorded(rows: Sequence[RecordedPod], inferred: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the pods that the API showed, their rows read after those from series were stored.

    The end of a pod that was lost during a gap of the watch is a guess that other hours may have
    moved. Where this window's series show the pod, they alone say when it ended, so that the order
    in which hours are collected does not matter.
    """
    shown = {pod.uid for pod in inferred}
    return [
        reopened(row.record) if row.lost and row.record.uid in shown else row.record for row in rows
    ]


def _ended_unseen(
    recorded: Sequence[PodRecord], answer: LedgerAnswer, window: Window
) -> list[PodRecord]:
    """End the pods of the API that went after the watch did and before this window.

    Only the hour in which they went shows their end, and the watch has not missed them yet. But
    where kube-state-metrics is there and does not show a pod, it is gone; in a partial answer its
    series may be missing. Series tell nothing of claims.
    """
    if answer.incomplete:
        return list(recorded)
    seen = {pod.uid for pod in answer.pods}
    gone = next((float(slot) for slot in window.slots() if answer.covered.get(slot)), None)
    if gone is None:
        return list(recorded)
    ended = (
        pod
        if pod.ended is not None or pod.bound is None or pod.claims or pod.uid in seen
        else replace(pod, deleted=gone, runs=closed_runs(pod.runs, gone))
        for pod in recorded
    )
    return [pod for pod in ended if pod.ended is None or pod.ended > window.start_seconds]


def _bound(rows: Sequence[RecordedPod]) -> dict[str, BoundTier]:
    """Return what pods of the API were bound with.

    A pod whose tier or model was not known then is classified by its node in each hour.
    """
    return {
        row.record.uid: BoundTier(row.tier, row.gpu_model, row.gpu_equivalents / row.units)
        for row in rows
        if row.record.bound is not None
        and row.units > 0
        and row.tier not in {None, UNMATCHED}
        and row.gpu_model not in {None, UNKNOWN_MODEL}
    }


def gather_evidence(
    hour: Window,
    ledger: LedgerInput,
    rows: Sequence[DeviceSlot],
    facts: HourFacts,
    rules: Sequence[TierRule],
    incomplete: Sequence[str],
) -> HourEvidence:
    """Return what the sources of an hour say; `incomplete` are the server's warnings."""
    offering = {
        interval.node
        for interval in ledger.intervals
        if interval.start < hour.end_seconds and interval.end > hour.start_seconds
    }
    slots = {
        slot
        for slot in hour.slots()
        if clip(ledger.unwatched, slot, slot + SLOT_SECONDS)
        and (ledger.covered.get(slot) or ledger.shown.nameless)
    }
    held, nowhere, pods = _held_seconds(ledger.pods, offering, hour)
    evidence = HourEvidence(
        from_series=bool(slots),
        nodes=len(offering),
        pods=pods,
        held_seconds=held,
        nowhere_seconds=nowhere,
        claims=any(rule.device_classes for rule in rules),
        shares=ledger.shown.shares.get(int(hour.start_seconds), {}),
        nameless=ledger.shown.nameless,
        incomplete=tuple(incomplete),
    )
    if not slots:
        return evidence
    seen = [row for row in rows if row.samples and row.slot in slots]
    return _with_devices(evidence, seen, ledger, offering, facts, hour)


def _held_seconds(
    pods: Iterable[PodRecord], offering: Collection[str], hour: Window
) -> tuple[float, float, int]:
    """Return the seconds that pods held, those of them on unknown nodes, and how many pods."""
    start, end = hour.start_seconds, hour.end_seconds
    held = nowhere = 0.0
    count = 0
    for pod in pods:
        if pod.created >= end or (pod.ended is not None and pod.ended <= start):
            continue
        count += 1
        span = pod.held(end)
        if span is not None and span[1] > start:
            seconds = span[1] - max(span[0], start)
            held += seconds
            nowhere += 0.0 if pod.node in offering else seconds
    return held, nowhere, count


def _stopped_pods(pods: Iterable[PodRecord], hour: Window) -> set[tuple[str, str]]:
    """Return the pods, by namespace and name, that held GPUs in the hour and did not run in it."""
    held, ran = set(), set()
    for pod in pods:
        name, span = (pod.namespace, pod.name), pod.held(hour.end_seconds)
        if span is not None and span[1] > hour.start_seconds:
            held.add(name)
        if any(end > hour.start_seconds for _, end in pod.ran(hour.end_seconds)):
            ran.add(name)
    return held - ran


def _units_held(pods: Iterable[PodRecord], hour: Window) -> dict[str, float]:
    """Return the units that pods held on each node at any time of the hour."""
    found: dict[str, float] = defaultdict(float)
    for pod in pods:
        span = pod.held(hour.end_seconds)
        if pod.node and span is not None and span[1] > hour.start_seconds:
            found[pod.node] += sum(pod.requests.values())
    return found


def _with_devices(
    evidence: HourEvidence,
    rows: Sequence[DeviceSlot],
    ledger: LedgerInput,
    offering: Collection[str],
    facts: HourFacts,
    hour: Window,
) -> HourEvidence:
    """Add what devices say. A pod on a node that offers no resource may hold them by claims."""
    known = {(pod.namespace, pod.name) for pod in ledger.pods} | ledger.shown.past_pods
    plain = ledger.shown.plain_nodes
    still = _stopped_pods(ledger.pods, hour)
    named = unknown = busy = stopped = 0
    active: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        # On nodes without a GPU resource pods hold devices by claims, which no series shows.
        if row.pod and row.node not in plain:
            named += row.samples
            if (row.namespace, row.pod) not in known:
                unknown += row.samples
        if (row.activity_sum or 0.0) > settings.IDLE_BELOW * row.samples and row.node in offering:
            active[row.node].add(row.uuid)
            busy += row.samples if row.pod else 0
            stopped += row.samples if (row.namespace, row.pod) in still else 0
    held = _units_held(ledger.pods, hour)
    unlabelled, devices = _unlabelled(evidence, rows, ledger, facts)
    return replace(
        evidence,
        named_samples=named,
        unknown_samples=unknown,
        busy_samples=busy,
        stopped_samples=stopped,
        devices=len({row.uuid for row in rows}),
        active_devices=len(set().union(*active.values())),
        unheld_devices=sum(max(0, len(of) - ceil(held[node])) for node, of in active.items()),
        unlabelled_gpus=unlabelled,
        unlabelled_devices=devices,
    )


def _unlabelled(
    evidence: HourEvidence, rows: Sequence[DeviceSlot], ledger: LedgerInput, facts: HourFacts
) -> tuple[float, int]:
    """Return GPU-equivalents of nodes without labels that are more than the GPUs seen, and these.

    Only where no node has a label: one that lacks them was just made.
    """
    # No share is known where no node was to have labels: that is no lack of them.
    if evidence.shares.get(NODE_LABELS, 1.0) > 0.0:
        return 0.0, 0
    bare = {interval.node for interval in ledger.intervals if not interval.labels}
    devices: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.node in bare:
            devices[row.node].add(row.uuid)
    capacity: dict[str, float] = defaultdict(float)
    for fact in facts.nodes:
        capacity[fact.node] += (fact.amounts.capacity or 0) / _NANO
    # Shares of a GPU count as whole ones without labels: then there is more than is seen.
    excess = [
        node for node in devices if capacity[node] > THRESHOLDS.gpus_per_device * len(devices[node])
    ]
    return sum(capacity[node] for node in excess), sum(len(devices[node]) for node in excess)


# ---------------------------------------------------------------- what it is held against


def with_quotas(
    evidence: HourEvidence,
    reference: ReferenceHour | None,
    ledger: LedgerInput,
    hour: Window,
    ask: AskQuotas,
) -> HourEvidence:
    """Add what ResourceQuotas count as used, where the hour has much less than there was.

    Only then is it asked for. A source that refuses is no witness.
    """
    if not evidence.from_series or not has_fallen(evidence, reference, THRESHOLDS):
        return evidence
    try:
        answer = ask()
    except SourceRejected:
        return evidence
    shown = _used(answer.rows)
    known = _requested(ledger.pods, hour, shown)
    return replace(
        evidence,
        incomplete=tuple(dict.fromkeys((*evidence.incomplete, *answer.incomplete))),
        quota_used=sum(shown.values()),
        quota_unexplained=sum(max(0.0, used - known.get(key, 0.0)) for key, used in shown.items()),
    )


def _used(slots: Iterable[QuotaSlot]) -> dict[_Key, float]:
    """Return what is used of extended resources; of several quotas of a key the largest.

    What is used of device classes is in no series of pods.
    """
    used: dict[_Key, float] = {}
    for one in slots:
        resource = one.key.removeprefix(_REQUESTS_PREFIX)
        # Quotas count extended resources under `requests.` alone.
        if one.used and resource != one.key:
            key = (one.slot, one.namespace, resource)
            used[key] = max(used.get(key, 0.0), one.used)
    return used


def _requested(
    pods: Iterable[PodRecord], hour: Window, wanted: Collection[_Key]
) -> dict[_Key, float]:
    """Return the mean of what the pods of each slot ask for, held or pending."""
    found: dict[_Key, float] = defaultdict(float)
    for pod in pods:
        ended = hour.end_seconds if pod.ended is None else pod.ended
        for slot in hour.slots():
            seconds = min(ended, slot + SLOT_SECONDS) - max(pod.created, slot)
            for resource, units in pod.requests.items() if seconds > 0 else ():
                if (slot, pod.namespace, resource) in wanted:
                    found[slot, pod.namespace, resource] += units * seconds / SLOT_SECONDS
    return found


def nearest_reference(cluster: Cluster, start: datetime, end: datetime) -> ReferenceHour | None:
    """Return the complete hour nearest before a window, else after it. Two queries at most."""
    rows = _complete(cluster).filter(hour__gte=start - _NEAR, hour__lt=end + _NEAR)
    row = (
        rows.filter(hour__lt=start).order_by("-hour").first()
        or rows.filter(hour__gte=end).order_by("hour").first()
    )
    return None if row is None else _reference(row.evidence)


def recheck_hours(
    cluster: Cluster, hour: datetime, reference: ReferenceHour, *, now: datetime
) -> int:
    """Have complete hours looked at again that lack series which `reference` shows.

    They were judged when no better hour was known. Returns how many.
    """
    rows = _complete(cluster).filter(hour__gt=hour - _NEAR, hour__lt=hour + _NEAR)
    known = rows.exclude(hour=hour).order_by("hour").values_list("pk", "evidence")
    lacking = [pk for pk, found in known if lacks_series(_reference(found), reference)]
    return rows.filter(pk__in=lacking).update(again_at=now)


def lacks_series(one: ReferenceHour | None, other: ReferenceHour) -> bool:
    """Say whether an hour lacks series that another one shows."""
    if one is None:
        return False
    # Only these are kept of an hour: rules that compare anything else stay silent.
    own = HourEvidence(from_series=True, nodes=one.nodes, pods=one.pods, shares=one.shares)
    return any(found.series in other.shares for found in contradictions(own, other, THRESHOLDS))


def _complete(cluster: Cluster) -> QuerySet[CollectionWindow]:
    return CollectionWindow.objects.filter(
        cluster=cluster, state=CollectionState.COMPLETE.value, withheld=False
    ).exclude(evidence={})


def stored_reference(reference: ReferenceHour) -> dict[str, object]:
    """Return a reference as it is kept with its hour."""
    return {"nodes": reference.nodes, "pods": reference.pods, "shares": dict(reference.shares)}


def _reference(kept: Mapping[str, object]) -> ReferenceHour:
    return ReferenceHour(**kept)  # type: ignore[arg-type]
