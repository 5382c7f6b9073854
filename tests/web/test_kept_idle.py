"""Idle workloads that somebody keeps: what the pages that speak of them say then."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import Team
from apps.alerts.models import IdleAnswer
from tests.costs.recommendation_rows import make
from tests.factories import Portal
from tests.web.pages import text_of

WORKLOAD = "/workloads/west/vision/Job/train/"
SOON = timedelta(days=2)


def answer(workload: str, until: datetime | None, *, choice: str = "keep") -> None:
    IdleAnswer.objects.create(
        subject=f"workload:west/vision/{workload}",
        team=Team.objects.get(name="vision"),
        choice=choice,
        person="ada",
        at=timezone.now(),
        reason="a demo on <Friday>",
        until=until,
    )


def open_savings(client: Client) -> tuple[str, str]:
    response: Any = client.get("/costs/recommendations/")
    first = response.context["figures"].figures[0]
    return first.value, first.note


def test_a_kept_one_says_so_and_is_not_counted(portal: Portal, admin: Client) -> None:
    make(0)
    one = make(1)
    own = f"/costs/recommendations/{one.pk}/"
    assert open_savings(admin) == ("$4,243", "2 counted")
    assert "Kept until" not in text_of(admin, own)
    answer("StatefulSet/notebook-1", timezone.now() + SOON)
    page = text_of(admin, own)
    assert "because a demo on &lt;Friday&gt; (ada)" in page
    assert "Until then it is not counted in the sum" in page
    assert open_savings(admin) == ("$2,122", "1 counted")
    assert ">kept</td>" in text_of(admin, "/costs/recommendations/")


@pytest.mark.parametrize("how", ["over", "can go", "keeps and then can go"])
def test_an_answer_that_does_not_hold_changes_nothing(
    how: str, portal: Portal, admin: Client
) -> None:
    one = make(0)
    now = timezone.now()
    if how == "over":
        answer("StatefulSet/notebook-0", now - SOON)
    if how == "keeps and then can go":
        answer("StatefulSet/notebook-0", now + SOON)
    if how != "over":
        answer("StatefulSet/notebook-0", None, choice="release")
    assert "Kept until" not in text_of(admin, f"/costs/recommendations/{one.pk}/")
    assert open_savings(admin) == ("$2,122", "1 counted")


def test_the_day_that_is_named_is_the_last_that_it_is_kept(portal: Portal, admin: Client) -> None:
    midnight = datetime(2099, 11, 28, tzinfo=portal.zone)
    answer("Job/train", midnight)
    assert "Kept until 27 Nov 2099 because" in text_of(admin, WORKLOAD)


def test_a_workload_that_nobody_keeps_says_nothing_of_it(portal: Portal, admin: Client) -> None:
    answer("Job/other", timezone.now() + SOON)
    assert "Kept until" not in text_of(admin, WORKLOAD)


def test_many_kept_ones_take_no_more_queries(portal: Portal, admin: Client) -> None:
    make(0)
    answer("StatefulSet/notebook-0", timezone.now() + SOON)
    with CaptureQueriesContext(connection) as few:
        text_of(admin, "/costs/recommendations/")
    for number in range(1, 30):
        make(number)
        answer(f"StatefulSet/notebook-{number}", timezone.now() + SOON)
    with CaptureQueriesContext(connection) as many:
        text_of(admin, "/costs/recommendations/")
    assert len(many) == len(few)
