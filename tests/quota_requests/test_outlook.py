"""What the form shows before anything is kept: the quota, and what would come of a change."""

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import AuditEntry
from apps.accounts.permissions import NotAllowed
from apps.clusters.domain.observed.objects import ObservedKind, VolcanoQueueSnapshot
from apps.quota_requests import services
from apps.quota_requests.domain.quantities import stored
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.models import ChangeRequest
from apps.quotas.domain.keys import QuotaRef
from tests.quota_requests import recorded
from tests.quota_requests.portal import KEY, REF, Portal, make_portal, make_sighting, served_portal

pytestmark = pytest.mark.django_db


def asked(**values: Any) -> services.RequestInput:
    given: dict[str, Any] = {"ref": REF, "before": "6", "after": "8", "reason": "More."}
    return services.RequestInput(**given | values)


def test_the_form_begins_with_the_quota_as_it_is(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    portal = make_portal(None)
    ada = portal.actor("ada")
    with django_assert_max_num_queries(20):
        found = services.quota_to_ask(REF, by=ada, now=portal.now)
    assert (found.amount, found.used, found.tiers) == ("6", 6.0, ("whole",))
    assert (found.teams, found.open_request, found.can_write) == (("vision",), None, True)
    pk = portal.submitted()
    assert services.quota_to_ask(REF, by=ada, now=portal.now).open_request == pk


@pytest.mark.parametrize(
    ("who", "error"),
    [
        pytest.param("ben", NotAllowed, id="a member"),
        pytest.param("finn", NotAllowed, id="finance"),
        pytest.param("dan", TargetRefused, id="an outsider"),
    ],
)
def test_the_form_is_for_who_may_ask(who: str, error: type[Exception]) -> None:
    portal = make_portal(None)
    with pytest.raises(error):
        services.quota_to_ask(REF, by=portal.actor(who), now=portal.now)
    with pytest.raises(error):
        services.outlook(asked(), by=portal.actor(who), now=portal.now)


def test_an_outlook_is_what_would_be_frozen_and_keeps_nothing() -> None:
    with served_portal() as portal:
        found = services.outlook(asked(), by=portal.actor("ada"), now=portal.now)
        assert not ChangeRequest.objects.exists()
        assert not AuditEntry.objects.exists()
        assert (found.preview.live, found.preview.tiers) == ("6", ("whole",))
        assert found.preview.dry_run_passed is True
        pk = portal.submitted()
        assert portal.of(pk).evidence == stored(found.evidence)
        assert portal.of(pk).ruling == stored(found.ruling)


def test_an_outlook_of_a_kept_request_shows_what_moved_on() -> None:
    with served_portal() as portal:
        pk = portal.submitted()
        portal.api.live = recorded.quota("gpu") | {"spec": {"hard": {KEY: "7"}}}
        found = services.outlook_of(pk, by=portal.actor("ben"), now=portal.now)
        assert found.preview.live == "7"
        with pytest.raises(services.UnknownRequest):
            services.outlook_of(pk, by=portal.actor("dan"), now=portal.now)


def test_of_an_account_that_cannot_be_used_only_administrators_see_why() -> None:
    with served_portal() as portal:
        portal.cluster.kubernetes = {
            "api_server": portal.address(),
            "writer": {"kubeconfig": "/etc/gpuportal/not-there"},
        }
        portal.cluster.save()
        told = services.outlook(asked(), by=portal.actor("ada"), now=portal.now).preview
        assert "cannot be used: it has to be mended" in told.dry_run
        assert "not-there" not in repr(told)
        told = services.outlook(asked(), by=portal.actor("cleo"), now=portal.now).preview
        assert "/etc/gpuportal/not-there" in (told.dry_run_detail or "")


def shared_queue(portal: Portal) -> QuotaRef:
    body = VolcanoQueueSnapshot(capability={"nvidia.com/gpu": 4.0})
    make_sighting(portal.cluster, ObservedKind.VOLCANO_QUEUE, "bronze", body)
    return QuotaRef("Queue", "", "bronze", "capability/nvidia.com/gpu", "west")


def test_of_a_shared_queue_an_administrator_names_the_team() -> None:
    portal = make_portal(None)
    place = shared_queue(portal)
    found = services.quota_to_ask(place, by=portal.actor("cleo"), now=portal.now)
    assert set(found.teams) >= {"vision", "speech"}
