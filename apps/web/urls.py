"""Addresses of the pages; each can be shared, and its query carries window and filters."""

from django.urls import URLPattern, path, re_path

from apps.web import navigation, search, styleguide
from apps.web.accounts import account, audit, users
from apps.web.alerts import alert_list, channels
from apps.web.clusters import device, devices, tier_catalog, tiers
from apps.web.costs import bill, cost_pages, exports, prices, recommendations, report
from apps.web.data_quality import quality_pages, readiness
from apps.web.explain import breakdown, figure_page
from apps.web.fairness import overview, statement, tier, what_if
from apps.web.home import home
from apps.web.pending import pending_pages
from apps.web.planning import preflight_pages, topology
from apps.web.planning import preflight_pages
from apps.web.planning import topology
from apps.web.planning import capacity_plan, preflight_pages
from apps.web.planning import capacity_plan, preflight_pages, topology
from apps.web.quota_requests import request_pages
from apps.web.quotas import budget_pages, key_page, proposals, quota_pages
from apps.web.usage import pods, team, teams, workload_list, workloads

app_name = "web"
urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path("capacity/tiers/", tier_catalog.tier_catalog, name="tiers"),
    path("capacity/tiers/<str:name>/", tiers.tier, name="tier"),
    path("capacity/teams/", teams.teams, name="teams"),
    path("capacity/teams/<str:name>/", team.team, name="team"),
    path("capacity/teams/<str:name>/statement/", statement.team_statement, name="statement"),
    path("workloads/", workload_list.workload_list, name="workloads"),
    path(
        "workloads/<str:cluster>/<str:namespace>/<str:kind>/<str:name>/",
        workloads.workload,
        name="workload",
    ),
    path("pods/<str:cluster>/<str:uid>/", pods.pod, name="pod"),
    path("pending/", pending_pages.pending_list, name="pending"),
    path("pending/<str:cluster>/<str:uid>/", pending_pages.pending_item, name="pending-detail"),
    path("preflight/", preflight_pages.preflight, name="preflight"),
    path("preflight/check", preflight_pages.check_manifest, name="check-manifest"),
    path("quotas/", quota_pages.quota_list, name="quotas"),
    path(
        "quotas/<str:cluster>/<str:source>/<str:namespace>/<str:name>/<path:key>/",
        key_page.quota_key,
        name="quota",
    ),
    path("quotas/requests/", request_pages.requests, name="requests"),
    path("quotas/requests/new/", request_pages.new, name="new-request"),
    path("quotas/requests/create", request_pages.create, name="create-request"),
    path("quotas/requests/<int:pk>/", request_pages.request_page, name="request"),
    path("quotas/requests/<int:pk>/outlook/", request_pages.live_outlook, name="request-outlook"),
    path("quotas/requests/<int:pk>/edit/", request_pages.edit, name="edit-request"),
    path("quotas/requests/<int:pk>/save", request_pages.save, name="save-request"),
    path("quotas/requests/<int:pk>/file", request_pages.gitops_file, name="request-file"),
    path("quotas/requests/<int:pk>/do/<str:action>", request_pages.act, name="act-on-request"),
    path("quotas/proposals/", proposals.proposals, name="proposals"),
    path("quotas/proposals/new/", proposals.new, name="new-proposal"),
    path("quotas/proposals/create", proposals.create, name="create-proposal"),
    path("quotas/proposals/<int:pk>/", proposals.proposal, name="proposal"),
    path("quotas/proposals/<int:pk>/do/<str:action>", proposals.decide, name="decide-proposal"),
    path("quotas/approvals/", request_pages.approvals, name="approvals"),
    path("capacity/fairness/", overview.fairness_list, name="fairness"),
    path("capacity/fairness/<str:name>/", tier.tier_fairness, name="tier-fairness"),
    path("capacity/fairness/<str:name>/what-if/", what_if.what_if_page, name="what-if"),
    path("capacity/plan/", capacity_plan.plan_list, name="plan"),
    path("capacity/plan/<str:name>/", capacity_plan.tier_plan, name="tier-plan"),
    path("costs/", cost_pages.cost_explorer, name="costs"),
    path("costs/file", cost_pages.costs_file, name="costs-file"),
    path("costs/waste/", cost_pages.waste, name="waste"),
    path("costs/waste/file", cost_pages.waste_file, name="waste-file"),
    path("costs/prices/", prices.prices, name="prices"),
    path("costs/budgets/", budget_pages.budget_list, name="budgets"),
    path("costs/exports/", exports.exports, name="exports"),
    path("costs/exports/list", exports.export_list, name="export-list"),
    path("costs/exports/create", exports.create, name="create-export"),
    path("costs/exports/file", exports.month_file, name="month-file"),
    path("costs/exports/<int:pk>/file", exports.export_file, name="export-file"),
    path("costs/exports/<str:month>/reopen", exports.reopen, name="reopen-month"),
    path("costs/bill/", bill.bill, name="bill"),
    path("costs/bill/import", bill.upload, name="import-bill"),
    path("costs/bill/mapping", bill.mapping, name="map-skus"),
    path("costs/bill/<int:pk>/delete", bill.delete, name="delete-bill"),
    path("costs/report/", report.report, name="report"),
    path("costs/report/<str:month>/", report.report, name="month-report"),
    path("costs/report/<str:month>/file", report.report_file, name="report-file"),
    path("costs/recommendations/", recommendations.recommendations, name="recommendations"),
    path(
        "costs/recommendations/<int:pk>/",
        recommendations.recommendation,
        name="recommendation",
    ),
    path(
        "costs/recommendations/<int:pk>/accept",
        recommendations.accept,
        name="accept-recommendation",
    ),
    path(
        "costs/recommendations/<int:pk>/dismiss",
        recommendations.dismiss,
        name="dismiss-recommendation",
    ),
    path(
        "costs/recommendations/<int:pk>/reopen",
        recommendations.reopen,
        name="reopen-recommendation",
    ),
    path("capacity/topology/", topology.topology, name="topology"),
    path("capacity/gpus/", devices.device_list, name="gpus"),
    path("capacity/gpus/<str:cluster>/<path:uuid>/", device.device, name="gpu"),
    path("explain/", breakdown.explain, name="explain"),
    path("explain/<str:figure>/", figure_page.explain_figure, name="explain-figure"),
    path("search/", search.search, name="search"),
    path("views/", account.views, name="views"),
    path("views/save", account.add_view, name="save-view"),
    path("views/<int:pk>/delete", account.remove_view, name="delete-view"),
    path("first-run/", readiness.first_run_page, name="first-run"),
    path("admin/data-quality/", quality_pages.data_health, name="data-quality"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-in/provider/", account.to_provider, name="sign-in-provider"),
    path("sign-in/provider/callback/", account.from_provider, name="sign-in-callback"),
    path("sign-out/", account.SignOut.as_view(), name="sign-out"),
    path("sign-out/everywhere", account.sign_out_everywhere, name="sign-out-everywhere"),
    path("password/", account.password, name="password"),
    path("password/change", account.change_password, name="change-password"),
    path("tokens/", account.tokens, name="tokens"),
    path("tokens/create", account.create_token, name="create-token"),
    path("tokens/<int:pk>/revoke", account.end_token, name="revoke-token"),
    path("alerts/", alert_list.alert_page, name="alerts"),
    path("alerts/read", alert_list.read_all, name="mark-alerts-read"),
    path("alerts/<int:pk>/", alert_list.open_alert, name="alert"),
    path("alerts/<int:pk>/answer", alert_list.answer, name="answer-alert"),
    path("alerts/channels/", channels.channels, name="channels"),
    path("alerts/channels/create", channels.make, name="create-channel"),
    path("alerts/channels/<int:pk>/", channels.channel, name="channel"),
    path("alerts/channels/<int:pk>/change", channels.change_one, name="change-channel"),
    path("alerts/channels/<int:pk>/switch", channels.switch, name="switch-channel"),
    path("alerts/channels/<int:pk>/test", channels.try_one, name="test-channel"),
    path("alerts/channels/<int:pk>/mute", channels.mute_one, name="mute-channel"),
    path("alerts/channels/<int:pk>/remove", channels.remove, name="remove-channel"),
    path("alerts/mutes/<int:pk>/end", channels.end_mute, name="end-mute"),
    path("alerts/deliveries/", alert_list.deliveries, name="deliveries"),
    path("alerts/deliveries/<int:pk>/again", alert_list.again, name="send-again"),
    path("admin/users/", users.people, name="users"),
    path("admin/users/create", users.make, name="create-user"),
    path("admin/users/<int:pk>/", users.person, name="user"),
    path("admin/users/<int:pk>/role", users.role, name="set-role"),
    path("admin/users/<int:pk>/team", users.place, name="set-team"),
    path("admin/users/<int:pk>/revoke-access", users.shut, name="revoke-access"),
    path("admin/users/<int:pk>/disable", users.disable, name="disable-user"),
    path("admin/users/<int:pk>/enable", users.enable, name="enable-user"),
    path("admin/audit/", audit.audit, name="audit"),
    path("admin/audit/file", audit.audit_file, name="audit-file"),
    re_path(navigation.MOVED, navigation.moved, name="moved"),
]
