"""Recommendations as rows, for tests of what is shown of them."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from apps.accounts.models import Team
from apps.clusters.models import Cluster, Tier
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.models import Recommendation

AT = datetime(2026, 11, 20, 6, tzinfo=UTC)


def make(number: int = 0, **values: Any) -> Recommendation:
    """Make an idle notebook of the small portal's team vision, or what `values` say."""
    given: dict[str, Any] = {
        "kind": RecommendationKind.STOP_IDLE_NOTEBOOK.value,
        "cluster": Cluster.objects.get(name="west"),
        "tier": Tier.objects.get(name="gold"),
        "team": Team.objects.get(name="vision"),
        "namespace": "vision",
        "workload": f"StatefulSet/notebook-{number}",
        "change": "Stop it: it has been idle for 30 hours.",
        "patch": "kubectl --namespace vision scale statefulset/notebook-0 --replicas=0",
        "saving_per_month": Decimal("2122.11") - number,
        "currency": "USD",
        "confidence": "medium",
        "reason": "14 days, 100 % measured",
        "evidence": {
            "days": 14.0,
            "coverage_ratio": 1.0,
            "p95_activity": 0.05,
            "memory_peak_mib": 6144.0,
            "price_per_gpu_hour": "3.06000000",
        },
        "first_seen": AT,
        "last_seen": AT,
    }
    return Recommendation.objects.create(**(given | values))
