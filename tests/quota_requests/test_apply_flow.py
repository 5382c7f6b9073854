"""From a draft to the cluster and back, over HTTP."""

import pytest

from apps.accounts.models import AuditEntry
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from tests.quota_requests.portal import served_portal

pytestmark = pytest.mark.django_db


def test_a_change_is_asked_for_reviewed_applied_and_taken_back() -> None:
    with served_portal() as portal:
        pk = portal.applied()
        request = portal.of(pk)
        assert (request.state, portal.live()) == (RequestState.APPLIED, "8")
        assert request.outcome == "The cluster shows 8."
        execution = portal.execution(pk)
        assert (execution.before_raw, execution.after_raw) == ("6", "8")
        assert (execution.written, execution.drifted) == (True, False)
        services.revert(pk, by=portal.actor("cleo"), now=portal.now)
        assert portal.carry_out(pk) == "applied"
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")
        assert portal.api.writes == 2
    actions = list(AuditEntry.objects.order_by("number").values_list("action", "actor"))
    assert actions == [
        ("create", "ada"),
        ("submit", "ada"),
        ("take", "cleo"),
        ("approve", "cleo"),
        ("apply", "cleo"),
        ("confirm_applied", "portal"),
        ("revert", "cleo"),
        ("confirm_reverted", "portal"),
    ]
    assert services.verify().holds
