"""What API servers answer, through the whole portal: a right state and a clear sentence each."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.accounts.models import AuditEntry
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import Execution
from apps.quota_requests.selectors import request_detail
from tests.quota_requests import recorded
from tests.quota_requests.portal import KEY, OWNER, Portal, make_portal, served_portal
from tests.quota_requests.quota_api import Trouble

pytestmark = pytest.mark.django_db
TOO_LONG = {"kind": "Status", "message": "etcdserver: request timed out", "code": 500}


def recorded_error(name: str) -> Trouble:
    return Trouble(int(name[:3]), recorded.body(recorded.KUBE, f"errors/{name}.json"))


@pytest.mark.parametrize(
    ("troubles", "state", "shown", "words"),
    [
        pytest.param(
            [recorded_error("409-conflict-stale-resourceversion")],
            *(RequestState.APPLIED, "8", "The cluster shows 8."),
            id="409, tried again",
        ),
        pytest.param(
            [recorded_error("403-sa-quotas")],
            *(RequestState.FAILED, "6", "lacks the right to patch."),
            id="403",
        ),
        pytest.param(
            [recorded_error("422-quota-negative")],
            *(RequestState.FAILED, "6", "holds the new value for invalid."),
            id="422",
        ),
        pytest.param(
            [Trouble(writes=True)],
            *(RequestState.APPLIED, "8", "The cluster shows 8: the write arrived."),
            id="time-out after the write",
        ),
        pytest.param(
            [Trouble()],
            *(RequestState.APPLIED, "8", "The cluster shows 8."),
            id="lost before the write",
        ),
        pytest.param(
            [Trouble(500, TOO_LONG, writes=True)],
            *(RequestState.APPLIED, "8", "the write arrived"),
            id="500 after the write",
        ),
        pytest.param(
            [Trouble(429, {}), Trouble(500, TOO_LONG)],
            *(RequestState.APPLIED, "8", "The cluster shows 8."),
            id="429, then 500",
        ),
        pytest.param(
            [Trouble()] * 5,
            *(RequestState.FAILED, "6", "The cluster still shows 6."),
            id="lost again and again",
        ),
        pytest.param(
            [Trouble(writes=True), recorded_error("403-sa-quotas")],
            *(RequestState.APPLIED, "8", "the write arrived"),
            id="lost after the write, then no right any more",
        ),
    ],
)
def test_every_answer_ends_in_a_right_state_and_a_clear_sentence(
    troubles: list[Trouble], state: RequestState, shown: str, words: str
) -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = list(troubles)
        portal.carry_through(pk)
        assert (portal.of(pk).state, portal.live()) == (state, shown)
        assert words in portal.of(pk).outcome
        assert portal.api.writes <= 1
        last = AuditEntry.objects.latest("number")
        assert last.note == portal.of(pk).outcome
    assert services.verify().holds


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        pytest.param(
            {KEY: "7"}, RequestState.IN_REVIEW, "shows 7 where 6 was reviewed", id="changed"
        ),
        pytest.param({KEY: "8"}, RequestState.APPLIED, "nothing was written", id="made by another"),
        pytest.param({"pods": "7"}, RequestState.FAILED, "the limit is gone", id="key removed"),
        pytest.param(None, RequestState.FAILED, "no longer in the cluster", id="quota deleted"),
    ],
)
def test_what_changed_since_the_review_is_left_as_it_is(
    change: dict[str, str] | None, state: RequestState, words: str
) -> None:
    with served_portal() as portal:
        pk = portal.started()
        live = None if change is None else recorded.quota("gpu") | {"spec": {"hard": change}}
        portal.api.live = live
        portal.carry_through(pk)
        assert (portal.of(pk).state, portal.api.live, portal.api.writes) == (state, live, 0)
        assert words in portal.of(pk).outcome


def test_what_somebody_changed_after_a_lost_answer_is_told_apart_by_what_watch_saw() -> None:
    with served_portal() as portal:
        pk = portal.started()
        # As a worker leaves it that was killed before it saw an answer.
        Execution.objects.filter(request=pk).update(
            mark="sending", sent=1, first_sent_at=portal.now
        )
        portal.wait(seconds=5)
        portal.see(8)
        portal.wait(seconds=5)
        portal.see(7)
        portal.api.live = recorded.quota("gpu") | {"spec": {"hard": {KEY: "7"}}}
        portal.carry_through(pk)
        request, ended = portal.of(pk), portal.execution(pk)
        assert (request.state, ended.written, ended.drifted) == (RequestState.APPLIED, True, True)
        assert request.outcome == (
            "8 was written; somebody has changed it since: the cluster shows 7."
        )


def test_a_patch_that_was_lost_is_sent_again_later_and_later() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [Trouble()] * 4
        pauses = []
        while portal.carry_out(pk) == "wait":
            pauses.append((portal.execution(pk).next_at - portal.now).total_seconds())
            portal.now = portal.execution(pk).next_at
        assert pauses == [5.0, 10.0, 20.0, 40.0]
        assert (portal.of(pk).state, portal.live()) == (RequestState.APPLIED, "8")


def test_a_patch_that_arrives_after_all_copies_were_lost_is_noticed() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [Trouble()] * 5
        for _ in range(5):
            portal.now = portal.execution(pk).next_at
            assert portal.carry_out(pk) == "wait"
        assert "may still arrive" in portal.execution(pk).sentence
        assert portal.execution(pk).next_at - portal.now == timedelta(seconds=15)
        portal.api.live = recorded.quota("gpu") | {"spec": {"hard": {KEY: "8"}}}
        portal.wait(seconds=15)
        assert portal.carry_out(pk) == "applied"
        assert portal.of(pk).outcome == "The cluster shows 8: the write arrived."


@pytest.mark.parametrize(
    ("trouble", "state", "shown", "words"),
    [
        pytest.param(
            Trouble(200, "<html>Sign in</html>"), RequestState.APPLIED, "8", "8", id="proxy"
        ),
        pytest.param(
            Trouble(200, "<html>Sign in</html>", writes=True),
            *(RequestState.APPLIED, "8", "the write arrived"),
            id="proxy, after the write",
        ),
        pytest.param(
            Trouble(200, {"kind": "Status", "status": "Success"}),
            *(RequestState.APPLIED, "8", "The cluster shows 8."),
            id="a yes without the object",
        ),
        pytest.param(
            Trouble(200, recorded.quota("gpu")),
            RequestState.APPLIED,
            "8",
            "8",
            id="the object unchanged",
        ),
    ],
)
def test_a_yes_counts_when_it_shows_the_change(
    trouble: Trouble, state: RequestState, shown: str, words: str
) -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [trouble]
        if not trouble.writes:
            assert portal.carry_out(pk) == "wait"
            portal.wait(minutes=1)
        assert portal.carry_out(pk) == "applied"
        assert (portal.of(pk).state, portal.live()) == (state, shown)
        assert words in portal.of(pk).outcome
        assert portal.api.writes == 1


def test_a_yes_that_never_shows_the_change_is_no_success() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [Trouble(200, recorded.quota("gpu"))] * 5
        assert portal.carry_through(pk) == "failed"
        assert (portal.of(pk).state, portal.live()) == (RequestState.FAILED, "6")
        assert portal.of(pk).applied_at is None


def test_a_page_of_a_proxy_in_place_of_the_quota_does_not_mean_that_it_is_gone() -> None:
    with served_portal() as portal:
        pk = portal.started()
        with served_pages() as address:
            portal.write_to(address)
            assert portal.carry_out(pk) == "wait"
        assert "does not show the quota" in portal.execution(pk).sentence
        portal.write_to(portal.address())
        portal.wait(minutes=11)
        assert portal.carry_out(pk) == "applied"


def test_the_servers_own_words_are_for_administrators() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [recorded_error("403-sa-quotas")]
        portal.carry_through(pk)
        for who, is_told in (("cleo", True), ("ada", False)):
            shown = request_detail(pk, portal.actor(who))
            assert shown is not None
            assert ("resourcequotas is forbidden" in repr(shown)) is is_told
        assert "right to patch" in portal.of(pk).outcome


def test_a_plain_no_to_the_only_patch_ends_at_once() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [recorded_error("403-sa-quotas")]
        assert portal.carry_out(pk) == "failed"


def test_a_server_that_is_not_there_fails_after_its_tries_and_writes_nothing() -> None:
    portal = make_portal(None)
    pk = portal.approved()
    portal.start(pk, confirmed=[])
    portal.carry_through(pk)
    assert portal.of(pk).state == RequestState.FAILED
    assert "Nothing was written, given up. The API server could not be reached" in (
        portal.of(pk).outcome
    )
    assert portal.execution(pk).sent == 0


def test_an_outage_between_the_write_and_the_look_is_waited_for_however_long() -> None:
    with served_portal() as portal:
        pk = portal.started()
        Execution.objects.filter(request=pk).update(
            mark="sending", sent=1, first_sent_at=portal.now
        )
        portal.write_to("http://127.0.0.1:9")
        for _ in range(30):
            assert portal.carry_out(pk) == "wait"
            portal.wait(minutes=11)
        assert portal.of(pk).state == RequestState.APPLYING
        portal.write_to(portal.address())
        assert portal.carry_out(pk) == "applied"
        assert portal.live() == "8"


def owned(manager: str, operation: str = "Update") -> dict[str, Any]:
    live = recorded.quota("gpu")
    fields: dict[str, Any] = {"f:spec": {"f:hard": {f"f:{KEY}": {}}}}
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields}
    return {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}


def test_a_limit_that_another_tool_owns_needs_a_confirmation() -> None:
    with served_portal(live=owned("argocd-controller", "Apply")) as portal:
        pk = portal.approved()
        assert portal.of(pk).preview["owners"][0]["reverts"] is True
        with pytest.raises(services.NotConfirmed, match=r"Argo CD .* Choose GitOps mode"):
            portal.start(pk, confirmed=[])
        assert portal.of(pk).state == RequestState.APPROVED
        portal.start(pk, confirmed=["argocd-controller"])
        assert portal.carry_out(pk) == "applied"


def test_an_owner_that_came_after_the_review_sends_it_back() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.live = owned("kustomize-controller", "Apply")
        portal.carry_out(pk)
        assert portal.of(pk).state == RequestState.IN_REVIEW
        assert "Flux (kustomize-controller) owns this limit" in portal.of(pk).outcome
        assert portal.api.writes == 0


def test_an_object_that_is_being_deleted_is_not_written_to() -> None:
    with served_portal() as portal:
        pk = portal.started()
        assert portal.api.live is not None
        meta = {**portal.api.live["metadata"], "deletionTimestamp": "2026-11-16T12:00:00Z"}
        portal.api.live = {**portal.api.live, "metadata": meta}
        portal.carry_out(pk)
        assert portal.of(pk).state == RequestState.FAILED
        assert "is being deleted" in portal.of(pk).outcome


def test_without_an_account_that_may_write_only_gitops_is_left() -> None:
    with served_portal(writer=False) as portal:
        pk = portal.approved()
        assert "kubernetes.writer" in portal.of(pk).preview["dry_run"]
        with pytest.raises(TransitionDenied, match="use GitOps mode"):
            portal.start(pk)
        portal.start(pk, gitops=True)
        assert portal.of(pk).state == RequestState.APPLYING
        assert '"requests.nvidia.com/gpu": "8"' in portal.execution(pk).patch_file["text"]


def test_an_account_that_is_taken_away_fails_what_was_not_begun() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.write_to(None)
        assert portal.carry_out(pk) == "failed"
        assert "Nothing was written. The portal has no account" in portal.of(pk).outcome


def test_a_failed_change_can_be_applied_again_or_decided_anew() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [recorded_error("403-sa-quotas")]
        portal.carry_through(pk)
        assert portal.of(pk).state == RequestState.FAILED
        portal.start(pk)
        assert portal.carry_out(pk) == "applied"
        assert Execution.objects.filter(request=pk).count() == 2


def again(portal: Portal, pk: int) -> str:
    return services.carry_out(portal.execution(pk).pk, clock=portal.clock)


def test_a_message_that_comes_twice_does_nothing_twice() -> None:
    with served_portal() as portal:
        pk = portal.applied()
        assert again(portal, pk) == ""
        assert portal.api.writes == 1


def test_the_confirmed_owner_is_named_in_the_audit() -> None:
    with served_portal() as portal:
        portal.started()
        assert f'"confirmed":["{OWNER}"]' in AuditEntry.objects.latest("number").after


def sent(portal: Portal) -> int:
    """Let a worker have been killed after its patch left and before the answer."""
    pk = portal.started()
    Execution.objects.filter(request=pk).update(mark="sending", sent=1, first_sent_at=portal.now)
    return pk


def test_without_its_account_a_sent_patch_has_no_end_until_somebody_can_look() -> None:
    with served_portal() as portal:
        pk = sent(portal)
        # The account that reads cannot look either; where it can, see test_in_the_way.
        portal.cluster.kubernetes = {"api_server": "http://127.0.0.1:9"}
        portal.cluster.save()
        assert portal.carry_out(pk) == "wait"
        assert "kubernetes.writer" in portal.execution(pk).sentence
        portal.write_to(portal.address())
        portal.wait(minutes=11)
        assert portal.carry_out(pk) == "applied"


def test_a_look_that_is_refused_is_no_refusal_of_the_patch() -> None:
    with served_portal() as portal:
        pk = sent(portal)
        with served_refusals() as address:
            portal.write_to(address)
            assert portal.carry_out(pk) == "wait"
        assert portal.execution(pk).refusal == ""
        portal.write_to(portal.address())
        portal.wait(minutes=11)
        assert portal.carry_out(pk) == "applied"


def test_an_object_that_is_being_deleted_after_a_patch_was_lost_ends_as_not_written() -> None:
    with served_portal() as portal:
        pk = sent(portal)
        assert portal.api.live is not None
        meta = {**portal.api.live["metadata"], "deletionTimestamp": "2026-11-16T12:00:00Z"}
        portal.api.live = {**portal.api.live, "metadata": meta}
        assert portal.carry_through(pk) == "failed"
        assert "The cluster still shows 6." in portal.of(pk).outcome


def served_pages() -> AbstractContextManager[str]:
    """Serve what answers every question with a page and a yes, as the sign-in of a proxy does."""
    return served_answer(200, b"<html>Sign in</html>")


def served_refusals() -> AbstractContextManager[str]:
    """Serve what answers every question with 401, as a server does to a token that it withdrew."""
    return served_answer(401, b"")


@contextmanager
def served_answer(status: int, content: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_refused_change_is_decided_anew() -> None:
    with served_portal() as portal:
        pk = portal.started()
        portal.api.troubles = [recorded_error("403-sa-quotas")]
        portal.carry_through(pk)
        services.reopen(pk, by=portal.actor("carl"), now=portal.now)
        request = portal.of(pk)
        assert (request.state, request.approvals, request.reviewer) == (
            RequestState.IN_REVIEW,
            [],
            "carl",
        )
