"""Whether an hour's facts are complete, and what a person should do when they are not."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.usage.domain.attribution.hour import HourFacts
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.evidence import (
    Contradiction,
    Evidence,
    Reference,
    Thresholds,
    contradictions,
)

# Scrapes at the edges of pods cost a little coverage; below this something is missing.
COMPLETE_FROM = 0.95
_NAMED_NODES = 3
_NO_EVIDENCE = Evidence()
_USUAL = Thresholds()
_NOTHING = (
    "no pods and nodes are known for this hour: neither `watch` nor kube-state-metrics was there, "
    "or Prometheus no longer keeps it (see its retention and the matchers in the catalog)"
)


@dataclass(frozen=True, slots=True)
class HourVerdict:
    """`coverage_ratio` is None when nothing ran; `error` is empty when all is well.

    `withheld`: the sources contradict each other, so that no figure of the hour is to be shown.
    """

    state: CollectionState
    coverage_ratio: float | None
    error: str
    withheld: bool = False


def judge(
    facts: HourFacts,
    *,
    slots_without_ledger: int,
    device_rows: int,
    evidence: Evidence = _NO_EVIDENCE,
    reference: Reference | None = None,
    thresholds: Thresholds = _USUAL,
) -> HourVerdict:
    """Judge an hour: complete, partial, or failed when there is nothing to tell of it.

    An hour in which somebody looked and no node with GPUs was there is complete: clusters are
    scaled to zero.

    `slots_without_ledger` counts half hours in which neither `watch` nor kube-state-metrics
    was there; `device_rows` the device series found. `evidence` is held against itself and
    against `reference`, the nearest complete hour: where sources contradict each other the hour
    is partial, whatever the figures are.
    """
    total = facts.total()
    coverage = total.coverage_ratio
    against = contradictions(evidence, reference, thresholds)
    if against:
        return HourVerdict(CollectionState.PARTIAL, coverage, _contradicted(against), withheld=True)
    if not total.capacity and slots_without_ledger:
        return HourVerdict(CollectionState.FAILED, None, _NOTHING)
    reasons = [f"the metrics server warns: {text}" for text in evidence.incomplete[:1]]
    if slots_without_ledger:
        reasons.append(
            "pods and nodes are unknown for part of the hour: neither `watch` nor "
            "kube-state-metrics was there; see that both run and that Prometheus scrapes the latter"
        )
    if coverage is not None and coverage < COMPLETE_FROM:
        reasons.append(_uncovered(facts, 1.0 - coverage, device_rows))
    state = CollectionState.PARTIAL if reasons else CollectionState.COMPLETE
    return HourVerdict(state, coverage, "; ".join(reasons))


def _contradicted(against: Sequence[Contradiction]) -> str:
    found = "; ".join(f"{one.series}: {one.text}" for one in against)
    return (
        f"sources contradict each other, so the hour has no figures. {found}. See that "
        "kube-state-metrics and Prometheus ran; the hour is tried again while Prometheus keeps it"
    )


def _uncovered(facts: HourFacts, missing: float, device_rows: int) -> str:
    if not device_rows:
        return (
            "no device samples at all: see that dcgm-exporter runs, that Prometheus scrapes it, "
            "and that the matchers in the catalog fit its labels"
        )
    nodes = ", ".join(facts.least_measured_nodes(_NAMED_NODES))
    return (
        f"{missing:.1%} of the running GPU time has no device samples, most on {nodes}: see "
        "that dcgm-exporter runs there and that its pods are labelled"
    )
