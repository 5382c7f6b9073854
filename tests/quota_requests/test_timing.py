"""What time, commits and other hands do: expiry, GitOps, drift."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import AuditEntry
from apps.accounts.permissions import NotAllowed
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import DriftInterval
from apps.quota_requests.selectors import drift_rows
from tests.quota_requests.portal import NOW, Portal, make_portal, served_portal

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def said(action: str) -> list[str]:
    rows = AuditEntry.objects.filter(action=action).order_by("number")
    return list(rows.values_list("note", flat=True))


def on_top(portal: Portal, before: str, after: str, **values: Any) -> int:
    """Apply another change of the key, some time later."""
    portal.wait(hours=1)
    portal.see(before)
    return portal.applied(before=before, after=after, **values)


# ---------------------------------------------------------------- what expires


def test_a_change_whose_end_has_passed_is_not_made() -> None:
    with served_portal() as portal:
        pk = portal.approved(until=NOW + DAY)
        portal.wait(days=1)
        with pytest.raises(TransitionDenied, match="end of this change has passed"):
            portal.start(pk)
        assert services.expire(now=portal.now) == 1
        assert portal.of(pk).state == RequestState.EXPIRED
        assert portal.of(pk).outcome == "Expired: its end has passed; nothing was changed."


@pytest.mark.parametrize(("days", "ended"), [(89, 0), (90, 1)])
def test_what_nobody_decides_on_expires(days: int, ended: int) -> None:
    portal = make_portal(None)
    pk = portal.submitted()
    draft_stays = services.expire(now=portal.now + timedelta(days=days))
    assert draft_stays == ended
    assert (portal.of(pk).state == RequestState.EXPIRED) == bool(ended)


@pytest.mark.parametrize(("days", "state"), [(89, RequestState.DRAFT), (90, RequestState.EXPIRED)])
def test_a_draft_that_nobody_touches_expires(days: int, state: RequestState) -> None:
    portal = make_portal(None)
    pk = portal.draft()
    services.expire(now=portal.now + days * DAY)
    assert portal.of(pk).state == state


# ---------------------------------------------------------------- GitOps


def committed(portal: Portal) -> int:
    pk = portal.approved()
    portal.start(pk, gitops=True)
    return pk


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        pytest.param(8, RequestState.APPLIED, "The cluster shows 8, by commit.", id="committed"),
        pytest.param(6, RequestState.APPLYING, "", id="not yet"),
        pytest.param(7, RequestState.IN_REVIEW, "neither 6 that was reviewed nor 8", id="another"),
        pytest.param("", RequestState.APPLYING, "", id="key removed just now"),
        pytest.param(None, RequestState.APPLYING, "", id="deleted just now"),
    ],
)
def test_the_portal_watches_until_the_cluster_shows_a_commit(
    seen: float | str | None, state: RequestState, words: str
) -> None:
    with served_portal() as portal:
        pk = committed(portal)
        portal.wait(minutes=5)
        portal.see(seen)
        services.watch_gitops(now=portal.now)
        assert portal.of(pk).state == state
        assert words in portal.of(pk).outcome
        assert portal.api.writes == 0
        assert portal.carry_out(pk) == "", "no worker writes in GitOps mode"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param("", "no longer has this limit", id="key removed"),
        pytest.param(None, "no longer has the quota", id="deleted"),
    ],
)
def test_a_limit_that_stays_away_ends_the_wait_for_its_commit(
    seen: float | str | None, words: str
) -> None:
    with served_portal() as portal:
        pk = committed(portal)
        portal.wait(minutes=5)
        portal.see(seen)
        portal.wait(minutes=9)
        portal.watched()
        assert services.watch_gitops(now=portal.now) == 0
        portal.wait(minutes=2)
        portal.watched()
        services.watch_gitops(now=portal.now)
        assert portal.of(pk).state == RequestState.FAILED
        assert words in portal.of(pk).outcome


def test_a_tool_may_delete_a_quota_and_make_it_anew() -> None:
    with served_portal() as portal:
        pk = committed(portal)
        portal.wait(minutes=5)
        portal.see(None)
        services.watch_gitops(now=portal.now)
        portal.wait(minutes=3)
        portal.see(8)
        assert services.watch_gitops(now=portal.now) == 1
        assert portal.of(pk).state == RequestState.APPLIED


def test_what_was_seen_before_the_order_decides_nothing() -> None:
    with served_portal() as portal:
        pk = committed(portal)
        portal.see(7)
        assert services.watch_gitops(now=portal.now) == 0
        assert portal.of(pk).state == RequestState.APPLYING


def test_a_commit_that_never_comes_fails_after_its_days() -> None:
    with served_portal() as portal:
        pk = committed(portal)
        portal.wait(days=14)
        services.watch_gitops(now=portal.now)
        assert portal.of(pk).state == RequestState.FAILED
        assert "did not show 8 within 14 days" in portal.of(pk).outcome


def test_an_admin_may_give_a_commit_up() -> None:
    with served_portal() as portal:
        pk = committed(portal)
        with pytest.raises(NotAllowed):
            services.give_up(pk, by=portal.actor("ada"), now=portal.now)
        services.give_up(pk, by=portal.actor("carl"), now=portal.now)
        assert portal.of(pk).state == RequestState.FAILED
        assert "carl stopped tracking the commit" in portal.of(pk).outcome
        last = AuditEntry.objects.latest("number")
        assert (last.action, last.actor, last.origin) == ("fail", "carl", "127.0.0.1")


def test_a_revert_that_an_admin_was_canceled_is_not_asked_for_again() -> None:
    with served_portal() as portal:
        pk = portal.approved(until=NOW + DAY)
        portal.start(pk, gitops=True)
        portal.wait(minutes=5)
        portal.see(8)
        services.watch_gitops(now=portal.now)
        portal.now = NOW + DAY - timedelta(hours=1)
        services.revert_due(now=portal.now)
        assert "by a commit that somebody has to make" in said("announce_revert")[-1]
        portal.now = NOW + DAY
        assert services.revert_due(now=portal.now) == 1
        services.give_up(pk, by=portal.actor("carl"), now=portal.now)
        assert (portal.of(pk).state, portal.of(pk).reverts_at) == (RequestState.APPLIED, None)
        portal.wait(days=2)
        assert services.revert_due(now=portal.now) == 0


def test_what_was_committed_is_taken_back_by_commit() -> None:
    with served_portal() as portal:
        pk = committed(portal)
        portal.wait(minutes=5)
        portal.see(8)
        services.watch_gitops(now=portal.now)
        services.revert(pk, by=portal.actor("cleo"), now=portal.now)
        text = portal.execution(pk).patch_file["text"]
        assert '"requests.nvidia.com/gpu": "6"' in text
        portal.wait(minutes=5)
        portal.see(6)
        services.watch_gitops(now=portal.now)
        assert portal.of(pk).state == RequestState.REVERTED


# ---------------------------------------------------------------- drift


@pytest.mark.parametrize(
    ("seen", "kind", "live"),
    [
        pytest.param(7, "changed", "7", id="changed"),
        pytest.param("", "key gone", "", id="key removed"),
        pytest.param(None, "object gone", "", id="deleted"),
    ],
)
def test_drift_is_found_once_shown_and_ends(seen: float | str | None, kind: str, live: str) -> None:
    with served_portal() as portal:
        pk = portal.applied()
        portal.see(8)
        portal.wait(minutes=5)
        portal.watched()
        assert services.detect_drift(now=portal.now) == 0
        portal.see(seen)
        portal.wait(minutes=5)
        portal.watched()
        for _ in range(2):
            assert services.detect_drift(now=portal.now) == 1
        row = DriftInterval.objects.get()
        assert (row.request_id, row.kind, row.approved, row.live) == (pk, kind, "8", live)
        assert [one.sentence for one in drift_rows(portal.actor("ben"))] == [row.sentence]
        assert drift_rows(portal.actor("dan")) == []
        portal.see(8)
        portal.wait(minutes=5)
        portal.watched()
        assert services.detect_drift(now=portal.now) == 0
        assert DriftInterval.objects.get().ended_at == portal.now
        assert len(said("drift")) == len(said("drift_ended")) == 1


def test_nothing_is_drift_that_was_not_seen_since_the_change() -> None:
    with served_portal() as portal:
        portal.applied()
        # Watch still shows the 6 of before.
        assert services.detect_drift(now=portal.now) == 0
        portal.wait(days=1)
        assert services.detect_drift(now=portal.now) == 0


def test_what_is_just_being_changed_is_no_drift() -> None:
    with served_portal() as portal:
        portal.applied()
        portal.see(8)
        portal.wait(minutes=5)
        portal.watched()
        portal.started(before="8", after="9")
        portal.see(9)
        portal.wait(minutes=5)
        portal.watched()
        assert services.detect_drift(now=portal.now) == 0


def test_a_drift_that_an_admin_accepts_alerts_no_more() -> None:
    with served_portal() as portal:
        pk = portal.applied()
        portal.wait(minutes=5)
        portal.see(7)
        portal.wait(minutes=5)
        portal.watched()
        assert services.detect_drift(now=portal.now) == 1
        with pytest.raises(NotAllowed):
            services.accept_drift(pk, by=portal.actor("ada"), now=portal.now)
        services.accept_drift(pk, by=portal.actor("cleo"), now=portal.now)
        assert services.detect_drift(now=portal.now) == 0
        with pytest.raises(TransitionDenied):
            services.accept_drift(pk, by=portal.actor("cleo"), now=portal.now)
        assert services.verify().holds


def test_a_drift_ends_with_the_cluster_that_it_was_in() -> None:
    with served_portal() as portal:
        portal.applied()
        portal.wait(minutes=5)
        portal.see(7)
        portal.wait(minutes=5)
        portal.watched()
        assert services.detect_drift(now=portal.now) == 1
        portal.cluster.active = False
        portal.cluster.save()
        assert services.detect_drift(now=portal.now) == 0
        assert DriftInterval.objects.get().ended_at == portal.now


def test_a_drift_that_comes_back_is_told_again() -> None:
    with served_portal() as portal:
        portal.applied()
        for shown, intervals in ((7, 1), (8, 1), (7, 2)):
            portal.wait(minutes=5)
            portal.see(shown)
            portal.wait(minutes=5)
            portal.watched()
            services.detect_drift(now=portal.now)
            assert DriftInterval.objects.count() == intervals
        assert len(said("drift")) == 2


def test_looking_for_drift_takes_as_many_queries_for_few_changes_as_for_many() -> None:
    with served_portal() as portal:
        counts = []
        for before, after in (("6", "8"), ("8", "9"), ("9", "10")):
            on_top(portal, before, after)
            portal.wait(minutes=1)
            portal.see(after)
            portal.wait(minutes=5)
            portal.watched()
            with CaptureQueriesContext(connection) as captured:
                assert services.detect_drift(now=portal.now) == 0
            counts.append(len(captured))
        assert counts == [counts[0]] * 3
