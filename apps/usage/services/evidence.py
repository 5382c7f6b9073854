"""Counting what the sources of an hour say, and finding an hour to hold it against."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil

from django.conf import settings
from django.db.models import QuerySet

from apps.clusters.domain.devices.samples import DeviceSlot
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.pods.series import NODE_LABELS
from apps.clusters.domain.tiers import TierRule
from apps.clusters.domain.time_spans import clip
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.models import Cluster
from apps.clusters.ports import QuotaSlot, SourceRejected
from apps.usage.domain.attribution.hour import HourFacts
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.evidence import Evidence, Reference, Thresholds, contradictions, has_fallen
from apps.usage.models import CollectionWindow
from apps.usage.services.ledger_input import LedgerInput

_NEAR = timedelta(days=7)
_NANO = 1e9
_REQUESTS_PREFIX = "requests."
THRESHOLDS = Thresholds()

AskQuotas = Callable[[], Iterable[QuotaSlot]]


def gather(
    hour: Window,
    ledger: LedgerInput,
    rows: Sequence[DeviceSlot],
    facts: HourFacts,
    rules: Sequence[TierRule],
    incomplete: Sequence[str],
) -> Evidence:
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
    held, nowhere, pods = _held(ledger.pods, offering, hour)
    evidence = Evidence(
        from_series=bool(slots),
        nodes=len(offering),
        pods=pods,
        held_seconds=held,
        nowhere_seconds=nowhere,
        claims=any(rule.device_classes for rule in rules),
        shares=ledger.shown.shares,
        nameless=ledger.shown.nameless,
        incomplete=tuple(incomplete),
    )
    if not slots:
        return evidence
    seen = [row for row in rows if row.samples and row.slot in slots]
    return _with_devices(evidence, seen, ledger, offering, facts, hour)


def _held(
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


def _still(pods: Iterable[PodRecord], hour: Window) -> set[tuple[str, str]]:
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
    evidence: Evidence,
    rows: Sequence[DeviceSlot],
    ledger: LedgerInput,
    offering: Collection[str],
    facts: HourFacts,
    hour: Window,
) -> Evidence:
    """Add what devices say. A pod on a node that offers no resource may hold them by claims."""
    known = {(pod.namespace, pod.name) for pod in ledger.pods} | ledger.shown.past_pods
    plain = ledger.shown.plain_nodes
    still = _still(ledger.pods, hour)
    named = unknown = busy = stopped = 0
    active: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.pod and row.node not in plain:
            named += row.samples
            if (row.namespace, row.pod) not in known:
                unknown += row.samples
        if (row.activity_sum or 0.0) > settings.IDLE_BELOW * row.samples and row.node in offering:
            active[row.node].add(row.uuid)
            busy += row.samples if row.pod else 0
            stopped += row.samples if (row.namespace, row.pod) in still else 0
    held = _units_held(ledger.pods, hour)
    unlabelled, cards = _unlabelled(evidence, rows, ledger, facts)
    return replace(
        evidence,
        named_samples=named,
        unknown_samples=unknown,
        busy_samples=busy,
        stopped_samples=stopped,
        cards=len({row.uuid for row in rows}),
        active_cards=len(set().union(*active.values())),
        unheld_cards=sum(max(0, len(of) - ceil(held[node])) for node, of in active.items()),
        unlabelled_gpus=unlabelled,
        unlabelled_cards=cards,
    )


def _unlabelled(
    evidence: Evidence, rows: Sequence[DeviceSlot], ledger: LedgerInput, facts: HourFacts
) -> tuple[float, int]:
    """Return GPU-equivalents of nodes without labels that are more than the cards seen, and these.

    Only where no node has a label: one that lacks them was just made.
    """
    if evidence.shares.get(NODE_LABELS, 1.0) > 0.0:
        return 0.0, 0
    bare = {interval.node for interval in ledger.intervals if not interval.labels}
    cards: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.node in bare:
            cards[row.node].add(row.uuid)
    capacity: dict[str, float] = defaultdict(float)
    for fact in facts.nodes:
        capacity[fact.node] += (fact.amounts.capacity or 0) / _NANO
    excess = [node for node in cards if capacity[node] > THRESHOLDS.cards * len(cards[node])]
    return sum(capacity[node] for node in excess), sum(len(cards[node]) for node in excess)


# ---------------------------------------------------------------- what it is held against


def with_quotas(
    evidence: Evidence,
    reference: Reference | None,
    ledger: LedgerInput,
    hour: Window,
    ask: AskQuotas,
) -> Evidence:
    """Add what ResourceQuotas count as used, where the hour has much less than there was.

    Only then is it asked for. A source that refuses is no witness.
    """
    if not evidence.from_series or not has_fallen(evidence, reference, THRESHOLDS):
        return evidence
    try:
        shown = _used(ask())
    except SourceRejected:
        return evidence
    known = _requested(ledger.pods, hour, shown)
    return replace(
        evidence,
        quota_used=sum(shown.values()),
        quota_unexplained=sum(max(0.0, used - known.get(key, 0.0)) for key, used in shown.items()),
    )


_Key = tuple[int, str, str]
"""(slot, namespace, resource)."""


def _used(slots: Iterable[QuotaSlot]) -> dict[_Key, float]:
    """Return what is used of extended resources; of several quotas of a key the largest.

    What is used of device classes is in no series of pods.
    """
    used: dict[_Key, float] = {}
    for one in slots:
        resource = one.key.removeprefix(_REQUESTS_PREFIX)
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


def nearest_reference(cluster: Cluster, start: datetime, end: datetime) -> Reference | None:
    """Return the complete hour nearest before a window, else after it. Two queries at most."""
    rows = _complete(cluster).filter(hour__gte=start - _NEAR, hour__lt=end + _NEAR)
    row = (
        rows.filter(hour__lt=start).order_by("-hour").first()
        or rows.filter(hour__gte=end).order_by("hour").first()
    )
    return None if row is None else _reference(row.evidence)


def look_again(cluster: Cluster, hour: datetime, reference: Reference, *, now: datetime) -> int:
    """Have complete hours looked at again that lack series which `reference` shows.

    They were judged when no better hour was known. Returns how many.
    """
    rows = _complete(cluster).filter(hour__gt=hour - _NEAR, hour__lt=hour + _NEAR)
    known = rows.exclude(hour=hour).order_by("hour").values_list("pk", "evidence")
    lacking = [pk for pk, found in known if lacks(_reference(found), reference)]
    return rows.filter(pk__in=lacking).update(again_at=now)


def lacks(one: Reference | None, other: Reference) -> bool:
    """Say whether an hour lacks series that another one shows."""
    if one is None:
        return False
    own = Evidence(from_series=True, nodes=one.nodes, pods=one.pods, shares=one.shares)
    return any(found.series in other.shares for found in contradictions(own, other, THRESHOLDS))


def _complete(cluster: Cluster) -> QuerySet[CollectionWindow]:
    return CollectionWindow.objects.filter(
        cluster=cluster, state=CollectionState.COMPLETE.value, withheld=False
    ).exclude(evidence={})


def kept_form(reference: Reference) -> dict[str, object]:
    """Return a reference as it is kept with its hour."""
    return {"nodes": reference.nodes, "pods": reference.pods, "shares": dict(reference.shares)}


def _reference(kept: Mapping[str, object]) -> Reference:
    return Reference(**kept)  # type: ignore[arg-type]
