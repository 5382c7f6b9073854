"""What could be had for less: pure rules over thirty days of evidence."""

from collections.abc import Iterable

from apps.costs.domain.recommendations.evidence import Offers, WorkloadEvidence
from apps.costs.domain.recommendations.idle_time import idle_end, idle_start
from apps.costs.domain.recommendations.recommendation import Confidence, Finding, RecommendationKind
from apps.costs.domain.recommendations.rightsizing import (
    fewer_gpus,
    idle_notebook,
    mig_profile,
    other_model,
    shared_tier,
    smaller_model,
    spot,
)

_RULES = (
    *(fewer_gpus, mig_profile, shared_tier, other_model, idle_notebook, smaller_model, spot),
    *(idle_start, idle_end),
)


def for_workloads(evidence: Iterable[WorkloadEvidence], offers: Offers) -> list[Finding]:
    """Return what every rule says of every workload, the largest saving first.

    Several may be of one workload: they are alternatives, and marked as such when they are stored.
    Those without a price come last, for their saving is not known.
    """
    found = [
        recommendation.against(one.cell)
        for one in evidence
        if one.is_enough
        for rule in _RULES
        if (recommendation := rule(one, offers)) is not None
    ]
    return sorted(found, key=lambda one: one.order)
