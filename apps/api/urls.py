"""Addresses of the API: each list with and without a slash at its end."""

from django.urls import URLPattern, path, re_path
from rest_framework.views import APIView

from apps.api import bills, costs, fairness, pending, proposals, quota_requests, quotas, views
from apps.api.planning import (
    capacity_plan,
    goodput,
    layouts,
    my_workloads,
    outages,
    policies,
    reliability,
    serving,
    topology,
)

app_name = "api"

LISTS: dict[str, type[APIView]] = {
    "usage": views.usage_list,
    "pods": views.pods,
    "tiers": views.tiers,
    "teams": views.teams,
    "clusters": views.cluster_list,
    "collections": views.collections,
    "pending": pending.pending_list,
    "pending/history": pending.pending_history,
    "quotas": quotas.quota_list,
    "budgets": quotas.budgets,
    "fairness": fairness.fairness_list,
    "queue-time-objectives": fairness.objectives,
    "slots": topology.slots,
    "slot-history": topology.slot_history,
    "fragmentation": topology.fragmentation,
    "goodput": goodput.goodput_list,
    "goodput/losses": goodput.losses,
    "serving": serving.serving,
    "serving/hours": serving.serving_hours,
    "interruptions": reliability.interruptions,
    "reliability": reliability.reliability,
    "reliability-gpus": reliability.reliability_gpus,
    "my/workloads": my_workloads.my_workloads,
    "capacity-plan": capacity_plan.capacity_plan,
    "policy-simulations": policies.PolicySimulationsView,
    "layouts": layouts.layouts,
    "planned-outages": outages.planned_outages,
    "costs": costs.cost_list,
    "costs/focus": costs.FocusView,
    "waste": costs.waste,
    "bills": bills.bills,
    "reconciliation": bills.reconciliation,
    "recommendations": costs.recommendations,
    "quota-requests": quota_requests.QuotaRequestsView,
    "proposals": proposals.ProposalsView,
}
_SIMULATION = "policy-simulations/<int:pk>"
_REQUEST, _PROPOSAL = "quota-requests/<int:pk>", "proposals/<int:pk>"


def _routes(name: str, view: type[APIView], route: str = "") -> list[URLPattern]:
    where = route or name
    return [
        path(f"v1/{where}", view.as_view(), name=name),
        # The same address in the document twice would make two operations of it.
        path(f"v1/{where}/", view.as_view(schema=None)),
    ]


urlpatterns = [
    path("schema/", views.SchemaView.as_view(), name="schema"),
    path("v1/", views.IndexView.as_view(lists=tuple(LISTS)), name="index"),
    *(route for name, view in LISTS.items() for route in _routes(name, view)),
    *_routes("preflight", pending.PreflightView),
    *_routes("policy-simulation", policies.PolicySimulationView, _SIMULATION),
    *_routes("request-policy-simulation", policies.PolicyRequestsView, f"{_SIMULATION}/request"),
    *_routes("quota-request", quota_requests.QuotaRequestView, _REQUEST),
    *(
        route
        for name, view in quota_requests.ACTIONS.items()
        for route in _routes(f"{name}-quota-request", view, f"{_REQUEST}/{name}")
    ),
    *_routes("proposal", proposals.ProposalView, _PROPOSAL),
    *(
        route
        for name, view in proposals.ACTIONS.items()
        for route in _routes(f"{name}-proposal", view, f"{_PROPOSAL}/{name}")
    ),
    # The last one: whatever no other address is, is answered here.
    re_path(r"", views.NowhereView.as_view()),
]
