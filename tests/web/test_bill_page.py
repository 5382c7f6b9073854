"""The page on which a month is reconciled with its bill."""

import csv
import io
import re
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.costs import selectors as costs
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.files import FileFormat
from apps.costs.models import Bill, SkuMapping
from tests.costs.bills import OCTOBER, imported, plain
from tests.costs.portal import Priced
from tests.costs.written import bytes_of
from tests.factories import A100, H100
from tests.web.pages import file_of, text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
PAGE = "/costs/bill/?month=2026-10"


@pytest.fixture
def finn(priced: Priced, signed_in: SignIn) -> Client:
    return signed_in(priced.portal.finn)


def upload(client: Client, content: bytes, month: str = "2026-10", **fields: str) -> HttpResponse:
    file = SimpleUploadedFile("bill.csv", content)
    return client.post("/costs/bill/import", {"month": month, "file": file, **fields})  # type: ignore[return-value]


def own_export() -> bytes:
    file = costs.period_file(
        OCTOBER,
        FileFormat.FOCUS_CSV,
        visibility=EVERYTHING,
        basis=Basis.ALLOCATED,
        policy=Policy.PLATFORM,
    )
    return bytes_of(file, FileFormat.FOCUS_CSV)


def test_a_month_without_a_bill_says_what_to_do(finn: Client) -> None:
    page = text_of(finn, PAGE)
    assert "No bill of 2026-10 was imported yet. Import a FOCUS file" in page
    assert 'enctype="multipart/form-data"' in page
    assert 'href="/costs/bill/' in page


def test_the_portals_own_file_is_imported_and_differs_by_nothing(finn: Client) -> None:
    answer = upload(finn, own_export())
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    page = text_of(finn, PAGE)
    assert "0 %" in page
    assert 'id="models"' in page
    assert 'class="bill-under heat-0"' in page
    assert text_of(finn, "/costs/bill/").count("October") == page.count("October")


def test_figures_divide_the_bill_and_the_file_has_every_day(finn: Client) -> None:
    upload(finn, plain(("2026-10-30", A100, 1000), ("2026-10-31", "p5.48xlarge", 250)))
    page = text_of(finn, PAGE)
    for said in ("$1,000", "of $1,250 in all", "$250", "1 SKU"):
        assert said in page
    records = list(
        csv.DictReader(io.StringIO(file_of(finn.get(f"{PAGE}&tab=days&format=csv")), newline=""))
    )
    (row,) = [one for one in records if (one["day"], one["gpu_model"]) == ("2026-10-30", A100)]
    assert row["billed_cost"] == "1000"
    ratio = float(row["difference"]) / float(row["portal_cost"])
    assert float(row["difference_ratio"]) == pytest.approx(ratio, abs=1e-7)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (plain(("2026-10-30", A100, "x")), "Nothing was imported. Line 2: “x” is no amount."),
        (plain(("2026-09-30", A100, 1)), "The file has no charge of 2026-10"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(finn: Client, content: bytes, said: str) -> None:
    answer = upload(finn, content)
    assert answer.status_code == 400
    assert said in answer.content.decode()
    assert not Bill.objects.exists()


def test_a_form_without_a_file_or_month_says_so(finn: Client) -> None:
    answer = finn.post("/costs/bill/import", {"month": "2026-10"})
    assert answer.status_code == 400
    assert "Choose a month such as 2026-10, and a file." in answer.content.decode()
    assert finn.get("/costs/bill/?month=soon").status_code == 404


def test_a_file_that_is_too_large_is_refused_before_it_is_read(finn: Client) -> None:
    answer = finn.generic(
        "POST",
        "/costs/bill/import",
        b"",
        content_type="multipart/form-data; boundary=x",
        headers={"Content-Length": str(70 * 2**20)},
    )
    assert answer.status_code == 413
    assert "70 MiB, more than 64" in answer.content.decode()


def test_an_import_needs_the_token_of_its_form(priced: Priced) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(priced.portal.finn)
    assert upload(client, own_export()).status_code == 403
    assert not Bill.objects.exists()


def form_of(page: str) -> dict[str, list[str]]:
    """Return what the form of mappings sends as it is."""
    start = page.index('class="bill-mapping"')
    form = page[start : page.index("</form>", start)]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form):
        found.setdefault(name, []).append(value)
    for name, options in re.findall(r'<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', form, re.S):
        chosen = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', options)
        value = "" if chosen is None else chosen[1] if chosen[1] is not None else chosen[2]
        found.setdefault(name, []).append(value)
    return found


def test_skus_are_mapped_in_the_form_and_what_was_left_stays(finn: Client) -> None:
    upload(finn, plain(("2026-10-30", "p5.48xlarge", 250), ("2026-10-30", A100, 1)))
    page = text_of(finn, f"{PAGE}&tab=mapping")
    assert "suggested" in page
    assert "by name" in page
    form = form_of(page)
    assert form["sku"] == ["p5.48xlarge", A100]
    assert form["target"] == [H100, A100]
    answer = finn.post("/costs/bill/mapping", form)
    assert answer["Location"] == f"{PAGE}&tab=mapping"
    assert [row.sku for row in SkuMapping.objects.all()] == ["p5.48xlarge"]
    form = form_of(text_of(finn, f"{PAGE}&tab=mapping"))
    wrong = finn.post("/costs/bill/mapping", {**form, "target": ["TPU", A100]})
    assert wrong.status_code == 400
    assert "The portal knows no TPU" in wrong.content.decode()
    assert finn.post("/costs/bill/mapping", {"month": "x"}).status_code == 400


def test_the_rest_is_marked_as_no_gpu_at_once(finn: Client) -> None:
    upload(finn, plain(*(("2026-10-30", f"s3-{n}", 1) for n in range(30)), ("2026-10-30", A100, 1)))
    page = text_of(finn, f"{PAGE}&tab=mapping")
    assert "Exclude unmapped SKUs" in page
    assert "30 not mapped" in page
    assert "1–10 of 31" in page
    finn.post("/costs/bill/mapping", {**form_of(page), "then": "rest-not-gpu"})
    (row,) = [r for r in costs.sku_rows(OCTOBER, visibility=EVERYTHING) if r.sku == A100]
    assert row.target is not None
    assert "$30" in text_of(finn, PAGE)
    assert SkuMapping.objects.filter(gpu_model=None).count() == 30


def test_a_bill_is_deleted_and_stays_in_the_history(finn: Client) -> None:
    upload(finn, plain(("2026-10-30", A100, 1)), provider="aws")
    bill = Bill.objects.get()
    assert "Delete bill" in text_of(finn, f"{PAGE}&tab=bills")
    answer = finn.post(f"/costs/bill/{bill.pk}/delete", {"month": "2026-10"})
    assert answer["Location"] == f"{PAGE}&tab=bills"
    page = text_of(finn, PAGE)
    assert "No bill of 2026-10" in page
    assert "Import history" in page


def test_months_say_by_how_much_their_bill_differs(
    finn: Client, priced: Priced, signed_in: SignIn, settings: Settings
) -> None:
    imported(plain(("2026-10-30", A100, 1)))
    page = text_of(finn, "/costs/exports/?tab=months")
    assert 'class="state state-partial" href="/costs/bill/?month=2026-10"' in page
    assert re.search(r"Bill differs by −\d+ %", page)
    # In an open portal all see the months, but no invoices.
    settings.VISIBILITY = "open"
    dan = signed_in(priced.portal.dan)
    assert "Bill differs" not in text_of(dan, "/costs/exports/?tab=months")
    assert dan.get(PAGE).status_code == 404
    assert 'href="/costs/bill/' not in text_of(dan, "/costs/prices/")
