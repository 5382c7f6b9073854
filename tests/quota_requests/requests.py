"""A request on the small portal, as it is after it was handed in."""

from datetime import UTC, datetime
from typing import Any

from apps.quota_requests.models import Author, ChangeRequest
from tests.factories import Portal

AT = datetime(2025, 10, 27, 12, tzinfo=UTC)


def make_request(portal: Portal, **values: Any) -> ChangeRequest:
    """Make a submitted request of Ada's for the quota of vision, with little frozen with it."""
    given: dict[str, Any] = {
        "cluster": portal.clusters[0],
        "team": portal.vision,
        "source": "ResourceQuota",
        "namespace": "vision",
        "name": "gpus",
        "key": "requests.nvidia.com/gpu",
        "before": "8",
        "after": "10",
        "tiers": ["gold", "silver"],
        "reason": "A larger model.",
        "state": "submitted",
        "authors": ["ada"],
        "preview": PREVIEW,
        "evidence": EVIDENCE,
        "ruling": {"by_rule": False, "approvals_needed": 1, "checks": []},
        "created_at": AT,
        "changed_at": AT,
        "changed_by": "ada",
        "submitted_at": AT,
    }
    request = ChangeRequest.objects.create(**given | values)
    Author.objects.create(request=request, username="ada")
    return request


PREVIEW = {
    "live": "8",
    "dry_run_passed": True,
    "dry_run": "Dry run passed.",
    "owners": [],
    "patch_file": {"name": "gpus.yaml", "text": "kind: ResourceQuota\n", "how": "Commit it."},
    "promised": [
        {
            "tier": tier,
            "before_units": "12",
            "after_units": "14",
            "capacity_units": capacity,
            "promised_ratio": ratio,
            "over": over,
        }
        for tier, capacity, ratio, over in (("gold", "8", "1.75", True), ("silver", None, None, 0))
    ],
    "borrowing": [
        {
            "name": "another",
            "idle_before": "4",
            "idle_after": "2",
            "full_before": "0",
            "full_after": "0",
            "lost": "2",
        }
    ],
    "cost_per_month_least": "1000",
    "cost_per_month_most": "4467.6",
    "currency": "USD",
    "without_price": [],
    "starts": [{"name": "queued", "admitted": 2, "free": None, "left": 1}],
    "unreached": "",
}
EVIDENCE = {
    "window": {"start": "2025-09-27T12:00:00+00:00", "end": "2025-10-27T12:00:00+00:00"},
    "missing": ["money: no prices, or no costs yet"],
    "usage": [
        {
            "tier": "gold",
            "allocated_gpu_hours": "100",
            "busy_gpu_hours": "60",
            "idle_gpu_hours": "20",
            "underused_gpu_hours": "10",
            "not_running_gpu_hours": "5",
            "unmeasured_gpu_hours": "5",
            "utilization_ratio": "0.666666667",
        }
    ],
    "money": [],
    "quota": {
        "hours": 24,
        "saturation_mean": "0.8",
        "saturation_peak": "1",
        "full_hours": 3,
        "pending_unit_hours": "6",
        "suppressed_unit_hours": None,
        "unit": "GPU",
        "hard": "8",
        "used": "6",
        "held": "5",
        "pending": "1",
        "suppressed": "2",
        "exhausted_at": None,
    },
    "fairness": [
        {
            "tier": "gold",
            "entitlement_gpus": "4",
            "demand_gpu_hours": "20",
            "fair_share_gpu_hours": "16",
            "allocated_gpu_hours": "20",
            "borrowed_gpu_hours": "4",
            "lent_gpu_hours": "0",
            "denied_gpu_hours": "1.5",
            "wait_p50_seconds": "60",
            "wait_p95_seconds": None,
            "waiting_now": 1,
            "usage_factor": "0.5",
        }
    ],
    "budgets": [
        {
            "unit": "gpu_hours",
            "period": "month",
            "allowance": "5000",
            "used": "120.5",
            "burn_rate": None,
            "exhausted_at": None,
        }
    ],
}
