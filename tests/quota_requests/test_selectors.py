"""What people see of requests: their own, the queue, one with everything."""

from contextlib import nullcontext

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import NotAllowed
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.permissions import actor_of, check_create
from apps.quota_requests.selectors import (
    RequestFilters,
    RequestList,
    audit_rows,
    audit_texts,
    gitops_file,
    open_request_of,
    pending_count,
    request_detail,
    request_rows,
    review_queue,
)
from apps.usage.selectors import CursorRefused
from tests.quota_requests.portal import REF, Portal, make_portal, served_portal
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db


_portal = shared(lambda: make_portal(None))
portal = copy_of("_portal")


def ids(portal: Portal, who: str, which: RequestList, **values: object) -> list[int]:
    page = request_rows(portal.actor(who), which=which, **values)  # type: ignore[arg-type]
    return [row.id for row in page.rows]


def closed(portal: Portal, count: int) -> list[int]:
    made = []
    for n in range(count):
        portal.wait(minutes=1)
        made.append(portal.draft(after=str(7 + n)))
        services.withdraw(made[-1], by=portal.actor("ada"), now=portal.now)
    return made


@pytest.mark.parametrize(
    ("who", "mine", "queue", "every"),
    [
        pytest.param("ada", True, False, True, id="author"),
        pytest.param("ben", False, False, True, id="member"),
        pytest.param("cleo", False, True, True, id="admin"),
        pytest.param("finn", False, False, True, id="finance"),
        pytest.param("dan", False, False, False, id="outsider"),
    ],
)
def test_everybody_sees_their_part_of_the_list(
    portal: Portal, who: str, mine: bool, queue: bool, every: bool
) -> None:
    pk = portal.submitted()
    shown = [ids(portal, who, which) == [pk] for which in RequestList]
    assert shown == [mine, queue, every]
    assert (request_detail(pk, portal.actor(who)) is not None) == every


def test_what_came_back_is_in_the_queue_of_its_author(portal: Portal) -> None:
    pk = portal.submitted()
    cleo = portal.actor("cleo")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    services.ask_changes(pk, "Why?", by=cleo, now=portal.now)
    assert ids(portal, "ada", RequestList.QUEUE) == [pk]
    assert ids(portal, "cleo", RequestList.QUEUE) == []


def test_an_admin_does_not_find_their_own_requests_in_the_queue(portal: Portal) -> None:
    pk = portal.draft(by="cleo")
    services.submit(pk, by=portal.actor("cleo"), version=1, now=portal.now)
    assert ids(portal, "cleo", RequestList.QUEUE) == []
    assert ids(portal, "carl", RequestList.QUEUE) == [pk]


def test_pages_show_every_request_once_the_last_changed_first(portal: Portal) -> None:
    made = closed(portal, 5)
    found: list[int] = []
    cursor = None
    for _ in range(3):
        page = request_rows(portal.actor("ada"), cursor=cursor, page_size=2)
        found += [row.id for row in page.rows]
        cursor = page.next_cursor
    assert (found, cursor) == (made[::-1], None)
    first = request_rows(portal.actor("ada"), page_size=2)
    with pytest.raises(CursorRefused):
        request_rows(portal.actor("ada"), which=RequestList.MINE, cursor=first.next_cursor)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (RequestFilters(state=("withdrawn",)), 1),
        (RequestFilters(state=("draft", "applied")), 0),
        (RequestFilters(team=("vision",), cluster=("west",)), 1),
        (RequestFilters(team=("speech",)), 0),
        (RequestFilters(namespace=("team-vision",), source=("ResourceQuota",)), 1),
    ],
    ids=str,
)
def test_a_list_is_narrowed(portal: Portal, filters: RequestFilters, count: int) -> None:
    closed(portal, 1)
    assert len(ids(portal, "ada", RequestList.ALL, filters=filters)) == count


def test_a_list_takes_a_fixed_number_of_queries(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    closed(portal, 6)
    actor = portal.actor("cleo")
    with django_assert_max_num_queries(2):
        assert len(request_rows(actor).rows) == 6


def test_one_screen_has_everything_and_says_what_may_be_done(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    pk = portal.submitted()
    services.comment(pk, "Soon?", by=portal.actor("ben"), now=portal.now)
    cleo = portal.actor("cleo")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    with django_assert_max_num_queries(7):
        detail = request_detail(pk, cleo)
    assert detail is not None
    assert detail.row.state == RequestState.IN_REVIEW
    assert [one.text for one in detail.comments] == ["Soon?"]
    assert [line.action for line in detail.history] == ["take", "comment", "submit", "create"]
    assert detail.preview is not None
    assert detail.preview.promised[0].tier == "whole"
    assert detail.ruling is not None
    assert {check.name for check in detail.ruling.checks} >= {"small", "budget"}
    assert detail.actions == ("release", "ask_changes", "approve", "reject", "comment")
    assert detail.may_comment
    assert detail.can_write
    of_ada = request_detail(pk, portal.actor("ada"))
    assert of_ada is not None
    assert of_ada.actions == ("withdraw", "comment")
    assert {line.origin for line in detail.history} == {"127.0.0.1"}
    assert {line.origin for line in of_ada.history} == {""}
    assert not any("preview" in (line.after or {}) for line in detail.history)
    of_finn = request_detail(pk, portal.actor("finn"))
    assert of_finn is not None
    assert (of_finn.actions, of_finn.may_comment) == ((), False)


def test_the_open_request_of_a_key_is_found_by_who_may_know_of_it(portal: Portal) -> None:
    pk = portal.draft()
    assert open_request_of(portal.actor("ben"), REF) is None, "a draft asks for nothing yet"
    services.submit(pk, by=portal.actor("ada"), version=1, now=portal.now)
    assert open_request_of(portal.actor("ben"), REF) == pk
    assert open_request_of(portal.actor("dan"), REF) is None
    services.withdraw(pk, by=portal.actor("ada"), now=portal.now)
    assert open_request_of(portal.actor("ben"), REF) is None


def test_the_queue_shows_all_that_is_decided_by(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    pk = portal.submitted()
    services.comment(pk, "Soon?", by=portal.actor("ben"), now=portal.now)
    cleo = portal.actor("cleo")
    with django_assert_max_num_queries(4):
        (row,) = review_queue(cleo).rows
    assert (row.row.id, row.actions, row.can_write) == (pk, ("take",), True)
    assert row.preview is not None
    assert row.preview.promised[0].tier == "whole"
    assert row.evidence is not None
    assert row.evidence.quota is not None
    assert row.evidence.quota.hard == 6.0
    assert [one.text for one in row.comments] == ["Soon?"]
    assert pending_count(cleo) == 1
    for who in ("ada", "ben", "dan", "finn"):
        assert review_queue(portal.actor(who)).rows == ()
        assert pending_count(portal.actor(who)) == 0


def test_a_counter_offer_is_shown_and_taken_in_one_step(portal: Portal) -> None:
    pk = portal.submitted()
    cleo, ada = portal.actor("cleo"), portal.actor("ada")
    with pytest.raises(services.RequestRefused, match="no open counter-offer"):
        services.accept_offer(pk, by=ada, version=portal.of(pk).version, now=portal.now)
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    services.ask_changes(pk, "7 would fit.", by=cleo, now=portal.now, offer="7")
    shown = {who: request_detail(pk, portal.actor(who)) for who in ("ada", "ben", "cleo")}
    assert {who: one and one.offer for who, one in shown.items()} == dict.fromkeys(shown, "7")
    may = {who: "accept_offer" in one.actions for who, one in shown.items() if one}
    assert may == {"ada": True, "ben": False, "cleo": False}
    with pytest.raises(services.Conflict):
        services.accept_offer(pk, by=ada, version=1, now=portal.now)
    services.accept_offer(pk, by=ada, version=portal.of(pk).version, now=portal.now)
    assert (portal.of(pk).state, portal.of(pk).after) == (RequestState.SUBMITTED, "7")


def test_what_lies_under_a_later_change_is_not_offered_to_be_taken_back() -> None:
    with served_portal() as portal:
        first = portal.applied()
        shown = request_detail(first, portal.actor("cleo"))
        assert shown is not None
        assert ("revert" in shown.actions, shown.goes_back_to) == (True, "6")
        portal.wait(hours=1)
        portal.see(8)
        portal.applied(before="8", after="9")
        shown = request_detail(first, portal.actor("cleo"))
        assert shown is not None
        assert ("revert" in shown.actions, shown.goes_back_to) == (False, None)


def test_the_file_to_commit_is_for_who_sees_the_request() -> None:
    with served_portal() as portal:
        pk = portal.approved()
        file = gitops_file(pk, portal.actor("ben"))
        assert file is not None
        assert '"requests.nvidia.com/gpu": "8"' in file.text
        assert gitops_file(pk, portal.actor("dan")) is None
        portal.start(pk, gitops=True)
        assert gitops_file(pk, portal.actor("cleo")) == file
        shown = request_detail(pk, portal.actor("cleo"))
        assert shown is not None
        assert "give_up" in shown.actions


@pytest.mark.parametrize("who", ["ada", "ben", "dan", "finn"])
def test_the_whole_audit_is_for_admins(portal: Portal, who: str) -> None:
    with pytest.raises(NotAllowed, match="for administrators"):
        audit_rows(portal.actor(who))
    with pytest.raises(NotAllowed):
        audit_texts(portal.actor(who))


@pytest.mark.parametrize(
    ("who", "may"), [("ada", True), ("ben", False), ("cleo", True), ("dan", False)]
)
def test_who_may_ask_for_a_teams_quota(portal: Portal, who: str, may: bool) -> None:
    actor = actor_of(portal.people[who], origin="127.0.0.1")
    with nullcontext() if may else pytest.raises(NotAllowed):
        check_create(actor, portal.vision.pk)
