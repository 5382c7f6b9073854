"""From what is known of an hour to its facts: who held what, and what their devices did. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from apps.clusters.domain.devices.samples import ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.tiers import TierRule
from apps.usage.domain.attribution.allocations import Allocation, PodLedger
from apps.usage.domain.attribution.attribute import (
    Attribution,
    SampleInterval,
    attribute,
    guess,
    mislabelled,
    recut,
)
from apps.usage.domain.attribution.gpu_classes import Classifier
from apps.usage.domain.attribution.hour import HourFacts, allocate_cluster, facts
from apps.usage.domain.attribution.inventory import inventories

RawSamples = Callable[[Sequence[str]], Iterable[ActivitySample] | None]
"""Gives the raw samples of some devices (UUIDs) in the hour; None where they are refused."""


@dataclass(frozen=True, slots=True)
class HourInput:
    """What is known of one hour of one cluster; `start` in Unix seconds, `rules` of the hour."""

    start: int
    ledger: PodLedger
    rows: Sequence[DeviceSlot]
    rules: Sequence[TierRule]
    interval: SampleInterval


def attribute_hour(
    hour: HourInput, raw: RawSamples, *, idle_below: float
) -> tuple[HourFacts, Attribution]:
    """Return the hour's facts, and how device rows found their pods.

    `raw` is asked for the devices alone whose sums over a slot cannot be told apart.
    """
    classifier = Classifier(hour.rules, lambda: inventories(hour.rows))
    ledgers = allocate_cluster(hour.start, hour.ledger, classifier=classifier)
    holdings = [holding for ledger in ledgers for holding in ledger.holdings]
    attribution = attribute(
        hour.rows,
        holdings,
        interval=hour.interval,
        offered=_offered(hour.ledger.intervals, classifier),
    )
    findings = _cut(attribution, holdings, raw)
    result = facts(hour.start, ledgers, attribution, idle_below=idle_below)
    result.findings.update(findings)
    return result, attribution


def _offered(
    intervals: Sequence[NodeInterval], classifier: Classifier
) -> dict[tuple[str, str], float]:
    """Return how many devices each node offers that one pod has alone, by node and profile."""
    most: dict[tuple[str, str], float] = {}
    for interval in intervals:
        units: dict[str, float] = defaultdict(float)
        for offer in classifier.offers(interval):
            if not offer.shared:
                units[offer.profile] += offer.units
        for profile, count in units.items():
            key = (interval.node, profile)
            most[key] = max(most.get(key, 0.0), count)
    return most


def _cut(attribution: Attribution, holdings: Sequence[Allocation], raw: RawSamples) -> Counter[str]:
    """Cut what sums mix from raw samples; return the findings.

    Where raw samples are refused the labels are believed, and what rests on them is inferred.
    """
    labels = mislabelled(attribution, holdings)
    groups = {row.uuid for group in attribution.unclear for row in group.rows}
    uuids = labels | groups
    if not uuids:
        return Counter()
    samples = raw(sorted(uuids))
    if samples is None:
        guess(attribution, uuids, holdings)
        return Counter(raw_samples_refused=len(uuids))
    recut(attribution, uuids, samples, holdings)
    return Counter(label_outlived_pod=len(labels), cut_at_pod_times=len(groups - labels))
