"""The fields that scripts rely on: what was promised of each address, against the document."""

from typing import Any

import pytest
import yaml

from tests.api.test_schema import COMMITTED

LEDGER = tuple(
    f"{part}_gpu_hours"
    for part in (
        *("capacity", "unhealthy", "unallocated", "stranded", "allocated", "not_running"),
        *("unmeasured", "idle", "underused", "busy", "burst", "unattributed"),
        "planned_outage",
    )
)
MONEY = (
    *("period", "cause", "gpu_hours", "cost", "currency", "price_per_gpu_hour"),
    *("cluster", "tier", "team", "namespace", "workload", "gpu_model", "capacity_type"),
)
FIELDS: dict[str, tuple[str, ...]] = {
    "usage": (
        *("period", "cluster", "tier", "team", "namespace", "workload", "gpu_model"),
        *("capacity_type", "node", *LEDGER),
        *("allocation_ratio", "utilization_ratio", "coverage_ratio", "grades"),
    ),
    "pods": (
        *("cluster", "namespace", "pod", "uid", "owner_kind", "owner", "team", "tier"),
        *("gpu_model", "node", "resource", "units", "gpu_equivalents", "created_at", "bound_at"),
        *("started_at", "finished_at", "end_reason", "allocated_gpu_hours", "idle_gpu_hours"),
        *("not_running_gpu_hours", "unmeasured_gpu_hours", "underused_gpu_hours"),
        *("busy_gpu_hours",),
    ),
    "pending": (
        *("cluster", "namespace", "team", "kind", "name", "tier", "resource", "units"),
        *("gpu_equivalents", "since", "wait_seconds", "cause", "detail", "message"),
        *("node_reasons", "suggestion"),
    ),
    "pending/history": ("period", "cause"),
    "quotas": (
        *("cluster", "namespace", "source", "name", "key", "tiers", "team", "unit", "hard"),
        *("used", "held", "pending", "suppressed", "saturation_ratio", "effective"),
        *("exhausted_at",),
    ),
    "budgets": (
        *("team", "period_start", "period_end", "unit", "allowance", "used", "burn_rate"),
        *("burn_rate_1d", "burn_rate_7d", "exhausted_at", "exhausted_at_early"),
        *("exhausted_at_late",),
    ),
    "fairness": ("tier", "jain_index", "jain_allocation_ratio", "borrowable_gpu_hours"),
    "queue-time-objectives": ("tier", "p95_seconds", "attainment_ratio", "budget_left_ratio"),
    "goodput": (
        *("team", "node", "allocated_gpu_hours", "starting_gpu_hours", "lost_gpu_hours"),
        *("productive_gpu_hours", "goodput_ratio"),
    ),
    "goodput/losses": (
        *("cause", "reason", "events", "pods", "lost_gpu_hours", "xid_events"),
        "checkpointed_events",
        *("not_ready_events", "cordoned_events", "xid_checked_events", "node_checked_events"),
    ),
    "serving": (
        *("model", "team", "tier", "workload", "use", "tokens_in", "tokens_out", "requests"),
        *("tokens_per_gpu_hour", "cost_per_million_tokens", "currency", "measured_ratio"),
    ),
    "serving/hours": ("hour", "replicas", "replicas_without_metrics", "requests", "tokens"),
    "reliability-gpus": (
        "cluster",
        "node",
        "uuid",
        "incidents",
        "xids_hardware",
        "xids_other",
        "ecc_uncorrected",
    ),
    "interruptions": ("cluster", "least_gpus", "interruptions", "mean_hours"),
    "reliability": ("cluster", "node", "is_unreliable", "incidents", "expected", "reasons"),
    "my/workloads": (
        *("cluster", "namespace", "workload", "team", "tier", "running_gpus", "pending_gpus"),
        *("waited_gpu_hours", "allocated_gpu_hours", "busy_gpu_hours", "not_busy_gpu_hours"),
        *("unused_cost", "currency", "finding"),
    ),
    "capacity-plan": ("tier", "action", "action_gpus", "forecast_gpus", "cost_per_month"),
    "policy-simulations": ("id", "changes", "cluster", "author", "state", "requests"),
    "policy-simulations/{id}": ("teams", "assumptions", "error"),
    "planned-outages": ("number", "cluster", "node", "start", "end", "state", "gpu_hours"),
    "layouts": ("cluster", "tier", "unmet_gpu_hours", "unmet_after_gpu_hours"),
    "costs": MONEY,
    "waste": MONEY,
    "recommendations": (
        *("kind", "cluster", "namespace", "workload", "tier", "change", "saving_per_month"),
        *("currency", "confidence", "evidence", "state"),
    ),
    "bills": ("month", "provider", "total", "currency", "imported_at", "ended_at"),
    "reconciliation": (
        *("day", "gpu_model", "billed_cost", "portal_cost", "difference", "difference_ratio"),
        "currency",
    ),
    "quota-requests": (
        *("cluster", "namespace", "source", "name", "key", "from", "to", "reason", "needed_by"),
        *("until", "state"),
    ),
    "proposals": ("id", "team", "kind", "subject", "before", "after", "reason", "state", "author"),
    "proposals/{id}": ("dry_run_passed", "catalog_changes", "history"),
    "quota-requests/{id}": ("state", "preview", "evidence", "history"),
    "tiers": ("name",),
    "teams": ("name",),
    "clusters": ("name",),
    "collections": ("cluster", "hour", "state", "coverage_ratio", "samples", "attempts", "error"),
}
OF_TEAMS = (
    *("entitlement_gpus", "demand_gpu_hours", "fair_share_gpu_hours", "allocated_gpu_hours"),
    *("borrowed_gpu_hours", "lent_gpu_hours", "denied_gpu_hours", "wait_p50_seconds"),
    *("wait_p95_seconds", "waiting_now", "gave_up", "usage_factor"),
)
PARAMETERS: dict[str, tuple[str, ...]] = {
    "usage": ("start", "end", "interval", "group_by"),
    "goodput": ("start", "end", "group_by", "format"),
    "goodput/losses": ("start", "end", "team", "format"),
    "my/workloads": ("start", "end", "person", "format"),
    "serving": ("start", "end", "group_by", "format"),
    "serving/hours": ("start", "end", "team", "workload", "format"),
    "fairness": ("start", "end", "tier"),
    "costs": ("format",),
    "waste": ("format",),
    "costs/focus": ("period", "format"),
    "reconciliation": ("month",),
}
ASKED = (
    *("cluster", "namespace", "source", "name", "key", "from", "to", "reason"),
    *("needed_by", "until"),
)


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.load(COMMITTED.read_bytes(), yaml.CSafeLoader)


def resolved(document: Any, schema: Any) -> Any:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def answered(document: Any, address: str) -> Any:
    """Return the schema of what a GET answers: of a list, that of a row."""
    get = document["paths"][f"/api/v1/{address}"]["get"]
    schema = resolved(document, get["responses"]["200"]["content"]["application/json"]["schema"])
    if "results" not in schema["properties"]:
        return schema
    assert set(schema["required"]) >= {"results", "next"}
    return resolved(document, schema["properties"]["results"]["items"])


@pytest.mark.parametrize("address", FIELDS)
def test_a_row_has_the_fields_that_were_promised(address: str, document: Any) -> None:
    assert set(FIELDS[address]) <= answered(document, address)["properties"].keys()


def test_the_teams_of_a_tier_have_the_fields_that_were_promised(document: Any) -> None:
    teams = answered(document, "fairness")["properties"]["teams"]
    assert set(OF_TEAMS) <= resolved(document, teams["items"])["properties"].keys()


@pytest.mark.parametrize("address", PARAMETERS)
def test_a_list_takes_the_parameters_that_were_promised(address: str, document: Any) -> None:
    given = document["paths"][f"/api/v1/{address}"]["get"]["parameters"]
    assert set(PARAMETERS[address]) <= {parameter["name"] for parameter in given}


def test_a_request_is_made_of_the_fields_that_were_promised(document: Any) -> None:
    post = document["paths"]["/api/v1/quota-requests"]["post"]["requestBody"]["content"]
    assert set(ASKED) <= resolved(document, post["application/json"]["schema"])["properties"].keys()


@pytest.mark.parametrize("action", ["approve", "reject", "withdraw", "apply", "revert"])
def test_what_is_done_with_a_request_is_done_where_it_was_promised(
    action: str, document: Any
) -> None:
    assert "post" in document["paths"][f"/api/v1/quota-requests/{{id}}/{action}"]
