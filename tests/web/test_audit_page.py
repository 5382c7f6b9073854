"""The page of the audit: what it shows, how it is searched, and the file for auditors."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import AuditEntry, User
from apps.accounts.services import audit_head, read_head
from apps.accounts.services.audit import record
from apps.quota_requests import services
from apps.quota_requests.permissions import portal as the_portal
from apps.quota_requests.services import verify
from apps.web.components.page_query import FEW_ROWS
from tests.factories import Portal
from tests.web.pages import file_of

SignIn = Callable[[User], Client]
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)


def write(count: int = 1, action: str = "edit", **values: object) -> None:
    for n in range(count):
        with transaction.atomic():
            given = {"at": NOON + timedelta(days=n), "after": {"to": "8"}, **values}
            record(the_portal("beat"), action, f"quota-request/{n}", **given)  # type: ignore[arg-type]


def numbers(page: str) -> list[int]:
    return [int(n) for n in re.findall(r'<td role="cell" class="num">(\d+)</td>', page)]


def test_what_is_done_on_pages_is_there_with_who_and_from_where(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    ada = signed_in(portal.ada)
    key = ada.post("/tokens/create", {"name": "export", "days": "30"}, REMOTE_ADDR="192.0.2.7")
    admin.post(f"/admin/users/{portal.ben.pk}/disable", REMOTE_ADDR="2001:db8::7")
    page = admin.get("/admin/audit/").content.decode()
    for shown in ("make token", "192.0.2.7", "account/ben", "disable account", "2001:db8::7"):
        assert shown in page
    assert "active: yes → no" in page
    made = re.search(r"gpuportal_[\w-]+", key.content.decode())
    assert made is not None
    assert made.group() not in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param({}, [5, 4, 3, 2, 1], id="all"),
        pytest.param({"who": "PORT"}, [5, 4, 3, 2, 1], id="a part of who"),
        pytest.param({"who": "ada"}, [], id="somebody else"),
        pytest.param({"what": "request/3"}, [4], id="a part of the subject"),
        pytest.param({"what": "accept dr"}, [5], id="words of an action"),
        pytest.param({"what": "accept_drift"}, [5], id="the action as it is"),
        pytest.param({"what": "_"}, [5], id="a stroke is a stroke"),
        pytest.param({"since": "2026-10-03"}, [4, 3], id="from a day on"),
        pytest.param({"until": "2026-10-02"}, [5, 2, 1], id="to a day, included"),
        pytest.param({"since": "2026-10-02", "until": "2026-10-02"}, [2], id="one day"),
        pytest.param({"since": "2026-10-03", "until": "2026-10-02"}, [], id="the wrong way round"),
        pytest.param({"since": "soon"}, [5, 4, 3, 2, 1], id="no day"),
        pytest.param({"who": "a\0b"}, [], id="what no database holds"),
    ],
)
def test_lines_are_found_by_who_what_and_when(
    query: dict[str, str], found: list[int], portal: Portal, admin: Client
) -> None:
    write(4)
    write(1, "accept_drift")
    page = admin.get("/admin/audit/", query).content.decode()
    assert numbers(page) == found
    assert ("no day" in page) == ("soon" in query.values())


def test_pages_go_back_to_the_first_line_and_need_no_more_queries(
    portal: Portal, admin: Client
) -> None:
    write(1)
    with CaptureQueriesContext(connection) as one:
        admin.get("/admin/audit/")
    write(2 * FEW_ROWS)
    address, seen = "/admin/audit/?what=edit", list[int]()
    while address:
        with CaptureQueriesContext(connection) as many:
            page = admin.get(address).content.decode()
        assert len(many) == len(one)
        seen += numbers(page)
        older = re.search(r'href="(/admin/audit/\?[^"]*cursor[^"]*)" rel="next"', page)
        address = older.group(1).replace("&amp;", "&") if older else ""
    assert seen == list(range(2 * FEW_ROWS + 1, 0, -1))


def test_a_place_in_a_list_that_is_not_there_is_said_so(portal: Portal, admin: Client) -> None:
    page = admin.get("/admin/audit/", {"cursor": "x"}).content.decode()
    assert "no longer there" in page


def test_auditors_get_lines_that_can_be_worked_out_again_and_the_head(
    portal: Portal, admin: Client
) -> None:
    write(4)
    response = admin.get("/admin/audit/file", {"since": "2026-10-02", "until": "2026-10-03"})
    assert response["Content-Type"] == "application/x-ndjson"
    assert "gpuportal_audit_2026-10-02_2026-10-03.jsonl" in response["Content-Disposition"]
    *lines, head = (json.loads(line) for line in file_of(response).splitlines())
    assert [line["number"] for line in lines] == [2, 3]
    assert lines[0]["after"] == {"to": "8"}
    kept = audit_head()
    assert kept is not None
    assert head == {"head": {"number": kept.number, "digest": kept.digest}}
    refused = admin.get("/admin/audit/file", {"since": "soon"})
    assert refused.status_code == 400


def test_the_page_names_the_head_to_keep_elsewhere(portal: Portal, admin: Client) -> None:
    write(2)
    page = admin.get("/admin/audit/").content.decode()
    shown = re.search(r'class="audit-head">([^<]+)<', page)
    assert shown is not None
    assert verify(read_head(shown.group(1))).holds


def test_hostile_texts_are_shown_as_texts(portal: Portal, admin: Client) -> None:
    write(1, after={"<b>x": {"deep": "<script>y"}}, note="<script>alert(1)")
    page = admin.get("/admin/audit/", {"what": '"><script>'}).content.decode()
    page += admin.get("/admin/audit/").content.decode()
    assert "<script>alert" not in page
    assert "<script>y" not in page
    assert '"><script>' not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_menu_leads_administrators_to_the_audit(portal: Portal, signed_in: SignIn) -> None:
    for person, there in ((portal.cleo, True), (portal.ada, False), (portal.finn, False)):
        assert ('href="/admin/audit/' in signed_in(person).get("/views/").content.decode()) == there


# ---------------------------------------------------------------- verified by itself


def test_the_page_says_up_to_where_and_when_the_audit_was_verified(admin: Client) -> None:
    write(3)
    assert "Not verified yet" in admin.get("/admin/audit/").content.decode()
    now = timezone.now()
    services.check_audit(now=now)
    page = admin.get("/admin/audit/").content.decode()
    assert "Verified up to line 3," in page
    assert "Verified daily." in page
    services.check_audit(now=now - timedelta(days=3))
    assert "Overdue: check that the scheduler" in admin.get("/admin/audit/").content.decode()


def test_an_audit_that_does_not_hold_is_an_alarm_on_its_page(admin: Client) -> None:
    write(3)
    services.check_audit(now=timezone.now())
    AuditEntry.objects.filter(number=2).update(note="never said")
    services.check_audit(now=timezone.now())
    page = admin.get("/admin/audit/").content.decode()
    assert "<b>Audit verification failed.</b> Entry 2 was altered" in page
    assert "Last passed to line 3" in page


def test_what_there_was_none_of_before_is_not_told_as_nothing(admin: Client) -> None:
    write(before={"reviewer": "", "to": "6"}, after={"reviewer": "cleo", "to": None})
    page = admin.get("/admin/audit/").content.decode()
    assert re.search(r">reviewer: cleo\s+to: 6 → none<", page)
