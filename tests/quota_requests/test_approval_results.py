"""Approval by the site's rules, with the facts as the portal knows them."""

from typing import Any

import pytest
from django.test import override_settings

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    FlavorSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.quota_requests import services
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.snapshots import Evidence, FairShare
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.services.approval_policy import decide_by_policy, rules_of_site
from apps.quota_requests.services.evidence.impact import committed_gpus, impact_of
from apps.quota_requests.services.evidence.snapshot import KnownOfTeam
from apps.quotas.selectors import QuotaFilters, quota_rows
from tests.factories import make_cluster, make_team
from tests.quota_requests.portal import A100, KEY, Portal, make_portal, make_sighting, served_portal

pytestmark = pytest.mark.django_db


def test_by_default_the_site_lets_nothing_approve_itself() -> None:
    rules = rules_of_site()
    assert (rules.raises_by_rule, rules.decreases_by_rule) == (False, False)
    assert (rules.two_from_gpus, rules.two_from_cost, rules.most_gpus_by_rule) == (None, None, 2.0)
    assert rules.currency == "USD"


def kept(portal: Portal, **values: Any) -> ChangeRequest:
    return portal.of(portal.draft(**values))


def test_what_quotas_promise_a_team_is_added_up_over_its_namespaces() -> None:
    portal = make_portal(None)
    make_team("vision", "team-vision-*")
    for n in range(2):
        amounts = {KEY: 5.0}
        body = QuotaSnapshot(amounts, amounts, {KEY: 0.0})
        name = f"team-vision-{n}"
        make_sighting(portal.cluster, ObservedKind.RESOURCE_QUOTA, f"gpu-{n}", body, namespace=name)
    found = impact_of(kept(portal), now=portal.now)
    assert (found.gpus, found.entitled_after, found.shared) == (2.0, 18.0, False)


def test_what_two_clusters_promise_by_different_kinds_of_limits_is_added_up() -> None:
    portal = make_portal(None)
    east = make_cluster("east")
    gpus = {"nvidia.com/gpu": 8.0}
    node = NodeSnapshot(labels={"nvidia.com/gpu.product": A100}, allocatable=gpus, used={})
    make_sighting(east, ObservedKind.NODE, "node-2", node)
    make_sighting(east, ObservedKind.RESOURCE_FLAVOR, "a100", FlavorSnapshot())
    queue = ClusterQueueSnapshot(quotas=(FlavorQuota("a100", "nvidia.com/gpu", 5.0),))
    make_sighting(east, ObservedKind.CLUSTER_QUEUE, "vision", queue)
    local = LocalQueueSnapshot(cluster_queue="vision")
    make_sighting(east, ObservedKind.LOCAL_QUEUE, "default", local, namespace="team-vision")
    found = impact_of(kept(portal), now=portal.now)
    assert found.entitled_after == 13.0, "8 of the ResourceQuota in west, 5 of the queue in east"


def test_a_limit_that_is_not_the_teams_alone_promises_nothing_that_is_known() -> None:
    portal = make_portal(None)
    request = kept(portal)
    everything = portal.actor("cleo").visibility
    rows = quota_rows(portal.now, filters=QuotaFilters(), visibility=everything, page_size=9).rows
    (own,) = rows
    after, at, weights = quantity("8"), portal.now, {"whole": 1.0}
    assert committed_gpus(own, after, weights=weights, team=request.team.name, at=at) == 8.0
    assert committed_gpus(own, after, weights=weights, team="speech", at=at) is None
    assert committed_gpus(None, after, weights=weights, team="vision", at=at) is None


@override_settings(REQUESTS_GITOPS_ONLY=True)
def test_a_site_may_keep_the_portal_from_writing_at_all() -> None:
    with served_portal() as portal:
        pk = portal.approved()
        assert "changed by commits alone" in portal.of(pk).preview["dry_run"]
        assert portal.of(pk).preview["live"] == "6"
        with pytest.raises(TransitionDenied, match="by commits alone"):
            portal.start(pk)
        portal.start(pk, gitops=True)
        assert portal.of(pk).state == RequestState.APPLYING
        assert [one for one in portal.api.asked if one.startswith("PATCH")] == []
    assert services.verify().holds


def test_a_queue_that_several_teams_use_is_shared_and_never_changed_by_rule() -> None:
    portal = make_portal(None)
    body = VolcanoQueueSnapshot(capability={"nvidia.com/gpu": 4.0})
    make_sighting(portal.cluster, ObservedKind.VOLCANO_QUEUE, "bronze", body)
    request = kept(portal)
    request.source, request.namespace, request.name = "Queue", "", "bronze"
    request.key, request.before, request.after = "capability/nvidia.com/gpu", "4", "5"
    impact = impact_of(request, now=portal.now)
    assert (impact.shared, impact.entitled_after) == (True, None)
    with override_settings(REQUESTS_RAISES_BY_RULE=True, REQUESTS_DECREASES_BY_RULE=True):
        for after in ("5", "3"):
            request.after = after
            impact = impact_of(request, now=portal.now)
            known = KnownOfTeam(Evidence(fair_share=FairShare(100.0, ("whole",), 30)))
            found = decide_by_policy(request, impact, known, now=portal.now)
            assert not found.by_rule
            holds = {one.name: one.holds for one in found.checks}
            assert holds["own"] is False
