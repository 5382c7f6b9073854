"""The list of what was said: filters, paging, links, and answers to idle alerts."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.models import User
from apps.alerts.models import Alert, Channel, Delivery, IdleAnswer, ReadMarker
from apps.alerts.services import notify, prune
from apps.alerts.services.delivery import digest_item as as_sent
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared
from tests.web.alerts import Board, moment, said, say_many
from tests.web.pages import text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
TRAIN = "workload:west/vision/Job/train"


_portal = shared(make_portal)
portal = copy_of("_portal")


def titles(page: str) -> list[str]:
    """Return the headings of the list, links or not, read or not."""
    return [
        re.sub(r"<[^>]+>", "", found).removeprefix("Unread: ")
        for found in re.findall(r'<div class="alerts-head">\s*<h2>(.*?)</h2>', page)
    ]


def test_a_portal_where_nothing_was_said_says_so(ada: Client) -> None:
    page = text_of(ada, "/alerts/")
    assert "No alerts in the last 180 days." in page
    assert "Mark all read" not in page


def test_a_line_says_when_of_whom_and_where_to_look(board: Board, ada: Client) -> None:
    page = text_of(ada, "/alerts/")
    link = f"/alerts/{board.alerts['budget:vision/gpu_hours'].pk}/"
    assert f'<a href="{link}">Alert of budget:vision/gpu_hours</a>' in page
    assert ada.get(link).headers["Location"] == "/costs/budgets/?team=vision"
    assert f"This is about {TRAIN}.\nLook there." in page
    line = page.partition(f'id="alert-{board.alerts[TRAIN].pk}"')[2].partition("</li>")[0]
    assert 'href="/capacity/teams/vision/' in line
    assert re.search(r"\d{2}:\d{2}", line)


@pytest.mark.parametrize(
    "path", ["//elsewhere.example/", "/\\elsewhere.example", "javascript:alert(1)", "https://e.org"]
)
def test_a_line_never_leads_out_of_the_portal(path: str, portal: Portal, ada: Client) -> None:
    notify([said(portal.vision, "x", path=path)], now=moment(), zone=portal.zone)
    page = text_of(ada, "/alerts/")
    assert titles(page) == ["Alert of x"]
    assert f'href="{path}' not in page
    assert ada.get(f"/alerts/{Alert.objects.get().pk}/").status_code == 404


def test_hostile_words_are_shown_as_text(portal: Portal, ada: Client) -> None:
    text = "<script>alert(1)</script>"
    notify([said(portal.vision, text, text=text)], now=moment(), zone=portal.zone)
    page = text_of(ada, "/alerts/")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.parametrize(
    ("query", "subjects"),
    [
        ("kind=budget", ["budget:vision/gpu_hours"]),
        ("kind=budget&kind=data+gap", ["cluster:west/watched", "budget:vision/gpu_hours"]),
        ("team=speech", ["workload:west/speech/StatefulSet/notes"]),
        ("team=nowhere", []),
        ("kind=drift", []),
    ],
)
def test_the_list_is_narrowed_by_kind_and_team(
    query: str, subjects: list[str], board: Board, portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.cleo), f"/alerts/?{query}")
    assert titles(page) == [f"Alert of {subject}" for subject in subjects]
    assert subjects or "No alerts match these filters." in page


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("kind=rumour", "“rumour” is not an alert kind."),
        ("before=yesterday", "is not in the list"),
        ("before=99999999999999999999", "is not in the list"),
        ("before=%C2%B2", "is not in the list"),
        ("team=%00", ""),
    ],
)
def test_an_address_that_makes_no_sense_breaks_nothing(
    query: str, says: str, board: Board, ada: Client
) -> None:
    page = text_of(ada, f"/alerts/?{query}")
    assert says in page
    assert len(titles(page)) == 2


def test_older_ones_follow_page_by_page_within_the_filter(portal: Portal, ada: Client) -> None:
    say_many(portal, 104)
    found, address, pages = [], "/alerts/?kind=idle", 0
    while address:
        page = text_of(ada, address)
        found += titles(page)
        pages += 1
        link = re.search(r'href="([^"]+)" rel="next"', page)
        address = link.group(1).replace("&amp;", "&") if link else ""
    assert pages == 6
    assert found == [f"Alert of thing-{n}" for n in range(102, -1, -2)]
    assert 'rel="first"' in page


def test_more_alerts_need_no_more_queries(portal: Portal, ada: Client) -> None:
    say_many(portal, 2)
    with CaptureQueriesContext(connection) as few:
        text_of(ada, "/alerts/")
    say_many(portal, 60)
    with CaptureQueriesContext(connection) as many:
        text_of(ada, "/alerts/")
    assert len(many) == len(few) <= 14


def test_other_pages_need_one_query_for_the_bell(ada: Client) -> None:
    with CaptureQueriesContext(connection) as asked:
        page = text_of(ada, "/tokens/")
    assert '<a class="bell" href="/alerts/' in page
    assert len([query["sql"] for query in asked if "alerts_" in query["sql"]]) == 1


# ---------------------------------------------------------------- answers


def answer(client: Client, alert: Alert, query: str = "", **form: str) -> tuple[int, str, str]:
    response = client.post(f"/alerts/{alert.pk}/answer{query}", form)
    return response.status_code, response.headers.get("Location", ""), response.content.decode()


def test_an_idle_workload_is_kept_until_a_day_for_a_reason(
    board: Board, portal: Portal, ada: Client
) -> None:
    alert, day = board.alerts[TRAIN], moment().astimezone(portal.zone).date() + timedelta(days=3)
    status, place, _ = answer(
        ada, alert, "?kind=idle", choice="keep", until=f"{day}", because="the demo is then"
    )
    subject = TRAIN.replace(":", "%3A").replace("/", "%2F")
    assert (status, place) == (302, f"/alerts/?kind=idle&subject={subject}#alert-{alert.pk}")
    page = text_of(ada, place)
    line = page.partition(f'id="alert-{alert.pk}"')[2].partition("</li>")[0]
    assert "Kept until" in line
    assert "(over)" not in line
    assert "because the demo is then" in line
    assert "ada, " in line
    assert "Change answer" in line
    IdleAnswer.objects.update(until=moment() - timedelta(hours=1))
    assert "(over)" in text_of(ada, "/alerts/")


def test_the_last_answer_is_the_one_that_is_shown(board: Board, ada: Client) -> None:
    alert = board.alerts[TRAIN]
    answer(ada, alert, choice="release", because="it is done")
    assert "<strong>Released</strong>, because it is done" in text_of(ada, "/alerts/")
    answer(ada, alert, choice="release")
    page = text_of(ada, "/alerts/")
    assert "<strong>Released</strong> " in page
    assert "it is done" not in page


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"choice": "keep", "because": "the demo"}, "Choose an end day."),
        ({"choice": "keep", "until": "tomorrow", "because": ""}, "Say why it is to be kept."),
        ({"choice": "keep", "until": "2020-01-01", "because": "the demo"}, "2020-01-01 is past."),
        ({"choice": "keep", "until": "2999-01-01", "because": "the demo"}, "14 days at most"),
        ({"choice": "keep", "until": "someday", "because": "the demo"}, "is no day"),
    ],
)
def test_an_answer_that_is_not_taken_keeps_what_was_typed(
    form: dict[str, str], says: str, board: Board, ada: Client
) -> None:
    status, _, page = answer(ada, board.alerts[TRAIN], **form)
    assert status == 400
    assert says in page
    assert f'value="{form["because"]}"' in page
    assert f'value="{form.get("until", "")}"' in page
    assert '<details class="d-print-none" open>' in page
    assert not IdleAnswer.objects.exists()


def test_the_link_of_a_message_leads_to_the_line_to_answer(
    board: Board, ada: Client, settings: Settings
) -> None:
    settings.PORTAL_URL = "https://gpu.example.org"
    alert = board.alerts[TRAIN]
    channel = Channel.objects.order_by("pk")[0]
    link = as_sent(Delivery(alert=alert, channel=channel)).link
    address, _, place = link.removeprefix(settings.PORTAL_URL).partition("#")
    line = text_of(ada, address).partition(f'id="{place}"')[2].partition("</li>")[0]
    assert f"/alerts/{alert.pk}/answer" in line


def test_only_idle_alerts_are_answered(board: Board, ada: Client) -> None:
    status, _, page = answer(ada, board.alerts["budget:vision/gpu_hours"], choice="release")
    assert status == 400
    assert not IdleAnswer.objects.exists()
    assert f'action="/alerts/{board.alerts["budget:vision/gpu_hours"].pk}/answer' not in page


def test_of_several_alerts_of_one_thing_the_latest_is_answered(
    board: Board, portal: Portal, ada: Client
) -> None:
    again = said(portal.vision, TRAIN)
    later = type(again)(
        *(again.kind, again.subject, again.team_id, "Still idle", again.text),
        occasion=("twice",),
    )
    notify([later], now=moment(), zone=portal.zone)
    latest = Alert.objects.get(title="Still idle")
    page = text_of(ada, "/alerts/")
    assert re.findall(r'action="/alerts/(\d+)/answer', page) == [str(latest.pk)]


# ---------------------------------------------------------------- read and unread


def bell(client: Client) -> str:
    """Return what the bell of a page counts; empty for nothing."""
    found = re.search(r'class="bell-count">([^<]*)<', text_of(client, "/tokens/"))
    return found[1] if found else ""


def unread(client: Client, query: str = "") -> list[str]:
    page = text_of(client, f"/alerts/{query}")
    return re.findall(r"Unread: </span>(?:<a [^>]*>)?([^<]*)<", page)


def say_again(portal: Portal, subject: str, occasion: str) -> None:
    again = said(portal.vision, subject)
    later = type(again)(
        *(again.kind, again.subject, again.team_id, again.title, again.text, again.path),
        occasion=(occasion,),
    )
    notify([later], now=moment(), zone=portal.zone)


def test_alerts_of_one_subject_are_one_line_that_counts_them(
    board: Board, portal: Portal, ada: Client
) -> None:
    say_again(portal, TRAIN, "twice")
    say_again(portal, TRAIN, "thrice")
    assert bell(ada) == "2"
    page = text_of(ada, "/alerts/")
    assert titles(page).count(f"Alert of {TRAIN}") == 1
    link = re.search(r'class="alerts-count" href="([^"]+)"[^>]*>3 ×<', page)
    assert link is not None
    assert titles(text_of(ada, link[1].replace("&amp;", "&"))) == [f"Alert of {TRAIN}"] * 3


def test_what_is_opened_is_read_by_that_person_alone(
    board: Board, portal: Portal, ada: Client, signed_in: SignIn
) -> None:
    ben = signed_in(portal.ben)
    assert (bell(ada), bell(ben)) == ("2", "2")
    ada.head(f"/alerts/{board.alerts[TRAIN].pk}/")
    assert bell(ada) == "2"
    ada.get(f"/alerts/{board.alerts[TRAIN].pk}/")
    assert (bell(ada), bell(ben)) == ("1", "2")
    assert unread(ada) == ["Alert of budget:vision/gpu_hours"]
    ada.get(f"/alerts/{board.alerts['budget:vision/gpu_hours'].pk}/")
    say_again(portal, TRAIN, "twice")
    assert titles(text_of(ada, "/alerts/"))[0] == f"Alert of {TRAIN}"


def test_what_is_said_anew_is_unread_again(board: Board, portal: Portal, ada: Client) -> None:
    ada.get(f"/alerts/{board.alerts[TRAIN].pk}/")
    say_again(portal, TRAIN, "twice")
    assert bell(ada) == "2"
    assert len(unread(ada)) == 2


def test_an_answered_alert_is_read(board: Board, ada: Client) -> None:
    assert answer(ada, board.alerts[TRAIN], choice="release")[0] == 302
    assert unread(ada) == ["Alert of budget:vision/gpu_hours"]


def test_all_are_marked_read_up_to_the_newest_that_was_shown(
    board: Board, portal: Portal, ada: Client
) -> None:
    shown = re.search(r'name="up_to" value="(\d+)"', text_of(ada, "/alerts/?kind=idle"))
    assert shown is not None
    say_again(portal, TRAIN, "meanwhile")
    response = ada.post("/alerts/read?kind=idle", {"up_to": shown[1]})
    assert (response.status_code, response.headers["Location"]) == (302, "/alerts/?kind=idle")
    assert unread(ada) == [f"Alert of {TRAIN}", "Alert of budget:vision/gpu_hours"]
    ada.post("/alerts/read", {"up_to": "999999999"})
    assert (bell(ada), unread(ada)) == ("", [])
    say_again(portal, TRAIN, "later")
    assert bell(ada) == "1"


@pytest.mark.parametrize("up_to", ["", "x", "-1", "9" * 30])
def test_nothing_is_marked_read_without_a_place(up_to: str, board: Board, ada: Client) -> None:
    assert ada.post("/alerts/read", {"up_to": up_to}).status_code == 302
    assert bell(ada) == "2"


def test_alerts_that_others_see_alone_are_not_counted(
    board: Board, portal: Portal, signed_in: SignIn
) -> None:
    assert bell(signed_in(portal.dan)) == "1"
    assert bell(signed_in(portal.cleo)) == "4"
    assert signed_in(portal.dan).get(f"/alerts/{board.alerts[TRAIN].pk}/").status_code == 404


def test_a_hundred_unread_alerts_are_not_counted(portal: Portal, ada: Client) -> None:
    say_many(portal, 101)
    assert bell(ada) == "99+"


def test_markers_go_with_their_alerts(board: Board, portal: Portal, ada: Client) -> None:
    ada.get(f"/alerts/{board.alerts[TRAIN].pk}/")
    Delivery.objects.all().delete()  # alerts stay while one is not sent yet
    prune(now=moment() + timedelta(days=181))
    notify([said(portal.vision, "new")], now=moment(), zone=portal.zone)
    prune(now=moment())
    assert not ReadMarker.objects.exists()
