"""Addresses of the pages; each can be shared, and its query carries window and filters."""

from django.urls import URLPattern, path

from apps.web.views import account, health, overview, pods, probes, teams, tiers, workloads

app_name = "web"
urlpatterns: list[URLPattern] = [
    path("", overview.overview, name="overview"),
    path("tiers/<str:name>/", tiers.tier, name="tier"),
    path("teams/", teams.teams, name="teams"),
    path("teams/<str:name>/", teams.team, name="team"),
    path(
        "workloads/<str:cluster>/<str:namespace>/<str:kind>/<str:name>/",
        workloads.workload,
        name="workload",
    ),
    path("pods/<str:cluster>/<str:uid>/", pods.pod, name="pod"),
    path("health/data/", health.data_health, name="data-health"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", account.SignOut.as_view(), name="sign-out"),
    path("healthz", probes.healthz, name="healthz"),
    path("readyz", probes.readyz, name="readyz"),
]
