"""Addresses of the pages; each can be shared, and its query carries window and filters."""

from django.urls import URLPattern, path

from apps.web.views import (
    account,
    catalog,
    devices,
    explain,
    first_run,
    health,
    overview,
    pending,
    pods,
    probes,
    saved,
    search,
    styleguide,
    teams,
    tiers,
    workloads,
)

app_name = "web"
urlpatterns: list[URLPattern] = [
    path("", overview.overview, name="overview"),
    path("tiers/", catalog.tier_catalog, name="tiers"),
    path("tiers/<str:name>/", tiers.tier, name="tier"),
    path("teams/", teams.teams, name="teams"),
    path("teams/<str:name>/", teams.team, name="team"),
    path(
        "workloads/<str:cluster>/<str:namespace>/<str:kind>/<str:name>/",
        workloads.workload,
        name="workload",
    ),
    path("pods/<str:cluster>/<str:uid>/", pods.pod, name="pod"),
    path("pending/", pending.waiting_list, name="pending"),
    path("pending/<str:cluster>/<str:uid>/", pending.waiting, name="waiting"),
    path("devices/", devices.device_list, name="devices"),
    path("devices/<str:cluster>/<path:uuid>/", devices.device, name="device"),
    path("explain/", explain.explain, name="explain"),
    path("search/", search.search, name="search"),
    path("views/", saved.views, name="views"),
    path("views/save", saved.save, name="save-view"),
    path("views/<int:pk>/delete", saved.delete, name="delete-view"),
    path("first-run/", first_run.checklist, name="first-run"),
    path("health/data/", health.data_health, name="data-health"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", account.SignOut.as_view(), name="sign-out"),
    path("healthz", probes.healthz, name="healthz"),
    path("readyz", probes.readyz, name="readyz"),
]
