"""Files written in the background: asked for, written, lost and taken anew, handed out, deleted."""

import csv
import fcntl
import hashlib
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from pytest_django import DjangoAssertNumQueries, Settings

from apps.accounts.domain.structs import replace
from apps.accounts.models import Membership
from apps.accounts.permissions import EVERYTHING, NotAllowed, Visibility
from apps.costs.domain import files
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope, ExportState, counted, covers, progress
from apps.costs.domain.files import FileFormat, TooManyRows
from apps.costs.models import Export, WorkloadCostDay
from apps.costs.selectors import cost_files
from apps.costs.selectors.cost_files import month_rows_expected, period_file
from apps.costs.selectors.exported_files import (
    Download,
    ExportGone,
    export_download,
    export_rows,
    exports_storage,
)
from apps.costs.services import close_period
from apps.costs.services.exports import (
    LEASE,
    MOST_OPEN,
    ExportRefused,
    ask_export,
    sweep_exports,
    tend_exports,
    write_export,
)
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from tests.costs.portal import Priced, make_priced, rows, total
from tests.shared_rows import copy_of, shared

OCTOBER = date(2026, 10, 1)
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
MONTH = ExportScope(basis=Basis.ALLOCATED, policy=Policy.PLATFORM, month=OCTOBER)
OWN = ExportScope(
    basis=Basis.ALLOCATED,
    policy=Policy.PLATFORM,
    groups=(Grouping.TIER,),
    interval=TimeStep.TOTAL,
    filters=Filters(tier=("gold",)),
)
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def _folder(settings: Settings, tmp_path: Path) -> None:
    settings.EXPORTS_DIR = str(tmp_path / "exports")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what workers are told of; nothing leaves for a broker."""

    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        current_app, "send_task", lambda name, kwargs: found.append({"name": name, **kwargs})
    )
    return found


_priced = shared(make_priced)
priced = copy_of("_priced")


def clock_at(*instants: datetime) -> Callable[[], datetime]:
    """Return a clock that goes through these instants and stays at the last."""
    left = list(instants)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def ask(priced: Priced, asked: ExportScope = MONTH, format_: FileFormat = FileFormat.CSV) -> int:
    return ask_export(priced.portal.finn, asked, format_, now=NOW)


def exports_folder() -> Path:
    return Path(settings.EXPORTS_DIR)


def read(found: Download) -> bytes:
    with found.binary as binary:
        return binary.read()


def fetched(pk: int, priced: Priced) -> Download:
    return export_download(pk, priced.portal.finn)


# ---------------------------------------------------------------- asked for and written


def test_a_worker_is_told_once_the_row_is_there(
    priced: Priced, told: list[dict[str, Any]], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        pk = ask(priced)
    assert told == [{"name": "costs.write_export", "export_id": pk}]
    (row,) = export_rows(priced.portal.finn)
    assert (row.state, row.scope, row.progress) == (ExportState.QUEUED, MONTH, None)


@pytest.mark.parametrize("format_", list(FileFormat))
def test_what_was_asked_for_is_written_beside_its_hash(priced: Priced, format_: FileFormat) -> None:
    pk = ask(priced, format_=format_)
    assert write_export(pk, clock=clock_at(NOW)) == 1
    found = fetched(pk, priced)
    content = read(found)
    (row,) = export_rows(priced.portal.finn)
    assert hashlib.sha256(content).hexdigest() == row.sha256 == found.sha256
    assert row.size == len(content)
    assert row.state is ExportState.DONE
    assert found.name.startswith(f"gpuportal_{format_.subject}-2026-10_")
    assert found.name.endswith(f".{format_.suffix}")


def test_a_file_has_the_rows_of_the_page_and_counts_them(priced: Priced) -> None:
    pk = ask(priced)
    write_export(pk, clock=clock_at(NOW))
    text = read(fetched(pk, priced)).decode()
    lines = list(csv.DictReader(StringIO(text, newline="")))
    assert sum(int(line["cost"].replace(".", "")) for line in lines) == total(rows(priced.window))
    (row,) = export_rows(priced.portal.finn)
    assert row.rows_written == len(lines)
    assert row.rows_expected == len(lines)


def test_days_are_written_as_a_month_is(priced: Priced) -> None:
    days = ExportScope(basis=Basis.USED, policy=Policy.USE, window=priced.window, bom=True)
    pk = ask(priced, days)
    write_export(pk, clock=clock_at(NOW))
    content = read(fetched(pk, priced))
    assert content.startswith(b"\xef\xbb\xbfperiod,")
    lines = list(csv.DictReader(StringIO(content.decode("utf-8-sig"), newline="")))
    assert sum(int(line["cost"].replace(".", "")) for line in lines) == total(rows(priced.window))
    assert {line["unallocated_policy"] for line in lines} == {"use"}


def test_a_closed_month_is_asked_for_on_its_own_terms(priced: Priced) -> None:
    close_period(OCTOBER, by="finn", now=NOW, policy=Policy.USE, forced="the first days")
    ask(priced, replace(MONTH, policy=Policy.ENTITLEMENT))
    (row,) = export_rows(priced.portal.finn)
    assert row.scope.policy is Policy.USE


def test_the_same_is_not_written_twice_at_a_time_and_not_too_much_at_once(priced: Priced) -> None:
    assert ask(priced) == ask(priced)
    for day in range(1, MOST_OPEN):
        ask(priced, replace(MONTH, month=date(2026, day, 1)))
    with pytest.raises(ExportRefused, match="wait until one of them is done"):
        ask(priced, replace(MONTH, policy=Policy.USE))
    other = ask_export(priced.portal.cleo, MONTH, FileFormat.CSV, now=NOW)
    assert Export.objects.get(pk=other).asked_by == priced.portal.cleo


def test_a_workbook_that_is_sure_to_be_too_long_is_refused_before_anybody_waits(
    priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_XLSX_ROWS", 3)
    with pytest.raises(TooManyRows, match="CSV or Parquet"):
        ask(priced, format_=FileFormat.XLSX)
    assert not Export.objects.exists()


def test_one_that_turns_out_too_long_fails_with_the_formats_that_would_do(
    priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = ask(priced, format_=FileFormat.XLSX)
    monkeypatch.setattr(files, "MOST_XLSX_ROWS", 3)
    assert write_export(pk, clock=clock_at(NOW)) == 0
    (row,) = export_rows(priced.portal.finn)
    assert row.state is ExportState.FAILED
    assert "CSV or Parquet" in row.error
    assert [path for path in exports_folder().glob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_written_is_told(
    priced: Priced, settings: Settings, tmp_path: Path
) -> None:
    pk = ask(priced)
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    settings.EXPORTS_DIR = str(tmp_path / "taken")
    assert write_export(pk, clock=clock_at(NOW)) == 0
    (row,) = export_rows(priced.portal.finn)
    assert "cannot be written on the server" in row.error


# ---------------------------------------------------------------- writers that are lost


def test_two_workers_write_one_file(priced: Priced) -> None:
    pk = ask(priced)
    Export.objects.filter(pk=pk).update(
        state=ExportState.RUNNING.value, lease="somebody", lease_until=NOW + LEASE
    )
    assert write_export(pk, clock=clock_at(NOW)) == 0
    assert Export.objects.get(pk=pk).lease == "somebody"


def test_a_file_whose_writer_was_killed_is_begun_anew(
    priced: Priced, told: list[dict[str, Any]]
) -> None:
    pk = ask(priced)
    Export.objects.filter(pk=pk).update(
        state=ExportState.RUNNING.value, lease="killed", lease_until=NOW, attempts=1
    )
    assert tend_exports(now=NOW - SECOND) == 0
    assert tend_exports(now=NOW) == 1
    assert told == [{"name": "costs.write_export", "export_id": pk}]
    assert write_export(pk, clock=clock_at(NOW)) == 1
    assert read(fetched(pk, priced))


def test_a_message_that_was_lost_is_sent_again(priced: Priced, told: list[dict[str, Any]]) -> None:
    ask(priced)
    assert tend_exports(now=NOW + timedelta(seconds=59)) == 0
    assert tend_exports(now=NOW + timedelta(minutes=1)) == 1


def test_a_file_that_kills_its_writers_is_given_up(priced: Priced) -> None:
    pk = ask(priced)
    Export.objects.filter(pk=pk).update(attempts=3)
    assert write_export(pk, clock=clock_at(NOW)) == 0
    (row,) = export_rows(priced.portal.finn)
    assert row.state is ExportState.FAILED
    assert "its writer was lost each time" in row.error


def test_a_writer_that_lost_its_lease_leaves_nothing(priced: Priced) -> None:
    pk = ask(priced)

    def clock() -> datetime:
        # Read when it is taken, and when something is noted of it: then somebody else has it.
        Export.objects.filter(pk=pk).exclude(lease="").update(lease="another")
        return NOW

    assert write_export(pk, clock=clock) == 0
    assert Export.objects.get(pk=pk).lease == "another"
    assert not list(exports_folder().glob("*"))


# ---------------------------------------------------------------- who gets it


def test_a_file_is_for_who_asked_for_it(priced: Priced) -> None:
    pk = ask(priced)
    write_export(pk, clock=clock_at(NOW))
    with pytest.raises(ExportGone, match="no such file of yours"):
        export_download(pk, priced.portal.cleo)
    assert export_rows(priced.portal.cleo) == []


def test_who_left_a_team_does_not_get_its_file_any_more(priced: Priced) -> None:
    ada = priced.portal.ada
    pk = ask_export(ada, MONTH, FileFormat.CSV, now=NOW)
    write_export(pk, clock=clock_at(NOW))
    text = read(export_download(pk, ada)).decode()
    assert "vision" in text
    assert "speech" not in text
    Membership.objects.filter(username=ada.username).delete()
    with pytest.raises(NotAllowed, match="What you may see has changed"):
        export_download(pk, ada)


def test_who_left_a_team_gets_none_written_either(priced: Priced) -> None:
    ada = priced.portal.ada
    pk = ask_export(ada, MONTH, FileFormat.CSV, now=NOW)
    Membership.objects.filter(username=ada.username).delete()
    assert write_export(pk, clock=clock_at(NOW)) == 0
    (row,) = export_rows(ada)
    assert "What you may see has changed" in row.error


def test_a_file_holds_what_was_seen_when_it_was_asked_for(priced: Priced) -> None:
    ada = priced.portal.ada
    pk = ask_export(ada, MONTH, FileFormat.CSV, now=NOW)
    Membership.objects.create(team=priced.portal.speech, username=ada.username)
    write_export(pk, clock=clock_at(NOW))
    assert "speech" not in read(export_download(pk, ada)).decode()


@pytest.mark.parametrize(
    ("now", "frozen", "expected"),
    [
        pytest.param((True, []), (True, []), True, id="everything, still"),
        pytest.param((False, [1, 2]), (True, []), False, id="everything, not any more"),
        pytest.param((False, [1, 2]), (False, [1]), True, id="more teams than then"),
        pytest.param((False, [2]), (False, [1, 2]), False, id="a team less"),
        pytest.param((True, []), (False, [1]), True, id="everything now"),
    ],
)
def test_who_sees_as_much_as_then_may_have_it(
    now: tuple[bool, list[int]], frozen: tuple[bool, list[int]], expected: bool
) -> None:
    assert covers(now, frozen) is expected


# ---------------------------------------------------------------- deleted


def test_files_are_deleted_after_some_days(priced: Priced, settings: Settings) -> None:
    settings.EXPORT_DAYS = 2
    pk = ask(priced)
    write_export(pk, clock=clock_at(NOW))
    (path,) = exports_folder().glob("*")
    assert sweep_exports(now=NOW + timedelta(days=2) - SECOND) == 0
    assert sweep_exports(now=NOW + timedelta(days=2)) == 1
    assert not path.exists()
    with pytest.raises(ExportGone, match="ask for it anew"):
        fetched(pk, priced)
    (row,) = export_rows(priced.portal.finn)
    assert row.state is ExportState.EXPIRED
    sweep_exports(now=NOW + timedelta(days=31))
    assert not Export.objects.exists()


def test_what_a_killed_writer_left_is_swept_and_what_is_fresh_is_not(priced: Priced) -> None:
    pk = ask(priced)
    write_export(pk, clock=clock_at(NOW))
    stray, fresh = (exports_folder() / f".partial-{name}" for name in ("old", "new"))
    rowless = exports_folder() / f"99-{'a' * 32}.csv"
    # A folder or bucket may hold what others put there.
    foreign = exports_folder() / "2026-report.csv"
    kept = exports_folder() / "closed"
    kept.mkdir()
    for path in (stray, fresh, rowless, foreign):
        path.write_bytes(b"half")
        seconds = (NOW - timedelta(hours=1 if path == fresh else 48)).timestamp()
        os.utime(path, (seconds, seconds))
    assert sweep_exports(now=NOW) == 2
    assert not stray.exists()
    assert not rowless.exists()
    assert fresh.exists()
    assert foreign.exists()
    assert kept.is_dir()
    assert read(fetched(pk, priced))


def test_a_file_whose_writer_was_killed_is_written_by_another_at_once(
    priced: Priced, told: list[dict[str, Any]]
) -> None:
    pk = ask(priced)
    lease = "a" * 32
    Export.objects.update(state=ExportState.RUNNING, lease=lease, lease_until=NOW + LEASE)
    exports_storage()
    left = exports_folder() / f".partial-of-{pk}-{lease}-x1"
    with left.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        os.utime(left, (NOW.timestamp(), NOW.timestamp()))
        assert tend_exports(now=NOW + timedelta(minutes=2)) == 0, "its writer lives"
    assert tend_exports(now=NOW + timedelta(minutes=1)) == 0, "it may have no lock yet"
    assert left.exists()
    assert tend_exports(now=NOW + timedelta(minutes=2)) == 1
    assert told == [{"name": "costs.write_export", "export_id": pk}]
    assert not left.exists()
    assert write_export(pk, clock=clock_at(NOW + timedelta(minutes=2))) == 1


def test_a_file_that_is_not_stored_any_more_is_told(priced: Priced) -> None:
    pk = ask(priced)
    write_export(pk, clock=clock_at(NOW))
    (path,) = exports_folder().glob("*")
    path.unlink()
    with pytest.raises(ExportGone, match="not stored any more"):
        fetched(pk, priced)


# ---------------------------------------------------------------- how far it is


def test_rows_are_counted_as_they_go() -> None:
    told: list[int] = []
    seconds = iter(range(100))
    found = list(
        counted(
            ([n] for n in range(10)),
            told.append,
            clock=lambda: float(next(seconds)),
            every_seconds=2,
            look_after_rows=2,
        )
    )
    assert len(found) == 10
    assert told == [4, 8, 10]


@pytest.mark.parametrize(
    ("written", "expected", "said"),
    [(0, None, None), (5, 0, None), (5, 10, 0.5), (12, 10, 0.99)],
    ids=["nobody knows", "nothing expected", "half", "more than was expected"],
)
def test_nothing_is_said_to_be_whole_before_it_is(
    written: int, expected: int | None, said: float | None
) -> None:
    assert progress(written, expected) == said


def test_what_was_asked_comes_back_from_the_row(priced: Priced) -> None:
    own = replace(OWN, window=priced.window)
    for asked in (MONTH, ExportScope(Basis.USED, Policy.USE, window=priced.window, bom=True), own):
        assert ExportScope.of(asked.record()) == asked


def test_what_was_asked_before_files_had_groups_is_still_understood() -> None:
    record = MONTH.record()
    for name in ("groups", "interval", "filters"):
        del record[name]
    assert ExportScope.of(record) == MONTH


def test_a_file_has_the_groups_periods_and_filters_that_were_asked_for(priced: Priced) -> None:
    pk = ask(priced, replace(OWN, window=priced.window))
    write_export(pk)
    lines = read(fetched(pk, priced)).decode().splitlines()
    table = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert set(table[0]) >= {"tier", "cause", "cost"}
    assert not {"team", "workload"} & set(table[0])
    assert {row["tier"] for row in table} == {"gold"}
    assert {row["period"] for row in table} == {""}


def test_the_list_is_one_query(
    priced: Priced, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for policy in Policy:
        ask(priced, replace(MONTH, policy=policy))
    with django_assert_num_queries(1):
        assert len(export_rows(priced.portal.finn)) == 3


# ---------------------------------------------------------------- how long it gets


@pytest.mark.parametrize("everything", [True, False], ids=["finance", "a team"])
def test_as_many_rows_are_expected_as_there_are(priced: Priced, everything: bool) -> None:
    seen = (
        EVERYTHING
        if everything
        else Visibility(everything=False, team_ids=frozenset({priced.portal.speech.pk}))
    )
    file = period_file(OCTOBER, FileFormat.CSV, visibility=seen)
    assert month_rows_expected(OCTOBER, visibility=seen) == len(list(file.rows))


def test_a_workbook_counts_what_its_reader_sees_and_nothing_else(
    priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_speech = frozenset({priced.portal.speech.pk})
    own = WorkloadCostDay.objects.filter(team_id__in=of_speech).count()
    assert own < WorkloadCostDay.objects.count()
    monkeypatch.setattr(files, "MOST_XLSX_ROWS", own)
    seen = Visibility(everything=False, team_ids=of_speech)
    period_file(OCTOBER, FileFormat.XLSX, visibility=seen)
    with pytest.raises(TooManyRows):
        period_file(OCTOBER, FileFormat.XLSX, visibility=EVERYTHING)


def test_a_file_that_holds_few_names_has_the_right_ones(
    priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = list(period_file(OCTOBER, FileFormat.CSV, visibility=EVERYTHING).rows)
    monkeypatch.setattr(cost_files, "_MOST_HELD", 1)
    monkeypatch.setattr(cost_files, "_AT_A_TIME", 1)
    assert list(period_file(OCTOBER, FileFormat.CSV, visibility=EVERYTHING).rows) == usual


def test_a_months_file_needs_no_more_queries_for_more_days_and_rows(
    priced: Priced, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(13):
        file = period_file(OCTOBER, FileFormat.CSV, visibility=EVERYTHING)
    with django_assert_max_num_queries(9):
        assert len(list(file.rows)) > 30
