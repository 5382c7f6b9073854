"""Whether an hour's facts are complete, and what a person should do when they are not."""

from dataclasses import dataclass

from apps.usage.domain.collection import CollectionState
from apps.usage.domain.hour import HourFacts

# Scrapes at the edges of pods cost a little coverage; below this something is missing.
COMPLETE_FROM = 0.95
_NAMED_NODES = 3
_NOTHING = (
    "no pods and nodes are known for this hour: neither `watch` nor kube-state-metrics was there, "
    "or Prometheus no longer keeps it (see its retention and the matchers in the catalog)"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`coverage_ratio` is None when nothing ran; `error` is empty when all is well."""

    state: CollectionState
    coverage_ratio: float | None
    error: str


def judge(facts: HourFacts, *, slots_without_ledger: int, device_rows: int) -> Verdict:
    """Judge an hour: complete, partial, or failed when there is nothing to tell of it.

    An hour in which somebody looked and no node with GPUs was there is complete: clusters are
    scaled to zero.

    `slots_without_ledger` counts half hours in which neither `watch` nor kube-state-metrics
    was there; `device_rows` the device series found.
    """
    total = facts.total()
    coverage = total.coverage_ratio
    if not total.capacity and slots_without_ledger:
        return Verdict(CollectionState.FAILED, None, _NOTHING)
    reasons = []
    if slots_without_ledger:
        reasons.append(
            "pods and nodes are unknown for part of the hour: neither `watch` nor "
            "kube-state-metrics was there; see that both run and that Prometheus scrapes the latter"
        )
    if coverage is not None and coverage < COMPLETE_FROM:
        reasons.append(_uncovered(facts, 1.0 - coverage, device_rows))
    state = CollectionState.PARTIAL if reasons else CollectionState.COMPLETE
    return Verdict(state, coverage, "; ".join(reasons))


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
