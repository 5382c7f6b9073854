"""What people see of requests: their own, the queue, one with everything."""

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import NotAllowed
from apps.changes import services
from apps.changes.domain.states import State
from apps.changes.permissions import actor_of, can_create
from apps.changes.selectors import (
    RequestFilters,
    Which,
    audit_lines,
    audit_rows,
    open_request_of,
    request_detail,
    request_rows,
)
from apps.usage.selectors import CursorRefused
from tests.changes.portal import KEY, Portal, make_portal

pytestmark = pytest.mark.django_db


@pytest.fixture
def portal(db: None) -> Portal:
    return make_portal(None)


def ids(portal: Portal, who: str, which: Which, **values: object) -> list[int]:
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
    shown = [ids(portal, who, which) == [pk] for which in Which]
    assert shown == [mine, queue, every]
    assert (request_detail(pk, portal.actor(who)) is not None) == every


def test_what_came_back_is_in_the_queue_of_its_author(portal: Portal) -> None:
    pk = portal.submitted()
    cleo = portal.actor("cleo")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    services.ask_changes(pk, "Why?", by=cleo, now=portal.now)
    assert ids(portal, "ada", Which.QUEUE) == [pk]
    assert ids(portal, "cleo", Which.QUEUE) == []


def test_an_admin_does_not_find_their_own_requests_in_the_queue(portal: Portal) -> None:
    pk = portal.draft(by="cleo")
    services.submit(pk, by=portal.actor("cleo"), version=1, now=portal.now)
    assert ids(portal, "cleo", Which.QUEUE) == []
    assert ids(portal, "carl", Which.QUEUE) == [pk]


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
        request_rows(portal.actor("ada"), which=Which.MINE, cursor=first.next_cursor)


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
    assert len(ids(portal, "ada", Which.ALL, filters=filters)) == count


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
    with django_assert_max_num_queries(8):
        detail = request_detail(pk, cleo)
    assert detail is not None
    assert detail.row.state == State.IN_REVIEW
    assert [one.text for one in detail.comments] == ["Soon?"]
    assert [line.action for line in detail.history] == ["take", "comment", "submit", "create"]
    assert detail.preview["promised"][0]["tier"] == "whole"
    assert {check["name"] for check in detail.ruling["checks"]} >= {"small", "budget"}
    assert detail.actions == ("release", "ask_changes", "approve", "reject")
    assert detail.may_comment
    assert detail.can_write
    of_ada = request_detail(pk, portal.actor("ada"))
    assert of_ada is not None
    assert of_ada.actions == ("withdraw",)
    assert {line.origin for line in detail.history} == {"127.0.0.1"}
    assert {line.origin for line in of_ada.history} == {""}
    assert not any("preview" in (line.after or {}) for line in detail.history)
    of_finn = request_detail(pk, portal.actor("finn"))
    assert of_finn is not None
    assert (of_finn.actions, of_finn.may_comment) == ((), False)


def test_the_open_request_of_a_key_is_found_by_who_may_know_of_it(portal: Portal) -> None:
    pk = portal.draft()
    asked = {
        "cluster": "west",
        "source": "ResourceQuota",
        "namespace": "team-vision",
        "name": "gpu",
        "key": KEY,
    }
    assert open_request_of(portal.actor("ben"), **asked) == pk
    assert open_request_of(portal.actor("dan"), **asked) is None
    services.withdraw(pk, by=portal.actor("ada"), now=portal.now)
    assert open_request_of(portal.actor("ben"), **asked) is None


@pytest.mark.parametrize("who", ["ada", "ben", "dan", "finn"])
def test_the_whole_audit_is_for_admins(portal: Portal, who: str) -> None:
    with pytest.raises(NotAllowed, match="for administrators"):
        audit_rows(portal.actor(who))
    with pytest.raises(NotAllowed):
        audit_lines(portal.actor(who))


@pytest.mark.parametrize(
    ("who", "may"), [("ada", True), ("ben", False), ("cleo", True), ("dan", False)]
)
def test_who_may_ask_for_a_teams_quota(portal: Portal, who: str, may: bool) -> None:
    actor = actor_of(portal.people[who], origin="127.0.0.1")
    assert can_create(actor, portal.vision.pk) is may
