"""Exports: months and their files, what is closed, by whom, and with which hashes."""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import Membership, User
from apps.costs.domain.exports import ExportState
from apps.costs.domain.files import FileFormat
from apps.costs.models import ClosedPeriod, Export
from apps.costs.services import close_period
from apps.costs.services.exports import keep_closed_files, write_export
from apps.usage.models import CollectionWindow
from tests.costs.portal import PRICES, Priced, closed_path, make_priced
from tests.factories import A100, make_portal
from tests.shared_rows import copy_of, shared
from tests.web.pages import file_of, text_of

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
MONTH = date(2026, 10, 1)
OF_MONTH = "first=2026-10-30&last=2026-10-31"
CLOSED_AT = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _folder(settings: Settings, tmp_path: Path) -> None:
    settings.EXPORTS_DIR = str(tmp_path / "exports")


def close_month(priced: Priced) -> Priced:
    close_period(MONTH, by="finn", now=CLOSED_AT, forced="what was before the portal")
    return priced


_closed = shared(close_month, upon="_priced")
# Its month is closed.
closed = copy_of("_closed")


@pytest.mark.parametrize("format_", FileFormat)
def test_a_month_is_had_in_every_format(format_: str, priced: Priced, signed_in: SignIn) -> None:
    response: Any = signed_in(priced.portal.finn).get(
        f"/costs/exports/file?period=2026-10&format={format_}&policy=use"
    )
    assert response.status_code == 200
    assert len(response.getvalue()) > 500
    assert "2026-10_2026-09-30T2200Z_2026-10-31T2300Z" in response["Content-Disposition"]
    assert "_use_" in response["Content-Disposition"]


def test_an_open_month_says_what_keeps_it_from_being_closed(
    signed_in: SignIn,
) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    page = text_of(signed_in(priced.portal.finn), "/costs/exports/?tab=months")
    assert 'id="month-2026-10"' in page
    assert "Before it can close, since data starts:" in page
    assert "no price for" in page


def test_a_month_that_is_mostly_not_collected_says_so_beside_its_downloads(
    priced: Priced, signed_in: SignIn
) -> None:
    there = CollectionWindow.objects.filter(cluster__name="west").count()
    said = f"west {745 - there} of 745 h"
    months = text_of(signed_in(priced.portal.finn), "/costs/exports/?tab=months")
    line = months[months.index('id="month-2026-10"') :]
    assert line.index(said) < line.index("file-list"), "it stands before the files"
    # Leads have no list of months: for them it stands at the form.
    for address in ("/costs/exports/", f"/costs/?{OF_MONTH}"):
        assert said in text_of(signed_in(priced.portal.ada), address)
    # Whoever chooses another month in the form learns what its file lacks.
    client = signed_in(priced.portal.ada)
    page = text_of(client, "/costs/exports/")
    assert page.count('hx-get="/costs/exports/warnings"') == 2
    assert said in text_of(client, "/costs/exports/warnings?period=2026-10")
    september = text_of(client, "/costs/exports/warnings?period=2026-09")
    assert "Not collected in September 2026: east 720 of 720 h, west 720 of 720 h." in september
    assert september.count("callout") == 1
    for half_typed in ("", "2026-1", "2026-W10"):
        assert "callout" not in text_of(client, f"/costs/exports/warnings?period={half_typed}")
    CollectionWindow.objects.all().delete()
    assert "west 745 of 745 h" in text_of(signed_in(priced.portal.ada), "/costs/exports/")


def test_a_closed_month_says_by_whom_and_its_files_have_the_hashes_it_names(
    closed: Priced, signed_in: SignIn
) -> None:
    client = signed_in(closed.portal.finn)
    page = text_of(client, "/costs/exports/?tab=months")
    assert "by finn" in page
    assert "what was before the portal" in page
    assert "Charge basis: allocated. Unallocated cost: kept with the platform. Price book" in page
    for format_ in FileFormat:
        # Whatever is asked for: it is charged as it was closed.
        response: Any = client.get(
            f"/costs/exports/file?period=2026-10&format={format_}&policy=use"
        )
        assert hashlib.sha256(response.getvalue()).hexdigest() in page, format_


def test_months_are_for_finance_and_files_for_all(priced: Priced, signed_in: SignIn) -> None:
    dan = signed_in(priced.portal.dan)
    page = text_of(dan, "/costs/exports/")
    assert "Finance and administrators see the closed months." in page
    assert 'id="month-' not in page
    text = file_of(dan.get("/costs/exports/file?period=2026-10&format=csv"))
    assert "speech" in text
    assert "vision" not in text
    assert "stray" not in text


def test_a_month_of_one_team_is_had_at_once(closed: Priced, signed_in: SignIn) -> None:
    finn = signed_in(closed.portal.finn)
    page = text_of(finn, "/costs/exports/")
    form = page[page.index('action="/costs/exports/file"') :]
    form = form[: form.index("</form>")]
    assert "<option>speech</option>" in form
    assert 'name="period" id="export-month" value="2026-10"' in form
    assert form.index('value="xlsx"') < form.index('value="csv"')
    found = finn.get("/costs/exports/file?team=speech&period=2026-10&format=csv")
    assert "costs-2026-10-speech" in found["Content-Disposition"]
    text = file_of(found)
    assert "speech" in text
    assert "vision" not in text
    assert finn.get("/costs/exports/file?team=nobody&period=2026-10").status_code == 400


@pytest.mark.parametrize("query", ["period=october", "period=2026-13", "format=pdf"])
def test_what_is_no_month_or_format_gives_no_file(
    query: str, priced: Priced, signed_in: SignIn
) -> None:
    response = signed_in(priced.portal.finn).get(f"/costs/exports/file?{query}")
    assert response.status_code == 400


def test_a_portal_without_facts_has_the_page(signed_in: SignIn) -> None:
    finn = signed_in(make_portal().finn)
    assert "No day has a cost yet" in text_of(finn, "/costs/exports/?tab=months")
    booked = text_of(finn, "/costs/exports/?tab=adjustments")
    assert "No adjustments of closed months." in booked


# ---------------------------------------------------------------- files written in the background


ASKED = {"period": "2026-10", "format": "csv", "basis": "allocated", "policy": "use"}


def test_a_file_is_asked_for_followed_and_fetched(priced: Priced, signed_in: SignIn) -> None:
    client = signed_in(priced.portal.finn)
    response: Any = client.post("/costs/exports/create", ASKED)
    assert (response.status_code, response["Location"]) == (302, "/costs/exports/#asked")
    page = text_of(client, "/costs/exports/")
    assert "2026-10 as CSV" in page
    assert "pending" in page
    assert 'hx-get="/costs/exports/list"' in page
    row = Export.objects.get()
    Export.objects.update(state=ExportState.RUNNING.value, rows_written=40, rows_expected=100)
    fragment = text_of(client, "/costs/exports/list")
    assert 'value="40"' in fragment
    assert "40 of about 100 rows" in fragment
    Export.objects.update(state=ExportState.QUEUED.value)
    write_export(row.pk)
    fragment = text_of(client, "/costs/exports/list")
    assert "hx-get" not in fragment
    assert Export.objects.get().sha256 in fragment
    download: Any = client.get(f"/costs/exports/{row.pk}/file")
    content = download.getvalue()
    assert hashlib.sha256(content).hexdigest() == Export.objects.get().sha256
    assert "_use_" in download["Content-Disposition"]
    assert b"vision" in content


@pytest.mark.parametrize("who", ["cleo", "ada", "dan"])
def test_nobody_else_gets_a_file_that_somebody_asked_for(
    who: str, priced: Priced, signed_in: SignIn
) -> None:
    signed_in(priced.portal.finn).post("/costs/exports/create", ASKED)
    pk = Export.objects.get().pk
    write_export(pk)
    client = signed_in(getattr(priced.portal, who))
    assert client.get(f"/costs/exports/{pk}/file").status_code == 404
    assert "2026-10 as CSV" not in text_of(client, "/costs/exports/list")


def test_who_left_the_team_is_told_to_ask_anew(priced: Priced, signed_in: SignIn) -> None:
    client = signed_in(priced.portal.ada)
    client.post("/costs/exports/create", ASKED)
    pk = Export.objects.get().pk
    write_export(pk)
    assert "vision" in file_of(client.get(f"/costs/exports/{pk}/file"))
    Membership.objects.filter(username="ada").delete()
    response = client.get(f"/costs/exports/{pk}/file")
    assert response.status_code == 403
    assert "What you may see has changed" in response.content.decode()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"period": "october"}, "Choose a month"),
        ({"first": "2026-10-31", "last": "2026-10-30"}, "comes before the first"),
        ({"first": "2026-10-32"}, "Days are written as"),
        ({"first": "2020-01-01", "last": "2026-01-01"}, "at most 400 days"),
        ({"first": "2999-01-01"}, "no costs of such days"),
        ({"format": "pdf"}, "no such format"),
        ({"basis": "guessed"}, "no such format or way to charge"),
    ],
    ids=["month", "days", "day", "too many", "not yet", "format", "basis"],
)
def test_what_cannot_be_written_is_told_on_the_page(
    changed: dict[str, str], said: str, priced: Priced, signed_in: SignIn
) -> None:
    response = signed_in(priced.portal.finn).post("/costs/exports/create", ASKED | changed)
    assert response.status_code == 400
    assert said in response.content.decode()
    assert not Export.objects.exists()


def test_days_are_asked_for_with_the_same_form(priced: Priced, signed_in: SignIn) -> None:
    client = signed_in(priced.portal.finn)
    client.post("/costs/exports/create", ASKED | {"first": "2026-10-30", "last": "2026-10-31"})
    write_export(Export.objects.get().pk)
    assert "2026-10-30 to 2026-10-31 as CSV" in text_of(client, "/costs/exports/list")
    text = file_of(client.get(f"/costs/exports/{Export.objects.get().pk}/file"))
    assert "2026-10-29T23:00:00Z" in text


def test_the_rows_of_the_page_of_costs_are_written_as_they_are_grouped(
    priced: Priced, signed_in: SignIn
) -> None:
    client = signed_in(priced.portal.finn)
    page = text_of(client, "/costs/?first=2026-10-30&last=2026-10-31&by=tier&tier=gold&tab=files")
    form = page[page.index('action="/costs/exports/create"') :]
    form = form[: form.index("</form>")]
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    sent = {name: value for name, value in hidden if name != "csrfmiddlewaretoken"}
    assert sent == {
        "first": "2026-10-30",
        "last": "2026-10-31",
        "by": "tier",
        "basis": "allocated",
        "policy": "platform",
        "tier": "gold",
    }
    response = client.post("/costs/exports/create", {**sent, "format": "csv", "interval": "total"})
    assert response.status_code == 302
    write_export(Export.objects.get().pk)
    said = "2026-10-30 to 2026-10-31 of gold by tier, in one sum as CSV"
    assert said in text_of(client, "/costs/exports/list")
    text = file_of(client.get(f"/costs/exports/{Export.objects.get().pk}/file"))
    assert "speech" not in text
    assert "gold" in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"by": "colour"}, "There is no group"),
        ({"by": "tier", "interval": "year"}, "There is no interval"),
        ({"by": "tier", "tier": "silver-plated"}, "silver-plated"),
    ],
    ids=["group", "interval", "filter"],
)
def test_groups_that_nobody_knows_give_no_file(
    changed: dict[str, str], said: str, priced: Priced, signed_in: SignIn
) -> None:
    days = {"first": "2026-10-30", "last": "2026-10-31"}
    response = signed_in(priced.portal.finn).post("/costs/exports/create", ASKED | days | changed)
    assert response.status_code == 400
    assert said in response.content.decode()
    assert not Export.objects.exists()


def test_what_failed_says_why(priced: Priced, signed_in: SignIn) -> None:
    client = signed_in(priced.portal.finn)
    client.post("/costs/exports/create", ASKED)
    Export.objects.update(state="failed", error="The disk is full.")
    assert "The disk is full." in text_of(client, "/costs/exports/")


# ---------------------------------------------------------------- closed months


def test_a_closed_month_is_handed_out_as_it_is_kept(closed: Priced, signed_in: SignIn) -> None:
    client = signed_in(closed.portal.finn)
    assert "not stored yet" in text_of(client, "/costs/exports/?tab=months")
    keep_closed_files(now=CLOSED_AT)
    assert "stored at the close" in text_of(client, "/costs/exports/?tab=months")
    # As of another release of the library that writes them: nothing made now has its hash.
    period = ClosedPeriod.objects.get()
    sha = hashlib.sha256(b"kept").hexdigest()
    closed_path(sha, FileFormat.PARQUET).write_bytes(b"kept")
    period.files["parquet"] = sha
    period.save()
    response: Any = client.get("/costs/exports/file?period=2026-10&format=parquet")
    assert response.getvalue() == b"kept"


def test_a_file_that_is_not_what_was_closed_says_so(closed: Priced, signed_in: SignIn) -> None:
    period = ClosedPeriod.objects.get()
    period.files["csv"] = "0" * 64
    period.save()
    client = signed_in(closed.portal.finn)
    response: Any = client.get("/costs/exports/file?period=2026-10&format=csv")
    assert "NOT-as-closed" in response["Content-Disposition"]
    assert b"vision" in response.getvalue()
    assert "the hash DIFFERS from the close" in text_of(client, "/costs/exports/?tab=months")


def test_who_does_not_see_everything_gets_their_own_rows_of_a_closed_month(
    closed: Priced, signed_in: SignIn
) -> None:
    keep_closed_files(now=CLOSED_AT)
    text = file_of(
        signed_in(closed.portal.dan).get("/costs/exports/file?period=2026-10&format=csv")
    )
    assert "speech" in text
    assert "vision" not in text


def test_an_admin_opens_a_closed_month_again_for_a_reason(
    closed: Priced, signed_in: SignIn
) -> None:
    client = signed_in(closed.portal.cleo)
    assert "Reopen October 2026" in text_of(client, "/costs/exports/?tab=months")
    response = client.post("/costs/exports/2026-10/reopen", {"reason": " "})
    assert response.status_code == 400
    assert "needs a reason" in response.content.decode()
    response = client.post("/costs/exports/2026-10/reopen", {"reason": "a wrong price"})
    assert response.status_code == 302
    page = text_of(client, "/costs/exports/?tab=months")
    assert "Reopened: a wrong price" in page
    assert "Reopen October 2026" not in page
    assert client.post("/costs/exports/2026-10/reopen", {"reason": "twice"}).status_code == 404


@pytest.mark.parametrize("who", ["finn", "ada", "dan"])
def test_nobody_but_admins_opens_a_month_again(who: str, closed: Priced, signed_in: SignIn) -> None:
    client = signed_in(getattr(closed.portal, who))
    assert "Reopen October 2026" not in text_of(client, "/costs/exports/")
    assert client.post("/costs/exports/2026-10/reopen", {"reason": "why not"}).status_code == 404
    assert ClosedPeriod.objects.get().reopened_at is None
