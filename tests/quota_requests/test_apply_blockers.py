"""What stands in the way between the approval and the write, and what of it ends an order."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.conf import LazySettings

from apps.clusters.ports import Reply
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import Execution
from apps.quota_requests.services.execution.executor import LEASE
from apps.quota_requests.services.execution.orders import NotConfirmed
from tests.quota_requests import recorded
from tests.quota_requests.portal import KEY, NOW, OWNER, Portal, clients_through, served_portal
from tests.quota_requests.test_timing import DAY

pytestmark = pytest.mark.django_db
OTHER_KEY = "requests.nvidia.com/mig-1g.10gb"


def quota_owned_by(manager: str, *, hard: str = "6", **metadata: Any) -> dict[str, Any]:
    live = recorded.quota("gpu")
    fields: dict[str, Any] = {"f:spec": {"f:hard": {f"f:{KEY}": {}}}}
    entry = {"manager": manager, "operation": "Update", "fieldsV1": fields}
    owned = {**live["metadata"], "managedFields": [entry], **metadata}
    return {**live, "metadata": owned, "spec": {"hard": {KEY: hard}}}


def at_mark(portal: Portal, mark: str) -> int:
    """Let a worker have been killed when it had come so far."""
    pk = portal.started()
    sent = {"sent": 1, "first_sent_at": portal.now} if mark == "sending" else {}
    Execution.objects.filter(request=pk).update(mark=mark, **sent)
    return pk


def retired(portal: Portal) -> None:
    portal.cluster.active = False
    portal.cluster.save()


# ---------------------------------------------------------------- other owners


@pytest.mark.parametrize("mark", ["none", "prepared", "rehearsed", "sending"])
def test_who_took_the_limit_over_meanwhile_is_asked_about_before_each_write(mark: str) -> None:
    with served_portal() as portal:
        pk = at_mark(portal, mark)
        portal.api.live = quota_owned_by("kubectl-edit")
        portal.carry_through(pk)
        assert (portal.of(pk).state, portal.api.writes) == (RequestState.IN_REVIEW, 0)
        assert "kubectl (kubectl-edit) set this limit last" in portal.of(pk).outcome


def test_who_took_the_limit_over_meanwhile_can_be_agreed_to_and_applied_again() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.live = quota_owned_by("kubectl-edit")
        portal.carry_through(pk)
        request, cleo = portal.of(pk), portal.actor("cleo")
        assert [one["manager"] for one in request.preview["owners"]] == ["kubectl-edit"]
        assert "Approve it again and confirm" in request.outcome
        services.approve(pk, by=cleo, version=request.version, now=portal.now)
        with pytest.raises(NotConfirmed, match="kubectl-edit"):
            portal.start(pk, confirmed=[])
        portal.start(pk, confirmed=["kubectl-edit"])
        assert portal.carry_through(pk) == "applied"
        assert portal.live() == "8"
    assert services.verify().holds


@pytest.mark.parametrize("mark", ["none", "prepared", "rehearsed", "sending"])
def test_another_amount_goes_back_to_review_wherever_a_worker_was_killed(mark: str) -> None:
    with served_portal() as portal:
        pk = at_mark(portal, mark)
        portal.api.live = quota_owned_by(OWNER, hard="7")
        portal.carry_through(pk)
        assert (portal.of(pk).state, portal.api.writes) == (RequestState.IN_REVIEW, 0)
        assert "the cluster shows 7" in portal.of(pk).outcome


def test_a_write_that_somebody_took_back_before_the_portal_looked_is_not_made_again() -> None:
    with served_portal() as portal:
        pk = portal.started()

        def lost(send: Callable[..., Reply], method: str, *args: Any, **kwargs: Any) -> Reply:
            """Carry a patch to the server, and lose its answer; somebody sets the limit back."""
            reply = send(method, *args, **kwargs)
            if method == "PATCH" and "dryRun" not in kwargs["query"]:
                portal.api.live = quota_owned_by("kubectl-edit")
                return Reply(502, None)
            return reply

        services.carry_out(
            portal.execution(pk).pk, clock=portal.clock, clients=clients_through(lost)
        )
        portal.wait(minutes=1)
        portal.carry_through(pk)
        assert (portal.of(pk).state, portal.live()) == (RequestState.IN_REVIEW, "6")
        assert portal.api.writes == 1


# ---------------------------------------------------------------- made anew


def test_a_quota_that_was_deleted_and_made_anew_goes_back_to_review() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.live = quota_owned_by(OWNER, uid="made-anew")
        assert portal.carry_out(pk) == "back to review"
        assert (portal.of(pk).state, portal.api.writes) == (RequestState.IN_REVIEW, 0)
        assert "deleted and made anew" in portal.of(pk).outcome


def test_a_raise_in_a_quota_that_was_made_anew_still_ends_on_its_date() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.api.live = quota_owned_by(OWNER, hard="8", uid="made-anew")
        portal.wait(days=1)
        services.revert_due(now=portal.now)
        assert portal.carry_out(pk) == "applied"
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")


# ---------------------------------------------------------------- retired clusters


def test_nothing_is_begun_in_a_cluster_that_was_retired() -> None:
    with served_portal() as portal:
        pk = portal.approved()
        retired(portal)
        for gitops in (False, True):
            with pytest.raises(TransitionDenied, match="west is no longer in the catalog"):
                portal.start(pk, gitops=gitops)
        assert portal.of(pk).state == RequestState.APPROVED


def test_nothing_is_taken_back_in_a_cluster_that_was_retired() -> None:
    with served_portal() as portal:
        pk = portal.applied()
        retired(portal)
        with pytest.raises(TransitionDenied, match="west is no longer in the catalog"):
            services.revert(pk, by=portal.actor("cleo"), now=portal.now)


@pytest.mark.parametrize("mark", ["none", "rehearsed", "sending"])
def test_a_cluster_that_is_retired_before_the_write_is_not_written_to(mark: str) -> None:
    with served_portal() as portal:
        pk = at_mark(portal, mark)
        retired(portal)
        portal.carry_through(pk)
        assert (portal.of(pk).state, portal.api.writes) == (RequestState.FAILED, 0)
        assert "west is no longer in the catalog" in portal.of(pk).outcome


def test_what_arrived_in_a_cluster_that_is_retired_since_counts_as_applied() -> None:
    with served_portal() as portal:
        pk = at_mark(portal, "sending")
        portal.api.live = quota_owned_by("gpuportal", hard="8")
        retired(portal)
        assert portal.carry_out(pk) == "applied"


# ---------------------------------------------------------------- ends that have passed


@pytest.mark.parametrize("mark", ["none", "prepared", "rehearsed"])
def test_a_raise_whose_end_passed_while_nobody_worked_is_not_made(mark: str) -> None:
    with served_portal() as portal:
        pk = portal.started(until=NOW + DAY)
        Execution.objects.filter(request=pk).update(mark=mark)
        portal.wait(days=2)
        assert portal.carry_out(pk) == "failed"
        assert (portal.live(), portal.api.writes) == ("6", 0)
        assert "Nothing was written. Its end has passed" in portal.of(pk).outcome
        services.expire(now=portal.now)
        assert portal.of(pk).state == RequestState.EXPIRED


def test_an_approval_that_is_too_old_is_not_carried_out(settings: LazySettings) -> None:
    with served_portal() as portal:
        pk = portal.approved()
        portal.wait(days=settings.REQUESTS_DAYS_APPROVED)
        with pytest.raises(TransitionDenied, match="for 30 days"):
            portal.start(pk)
        services.expire(now=portal.now)
        assert portal.of(pk).state == RequestState.EXPIRED


# ---------------------------------------------------------------- two at once


def test_neighbouring_keys_of_one_quota_are_changed_at_once_without_harm() -> None:
    live = recorded.quota("gpu")
    hard = {KEY: "6", OTHER_KEY: "4", "pods": "30"}
    with served_portal(live={**live, "spec": {"hard": hard}}) as portal:
        one = portal.started()

        def meanwhile() -> None:
            assert portal.api.live is not None
            amounts = {**portal.api.live["spec"]["hard"], OTHER_KEY: "5"}
            portal.api.live = {**portal.api.live, "spec": {"hard": amounts}}

        carry_with(portal, one, before_the_write=meanwhile)
        assert portal.api.live is not None
        assert portal.api.live["spec"]["hard"] == {KEY: "8", OTHER_KEY: "5", "pods": "30"}


def carry_with(portal: Portal, pk: int, *, before_the_write: Callable[[], None]) -> str:
    """Carry out, and let something happen after everything was looked at, before the write."""

    def slow(send: Callable[..., Reply], method: str, *args: Any, **kwargs: Any) -> Reply:
        if method == "PATCH" and "dryRun" not in kwargs["query"]:
            before_the_write()
        return send(method, *args, **kwargs)

    return services.carry_out(
        portal.execution(pk).pk, clock=portal.clock, clients=clients_through(slow)
    )


def test_a_worker_whose_lease_ran_out_in_the_write_changes_nothing_any_more() -> None:
    with served_portal() as portal:
        pk = portal.started()

        def another_takes_over() -> None:
            portal.wait(seconds=LEASE.total_seconds() + 1)
            assert portal.carry_out(pk) == "applied"

        assert carry_with(portal, pk, before_the_write=another_takes_over) == ""
        assert (portal.of(pk).state, portal.live(), portal.api.writes) == (
            RequestState.APPLIED,
            "8",
            1,
        )
        assert portal.execution(pk).end == "applied"
        assert services.verify().holds


def test_a_worker_that_stood_still_before_it_sent_sends_nothing() -> None:
    with served_portal() as portal:
        pk = portal.started()

        def clock() -> datetime:
            if portal.execution(pk).mark == "sending":
                # Stopped after its last mark, say with the machine that it runs on.
                portal.wait(seconds=LEASE.total_seconds() + 1)
            return portal.now

        assert services.carry_out(portal.execution(pk).pk, clock=clock) == ""
        assert portal.api.writes == 0
        portal.wait(seconds=LEASE.total_seconds() + 1)
        assert portal.carry_through(pk) == "applied"
        assert portal.api.writes == 1


def test_a_dry_run_of_before_an_outage_is_made_again() -> None:
    with served_portal() as portal:
        pk = at_mark(portal, "rehearsed")
        portal.wait(hours=5)
        portal.api.asked.clear()
        assert portal.carry_out(pk) == "applied"
        assert [one for one in portal.api.asked if one != "GET"] == ["PATCH dry", "PATCH"]


def test_a_worker_that_is_overtaken_does_not_undo_what_was_taken_back() -> None:
    with served_portal() as portal:
        pk = portal.started()

        def applied_and_changed() -> None:
            portal.wait(seconds=LEASE.total_seconds() + 1)
            portal.carry_out(pk)
            portal.api.live = quota_owned_by("kubectl-edit", hard="5")

        assert carry_with(portal, pk, before_the_write=applied_and_changed) == ""
        assert portal.live() == "5"


# ---------------------------------------------------------------- without the account


@pytest.mark.parametrize(
    ("hard", "state", "words"),
    [
        pytest.param("8", RequestState.APPLIED, "the write arrived", id="arrived"),
        pytest.param("6", RequestState.FAILED,
        "The cluster still shows 6. The portal has no account",
                     id="did not"),
        pytest.param("7", RequestState.IN_REVIEW, "the cluster shows 7", id="another"),
    ],
)  # fmt: skip
def test_without_its_account_the_reader_finds_out_what_became_of_a_patch(
    hard: str, state: RequestState, words: str
) -> None:
    with served_portal() as portal:
        pk = at_mark(portal, "sending")
        portal.api.live = quota_owned_by(OWNER, hard=hard)
        portal.write_to(None)
        portal.carry_through(pk)
        assert portal.of(pk).state == state
        assert words in portal.of(pk).outcome
        assert portal.api.writes == 0


def test_what_was_accepted_is_applied_even_where_nobody_can_look_any_more() -> None:
    with served_portal() as portal:
        pk = at_mark(portal, "patched")
        portal.write_to(None)
        portal.cluster.kubernetes = {}
        portal.cluster.save()
        assert portal.carry_through(pk) == "applied"
        assert "accepted but could not be read back" in portal.of(pk).outcome
