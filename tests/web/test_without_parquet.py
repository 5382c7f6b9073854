"""A portal without pyarrow: it offers no Parquet, and says how to get it where it is asked for."""

import io
import sys
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from apps.costs.adapters.bill_files import open_bill
from apps.costs.domain.bills.charges import BillRefused
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope, ExportState
from apps.costs.domain.files import FileFormat, FormatNotInstalled, offered_formats
from apps.costs.models import Export
from apps.costs.services import close_period
from apps.costs.services.exports import ask_export, keep_closed_files, write_export
from tests.costs.portal import Priced
from tests.web.pages import text_of

pytestmark = pytest.mark.django_db

MONTH = date(2026, 10, 1)
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
WITHOUT = [format_ for format_ in FileFormat if format_.suffix != "parquet"]
HOW = "requirements-parquet.txt"


@pytest.fixture
def priced(_priced: Priced, settings: Settings, tmp_path: Path) -> Priced:
    settings.EXPORTS_DIR = str(tmp_path / "exports")
    return deepcopy(_priced)


@pytest.fixture
def no_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `import pyarrow` fail as where it is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "apps.costs.adapters.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)


def ask(priced: Priced, format_: FileFormat) -> int:
    scope = ExportScope(Basis.ALLOCATED, Policy.PLATFORM, month=MONTH)
    return ask_export(priced.portal.finn, scope, format_, now=NOW)


def test_with_pyarrow_every_format_is_offered() -> None:
    assert list(offered_formats()) == list(FileFormat)


@pytest.mark.usefixtures("no_arrow")
def test_pages_offer_what_can_be_written_and_say_how_to_get_the_rest(
    priced: Priced, signed_in: Callable[[User], Client]
) -> None:
    client = signed_in(priced.portal.finn)
    for path in ("/", "/costs/?tab=files", "/costs/exports/"):
        page = text_of(client, path)
        assert "XLSX" in page
        assert "Parquet" not in page, path
    answer: Any = client.get("/costs/exports/file?period=2026-10&format=parquet")
    assert (answer.status_code, HOW in answer.content.decode()) == (400, True)
    form = {"period": "2026-10", "format": "focus-parquet"}
    refused = client.post("/costs/exports/create", form)
    assert (refused.status_code, HOW in refused.content.decode()) == (400, True)
    assert not Export.objects.exists()


@pytest.mark.usefixtures("no_arrow")
@pytest.mark.parametrize(
    "path", ["costs?start=2026-10-01&end=2026-10-02", "costs/focus?period=2026-10"]
)
def test_the_api_says_how_to_get_it(
    priced: Priced, path: str, signed_in: Callable[[User], Client]
) -> None:
    answer: Any = signed_in(priced.portal.finn).get(f"/api/v1/{path}&format=parquet")
    assert answer.status_code == 400
    assert HOW in answer.content.decode()


def test_an_export_asked_for_before_fails_with_the_reason(
    priced: Priced, request: pytest.FixtureRequest
) -> None:
    pk = ask(priced, FileFormat.PARQUET)
    request.getfixturevalue("no_arrow")
    assert write_export(pk, clock=lambda: NOW) == 0
    row = Export.objects.get(pk=pk)
    assert row.state == ExportState.FAILED
    assert HOW in row.error
    with pytest.raises(FormatNotInstalled):
        ask(priced, FileFormat.PARQUET)


@pytest.mark.usefixtures("no_arrow")
def test_a_month_closes_with_the_files_that_can_be_written(priced: Priced) -> None:
    closed = close_period(MONTH, by="finn", now=NOW, forced="what was before the portal")
    assert sorted(closed.files) == sorted(WITHOUT)


def test_files_of_a_month_that_was_closed_with_it_are_left_alone(
    priced: Priced, request: pytest.FixtureRequest
) -> None:
    close_period(MONTH, by="finn", now=NOW, forced="what was before the portal")
    request.getfixturevalue("no_arrow")
    assert keep_closed_files(now=NOW) == len(WITHOUT)


@pytest.mark.usefixtures("no_arrow")
def test_command_and_bill_say_how_to_get_it(priced: Priced, tmp_path: Path) -> None:
    target = str(tmp_path / "f")
    with pytest.raises(CommandError, match=HOW):
        call_command("export_costs", period="2026-10", format="parquet", output=target)
    with pytest.raises(BillRefused, match=HOW):
        open_bill(io.BytesIO(b"PAR1" + b"\x00" * 8))
