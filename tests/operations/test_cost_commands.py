"""`export_costs`, `close_period` and `reopen_period`: what they write, say and refuse."""

import csv
import hashlib
import io
import sys
from datetime import date, timedelta
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from apps.costs.domain import files
from apps.costs.domain.files import FileFormat
from apps.costs.models import ClosedPeriod, Price
from apps.costs.selectors import closed_period, month_window
from apps.costs.services import price_hours
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.usage.models import CollectionWindow
from tests.costs.portal import NOW, Priced, closed_path, make_priced, rows, total
from tests.factories import H100
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

OCTOBER = "2026-10"


@pytest.fixture(autouse=True)
def _folder(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings.EXPORTS_DIR = str(tmp_path_factory.mktemp("exports"))


_priced = shared(lambda: make_priced(2))
priced = copy_of("_priced")


def export(path: Path, **options: Any) -> str:
    out = StringIO()
    given = {"period": OCTOBER, "format": "csv", "output": str(path), **options}
    call_command("export_costs", stdout=out, **given)
    return out.getvalue()


def close(*arguments: str) -> str:
    out = StringIO()
    call_command("close_period", OCTOBER, *arguments, stdout=out)
    return out.getvalue()


def lines(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def cents(cost: int) -> str:
    return f"{cost / 10**8:.8f}"


def test_a_file_is_the_page_of_its_month(priced: Priced, tmp_path: Path) -> None:
    path = tmp_path / "october.csv"
    said = export(path)
    found = lines(path)
    assert sum(int(line["cost"].replace(".", "")) for line in found) == total(rows(priced.window))
    page = rows(
        priced.window,
        interval=TimeStep.DAY,
        group_by=(
            *(Grouping.CLUSTER, Grouping.TEAM, Grouping.NAMESPACE, Grouping.WORKLOAD),
            *(Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE),
        ),
        # Files have what was drawn too, where no tariff bills it.
        unbilled_energy=True,
    )
    assert [(line["workload"], line["cause"], line["cost"]) for line in found] == [
        (row.groups["workload"], row.cause.value, cents(row.cost or 0)) for row in page
    ]
    assert {line["cost_center"] for line in found if line["team"] == "vision"} == {"CC-100"}
    assert {line["time_zone"] for line in found} == {"Europe/Berlin"}
    assert f"SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}" in said
    assert "The month is not closed" in said
    assert "paid by the platform" in said


@pytest.mark.parametrize("policy", ["entitlement", "use"])
def test_the_policy_is_printed_and_in_the_file(priced: Priced, tmp_path: Path, policy: str) -> None:
    path = tmp_path / "f.csv"
    said = export(path, policy=policy)
    assert f"apportioned by {policy}" in said
    assert {line["unallocated_policy"] for line in lines(path)} == {policy}
    assert total(rows(priced.window)) == sum(
        int(line["cost"].replace(".", "")) for line in lines(path)
    )


def test_what_is_unpriced_is_said_and_has_no_amount(priced: Priced, tmp_path: Path) -> None:
    Price.objects.filter(gpu_model=H100).delete()
    price_hours(now=NOW)
    path = tmp_path / "f.csv"
    assert "384.00 GPU-hours are unpriced" in export(path)
    unpriced = [line for line in lines(path) if line["unpriced"] == "true"]
    assert {(line["cost"], line["currency"]) for line in unpriced} == {("", "")}


def test_the_files_of_a_closed_month_stay_what_they_were(priced: Priced, tmp_path: Path) -> None:
    told = close("--policy", "entitlement", "--by", "finn")
    closed = closed_period(date(2026, 10, 1))
    assert closed is not None
    Price.objects.update(per_gpu_hour=9)
    price_hours(now=NOW)
    for format_ in FileFormat:
        assert f"{format_.value}: {closed.files[format_.value]}" in told
        said = export(tmp_path / "f", format=format_.value, policy="use")
        assert "this is as it was closed" in said
        assert "apportioned by entitlement" in said
        written = hashlib.sha256((tmp_path / "f").read_bytes()).hexdigest()
        assert written == closed.files[format_.value]


def test_hours_that_are_not_collected_are_told_beside_the_file(
    priced: Priced, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two days of the month are collected: October has 745 hours in Berlin."""
    path = tmp_path / "focus.csv"
    export(path, format="focus-csv")
    warnings = capfd.readouterr().err
    for cluster in priced.portal.clusters:
        there = CollectionWindow.objects.filter(cluster=cluster).count()
        missing = f"{745 - there} of 745 hours of {cluster.name} are not collected"
        assert f"Warning: {missing}. The file has no costs of them." in warnings
    assert "Warning" not in path.read_text()
    CollectionWindow.objects.all().delete()
    export(path, format="focus-csv", output="-")
    assert "745 of 745 hours of west are not collected" in capfd.readouterr().err


def test_a_month_that_is_collected_to_now_has_no_warning(
    priced: Priced, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start = month_window(date(2026, 10, 1), priced.portal.zone).start
    hours = [start + timedelta(hours=number) for number in range(745)]
    CollectionWindow.objects.all().delete()
    CollectionWindow.objects.bulk_create(
        CollectionWindow(cluster=cluster, hour=hour, state="complete", collected_at=NOW)
        for cluster in priced.portal.clusters
        for hour in hours
    )
    export(tmp_path / "focus.csv", format="focus-csv")
    assert "Warning" not in capfd.readouterr().err


def test_a_workbook_has_its_notes(priced: Priced, tmp_path: Path) -> None:
    path = tmp_path / "f.xlsx"
    export(path, format="xlsx")
    notes = dict(openpyxl.load_workbook(io.BytesIO(path.read_bytes()))["notes"].values)
    assert notes["window_start"] == "2026-09-30T22:00:00Z"
    assert notes["unallocated_policy"] == "platform"


def test_a_workbook_that_would_be_too_long_is_refused_and_nothing_is_left(
    priced: Priced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_XLSX_ROWS", 3)
    with pytest.raises(CommandError, match="Ask for CSV or Parquet"):
        export(tmp_path / "f.xlsx", format="xlsx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_", ["csv", "xlsx"])
def test_a_dash_writes_to_standard_output(
    priced: Priced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    octets = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(octets))
    call_command("export_costs", period=OCTOBER, format=format_, output="-")
    written = octets.getvalue()
    monkeypatch.undo()
    export(tmp_path / "f", format=format_)
    assert written == (tmp_path / "f").read_bytes()


def test_standard_output_begins_with_the_mark_for_excel_too(
    priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    octets = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(octets))
    call_command("export_costs", period=OCTOBER, format="csv", output="-", bom=True)
    assert octets.getvalue().startswith(b"\xef\xbb\xbfperiod,")
    monkeypatch.undo()


@pytest.mark.parametrize("format_", ["xlsx", "parquet", "focus-parquet"])
def test_the_mark_for_excel_is_refused_where_it_means_nothing(
    priced: Priced, tmp_path: Path, format_: str
) -> None:
    with pytest.raises(CommandError, match="--bom is for CSV"):
        export(tmp_path / "f", format=format_, bom=True)


def test_closing_keeps_the_files_and_exports_hand_out_what_is_kept(
    priced: Priced, tmp_path: Path
) -> None:
    close()
    period = ClosedPeriod.objects.get()
    for name, sha in period.files.items():
        assert closed_path(sha, FileFormat(name)).is_file()
    # As of another release of the library that writes them: nothing made now has its hash.
    sha = hashlib.sha256(b"kept").hexdigest()
    closed_path(sha, FileFormat.PARQUET).write_bytes(b"kept")
    period.files["parquet"] = sha
    period.save()
    said = export(tmp_path / "f.parquet", format="parquet")
    assert (tmp_path / "f.parquet").read_bytes() == b"kept"
    assert "this is as it was closed" in said


def test_a_folder_that_is_not_there_is_told(priced: Priced, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        export(tmp_path / "nowhere" / "f.csv")


@pytest.mark.parametrize("period", ["october", "2026-13", "2026", "2026-10-01"])
def test_what_is_no_month_is_refused(period: str) -> None:
    with pytest.raises(CommandError, match="is not a month such as 2026-10"):
        call_command("close_period", period)


def test_a_month_with_gaps_is_closed_with_a_reason(priced: Priced) -> None:
    Price.objects.filter(gpu_model=H100).delete()
    price_hours(now=NOW)
    with pytest.raises(CommandError, match=r"no price for 384\.00 GPU-hours"):
        close()
    assert "2026-10 is closed" in close("--force", "H100 is a gift")
    assert ClosedPeriod.objects.get().forced == "H100 is a gift"


def reopen(reason: str, by: str) -> str:
    out = StringIO()
    call_command("reopen_period", period=OCTOBER, reason=reason, by=by, stdout=out)
    return out.getvalue()


def test_a_closed_month_is_opened_again_for_a_reason(priced: Priced) -> None:
    close()
    assert "2026-10 is open again" in reopen("a wrong price", "cleo")
    assert closed_period(date(2026, 10, 1)) is None
    assert ClosedPeriod.objects.get().reopen_reason == "a wrong price"
    assert price_hours(now=NOW) == 4 * 24


@pytest.mark.parametrize(
    ("reason", "by", "said"),
    [
        pytest.param("please", "finn", "Only an admin", id="finance may not"),
        pytest.param(" ", "cleo", "needs a reason", id="no reason"),
        pytest.param("please", "zoe", "No account has the name zoe", id="nobody"),
    ],
)
def test_a_closed_month_is_not_opened_just_so(
    priced: Priced, reason: str, by: str, said: str
) -> None:
    close()
    with pytest.raises(CommandError, match=said):
        reopen(reason, by)
    assert closed_period(date(2026, 10, 1)) is not None
