"""The log of what was sent: what became of each alert, and sending again."""

import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.alerts.models import Delivery
from apps.alerts.services import deliver
from apps.costs.models import MonthlyMail
from apps.web.components.page_query import PER_PAGE
from tests.alerts.board import Box
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared
from tests.web.alerts import Board, moment, say_many
from tests.web.pages import records_of, text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
FAILING = '<span class="state state-failed">failing</span>'


_portal = shared(make_portal)
portal = copy_of("_portal")


def test_the_log_says_what_became_of_each_alert(
    board: Board, portal: Portal, signed_in: SignIn
) -> None:
    ben, here = signed_in(portal.ben), f"/alerts/deliveries/?channel={board.bens.pk}"
    assert text_of(ben, here).count(">queued</td>") == 2
    box = Box(failures=9)
    deliver(now=moment(), post=box)
    page = text_of(ben, here)
    assert "failed once, retrying" in page
    assert "mail.example.org: it was not taken." in page
    assert FAILING in text_of(ben, "/alerts/channels/")
    assert "The last delivery failed." in text_of(ben, f"/alerts/channels/{board.bens.pk}/")
    box.failures = 0
    deliver(now=moment() + timedelta(hours=1), post=box)
    assert ">sent</td>" in text_of(ben, here)
    assert FAILING not in text_of(ben, "/alerts/channels/")


def test_what_was_given_up_is_sent_again_by_hand(
    board: Board, portal: Portal, signed_in: SignIn
) -> None:
    ben = signed_in(portal.ben)
    of_ben = Delivery.objects.filter(channel=board.bens)
    of_ben.update(state=Delivery.State.GIVEN_UP, error="it was not taken.", failures=7)
    one = of_ben.order_by("pk")[0]
    query = f"?channel={board.bens.pk}"
    assert f'action="/alerts/deliveries/{one.pk}/again{query}"' in text_of(
        ben, f"/alerts/deliveries/{query}"
    )
    response: Any = ben.post(f"/alerts/deliveries/{one.pk}/again{query}")
    assert response["Location"] == f"/alerts/deliveries/{query}#delivery-{one.pk}"
    Delivery.objects.exclude(channel=board.bens).delete()
    box = Box()
    assert deliver(now=moment() + timedelta(seconds=2), post=box) == 1
    assert [address for address, _ in box.sent] == ["ben@example.org"]
    assert ben.post(f"/alerts/deliveries/{one.pk}/again").status_code == 404


def test_a_failure_before_the_last_that_arrived_is_no_alarm(
    board: Board, portal: Portal, signed_in: SignIn
) -> None:
    first, last = Delivery.objects.filter(channel=board.bens).order_by("pk")
    now = moment()
    Delivery.objects.filter(pk=last.pk).update(
        state=Delivery.State.GIVEN_UP, error="it was not taken.", due_at=now - timedelta(days=2)
    )
    Delivery.objects.filter(pk=first.pk).update(state=Delivery.State.SENT, sent_at=now)
    assert FAILING not in text_of(signed_in(portal.ben), "/alerts/channels/")


def test_the_log_goes_on_page_by_page(board: Board, portal: Portal, signed_in: SignIn) -> None:
    ben = signed_in(portal.ben)
    say_many(portal, 70)
    page = text_of(ben, "/alerts/deliveries/")
    assert page.count('id="delivery-') == PER_PAGE
    older = re.search(r'href="([^"]+)" rel="next"', page)
    assert older is not None
    rest = text_of(ben, older.group(1).replace("&amp;", "&"))
    assert rest.count('id="delivery-') == PER_PAGE
    assert 'rel="first"' in rest
    records = records_of(ben, "/alerts/deliveries/?format=csv&table=deliveries")
    assert len(records) == 72


@pytest.mark.parametrize("query", ["channel=x", "cursor=-1", "channel=99999999999999999999"])
def test_a_log_of_nonsense_says_so(query: str, board: Board, ada: Client) -> None:
    assert "is not in the list" in text_of(ada, f"/alerts/deliveries/?{query}")


def test_the_log_of_others_channels_is_empty(board: Board, portal: Portal, ada: Client) -> None:
    page = text_of(ada, f"/alerts/deliveries/?channel={board.bens.pk}")
    assert "No deliveries yet." in page
    assert "ben" not in page.partition('id="results"')[2]


def test_the_log_has_reports_by_mail_for_who_sees_everything(
    board: Board, portal: Portal, ada: Client, signed_in: SignIn
) -> None:
    assert board.bens.pk
    month = date(2026, 10, 1)
    for to, error in (("finn@example.org", ""), ("cfo@example.org", "The portal failed.")):
        MonthlyMail.objects.create(
            month=month, recipient=to, next_at=moment(), attempts=1, error=error
        )
    page = text_of(signed_in(portal.finn), "/alerts/deliveries/")
    assert page.index("cfo@example.org") < page.index("finn@example.org")
    assert "failed once, retrying" in page
    assert "The portal failed." in page
    assert "cfo@example.org" not in text_of(ada, "/alerts/deliveries/")
