"""Addresses of the pages; each can be shared, and its query carries window and filters."""

from django.urls import URLPattern, path

from apps.web import search, styleguide
from apps.web.accounts import account, audit, users
from apps.web.accounts import account as saved
from apps.web.accounts import account as tokens
from apps.web.alerts import alert_list, channels
from apps.web.clusters import devices, tier_catalog, tiers
from apps.web.costs import cost_pages, exports, recommendations
from apps.web.data_quality import quality_pages, readiness
from apps.web.explain import breakdown, figure_page
from apps.web.fairness import overview, statement, tier, what_if
from apps.web.pending import pending_pages
from apps.web.quota_requests import request_pages
from apps.web.quotas import quota_pages
from apps.web.usage import home, teams, workloads
from apps.web.usage import workloads as pods

app_name = "web"
urlpatterns: list[URLPattern] = [
    path("", home.overview, name="overview"),
    path("tiers/", tier_catalog.tier_catalog, name="tiers"),
    path("tiers/<str:name>/", tiers.tier, name="tier"),
    path("teams/", teams.teams, name="teams"),
    path("teams/<str:name>/", teams.team, name="team"),
    path("teams/<str:name>/statement/", statement.team_statement, name="statement"),
    path(
        "workloads/<str:cluster>/<str:namespace>/<str:kind>/<str:name>/",
        workloads.workload,
        name="workload",
    ),
    path("pods/<str:cluster>/<str:uid>/", pods.pod, name="pod"),
    path("pending/", pending_pages.pending_list, name="pending"),
    path("pending/<str:cluster>/<str:uid>/", pending_pages.pending_item, name="pending-detail"),
    path("quotas/", quota_pages.quota_list, name="quotas"),
    path(
        "quotas/<str:cluster>/<str:source>/<str:namespace>/<str:name>/<path:key>/",
        quota_pages.quota,
        name="quota",
    ),
    path("requests/", request_pages.requests, name="requests"),
    path("requests/new/", request_pages.new, name="new-request"),
    path("requests/create", request_pages.create, name="create-request"),
    path("requests/<int:pk>/", request_pages.request_page, name="request"),
    path("requests/<int:pk>/outlook/", request_pages.live_outlook, name="request-outlook"),
    path("requests/<int:pk>/edit/", request_pages.edit, name="edit-request"),
    path("requests/<int:pk>/save", request_pages.save, name="save-request"),
    path("requests/<int:pk>/file", request_pages.gitops_file, name="request-file"),
    path("requests/<int:pk>/do/<str:action>", request_pages.act, name="act-on-request"),
    path("review/", request_pages.review, name="review"),
    path("fairness/", overview.fairness_list, name="fairness"),
    path("fairness/<str:name>/", tier.tier_fairness, name="tier-fairness"),
    path("fairness/<str:name>/what-if/", what_if.what_if_page, name="what-if"),
    path("costs/", cost_pages.cost_explorer, name="costs"),
    path("costs/file", cost_pages.costs_file, name="costs-file"),
    path("waste/", cost_pages.waste, name="waste"),
    path("waste/file", cost_pages.waste_file, name="waste-file"),
    path("exports/", exports.exports, name="exports"),
    path("exports/asked", exports.export_list, name="export-list"),
    path("exports/ask", exports.ask, name="ask-export"),
    path("exports/file", exports.month_file, name="month-file"),
    path("exports/<int:pk>/file", exports.export_file, name="export-file"),
    path("exports/<str:month>/reopen", exports.reopen, name="reopen-month"),
    path("recommendations/", recommendations.recommendations, name="recommendations"),
    path("recommendations/<int:pk>/accept", recommendations.accept, name="accept-recommendation"),
    path(
        "recommendations/<int:pk>/dismiss", recommendations.dismiss, name="dismiss-recommendation"
    ),
    path("recommendations/<int:pk>/reopen", recommendations.reopen, name="reopen-recommendation"),
    path("devices/", devices.device_list, name="devices"),
    path("devices/<str:cluster>/<path:uuid>/", devices.device, name="device"),
    path("explain/", breakdown.explain, name="explain"),
    path("explain/<str:figure>/", figure_page.explain_figure, name="explain-figure"),
    path("search/", search.search, name="search"),
    path("views/", saved.views, name="views"),
    path("views/save", saved.save, name="save-view"),
    path("views/<int:pk>/delete", saved.delete, name="delete-view"),
    path("first-run/", readiness.first_run_page, name="first-run"),
    path("health/data/", quality_pages.data_health, name="data-health"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-in/provider/", account.to_provider, name="sign-in-provider"),
    path("sign-in/provider/callback/", account.from_provider, name="sign-in-callback"),
    path("sign-out/", account.SignOut.as_view(), name="sign-out"),
    path("sign-out/everywhere", account.sign_out_everywhere, name="sign-out-everywhere"),
    path("password/", account.password, name="password"),
    path("password/change", account.change_password, name="change-password"),
    path("tokens/", tokens.tokens, name="tokens"),
    path("tokens/make", tokens.make, name="make-token"),
    path("tokens/<int:pk>/revoke", tokens.revoke, name="revoke-token"),
    path("notices/", alert_list.alert_page, name="alerts"),
    path("notices/<int:pk>/answer", alert_list.answer, name="answer-alert"),
    path("notices/channels/", channels.channels, name="channels"),
    path("notices/channels/make", channels.make, name="make-channel"),
    path("notices/channels/<int:pk>/", channels.channel, name="channel"),
    path("notices/channels/<int:pk>/change", channels.change_one, name="change-channel"),
    path("notices/channels/<int:pk>/switch", channels.switch, name="switch-channel"),
    path("notices/channels/<int:pk>/try", channels.try_one, name="try-channel"),
    path("notices/channels/<int:pk>/mute", channels.mute_one, name="mute-channel"),
    path("notices/channels/<int:pk>/remove", channels.remove, name="remove-channel"),
    path("notices/silences/<int:pk>/end", channels.end_mute, name="end-mute"),
    path("notices/sent/", alert_list.deliveries, name="deliveries"),
    path("notices/sent/<int:pk>/again", alert_list.again, name="send-again"),
    path("people/", users.people, name="users"),
    path("people/make", users.make, name="make-person"),
    path("people/<int:pk>/", users.person, name="user"),
    path("people/<int:pk>/role", users.role, name="give-role"),
    path("people/<int:pk>/place", users.place, name="give-place"),
    path("people/<int:pk>/shut-out", users.shut, name="shut-out-person"),
    path("people/<int:pk>/disable", users.disable, name="disable-person"),
    path("people/<int:pk>/enable", users.enable, name="enable-person"),
    path("audit/", audit.audit, name="audit"),
    path("audit/file", audit.audit_file, name="audit-file"),
    path("healthz", readiness.healthz, name="healthz"),
    path("readyz", readiness.readyz, name="readyz"),
]
