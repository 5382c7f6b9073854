"""Disks that are full under exports and databases: told as such, and nothing half is left."""

import gc
import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from pytest_django import DjangoDbBlocker, Settings

from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope, ExportState
from apps.costs.domain.files import FileFormat
from apps.costs.selectors.exported_files import export_download, export_rows
from apps.costs.services.exports import ask_export, write_export
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow
from tests.costs.portal import Priced, make_priced
from tests.faults.collecting import HOURS, Collecting, installed
from tests.faults.disks import SmallDisk, small_disk
from tests.faults.facts import Facts, differences, facts
from tests.faults.pages import Pages
from tests.faults.proxy import Proxy
from tests.faults.stores import Fills, database, give_up_connection
from tests.servers import migrated_file, stopped_postgres
from tests.shared_rows import copy_of, shared

MONTH = ExportScope(basis=Basis.ALLOCATED, policy=Policy.PLATFORM, month=date(2026, 10, 1))
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)

FULL = "the disk of the database is full"

_priced = shared(make_priced)
priced = copy_of("_priced")


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    gc.freeze()  # garbage is looked for in what tests make from here on
    with small_disk(2) as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("blocks", [0, 1])
@pytest.mark.parametrize("format_", [FileFormat.CSV, FileFormat.XLSX, FileFormat.PARQUET])
def test_an_export_on_a_full_disk_says_so_and_leaves_nothing(
    priced: Priced,
    disk: SmallDisk,
    blocks: int,
    format_: FileFormat,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exports = disk.folder / "exports"
    settings.EXPORTS_DIR = str(exports)
    # The parts of a workbook are written there before they are joined.
    monkeypatch.setattr("tempfile.tempdir", str(disk.folder))
    user = priced.portal.finn

    def written() -> bool:
        return bool(write_export(ask_export(user, MONTH, format_, now=NOW), clock=lambda: NOW))

    disk.fill(but=blocks)
    assert not written()
    (row,) = export_rows(user)
    assert row.state is ExportState.FAILED
    assert row.error == "The file cannot be written on the server: No space left on device."
    assert list(exports.glob("*")) == []
    # What Python says of files that it forgets, pytest makes an error.
    gc.collect()
    assert [path.name for path in disk.folder.iterdir()] in (["ballast"], ["exports", "ballast"])
    disk.make_room()
    assert written()
    row = export_rows(user)[0]
    with export_download(row.pk, user).binary as binary:
        assert len(binary.read()) == row.size


def collected(portal: Collecting, fills: Fills) -> Facts:
    """Return the facts of a portal whose disk is full again and again."""
    pages = Pages()

    def while_full() -> None:
        assert pages.client.get("/").status_code == 200
        if CollectionWindow.objects.filter(error__contains=FULL).exists():
            assert FULL in pages.reasons()

    fills.meanwhile = while_full
    portal.watch()
    portal.around = fills
    portal.collect_all()
    portal.derive_all()
    return facts()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("first", "stride"), [(1, 15), (5, 40)])
def test_sqlite_on_a_full_disk_costs_no_fact(
    door: Proxy,
    quiet_file: Facts,
    first: int,
    stride: int,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    with (
        small_disk(16) as disk,
        database(f"sqlite:///{shutil.copy(migrated_file(), disk.folder)}", django_db_blocker),
        installed(door) as portal,
    ):
        fills = Fills(disk, first, stride)
        found = collected(portal, fills)
    assert len(fills.errors) > 2
    assert differences(quiet_file, found) == []


def test_an_hour_for_which_there_is_no_room_says_what_to_do_and_is_no_zero(
    door: Proxy, tmp_path: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> None:
    file = shutil.copy(migrated_file(), tmp_path)
    with database(f"sqlite:///{file}", django_db_blocker), installed(door) as portal:
        pages = Pages()
        portal.move_to(HOURS[-1].end)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA page_count")
            (pages_now,) = cursor.fetchone()
            # A few are left, so that it is not the first row that finds no room.
            cursor.execute(f"PRAGMA max_page_count = {pages_now + 4}")
            outcome = portal.collect(HOURS[1])
            assert outcome.state is CollectionState.FAILED
            assert FULL in pages.reasons()
            pages.before_any_hour()
            cursor.execute("PRAGMA max_page_count = 1000000")
        assert portal.collect(HOURS[1]).state is CollectionState.COMPLETE


@pytest.mark.exhaustive
@pytest.mark.parametrize(("first", "stride"), [(20, 200), (1, 25)])
def test_postgresql_on_a_full_disk_costs_no_fact_and_says_what_to_do(
    door: Proxy,
    first: int,
    stride: int,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(300))
        server = stack.enter_context(stopped_postgres(disk.folder))
        with database(server.new_database(), django_db_blocker), installed(door) as portal:
            quiet = portal.whole_run()
        fills = Fills(disk, first, stride)
        with database(server.new_database(), django_db_blocker), installed(door) as portal:
            found = collected(portal, fills)
    assert any(FULL in one and "make room on it" in one for one in fills.reasons)
    assert differences(quiet, found) == []


@pytest.mark.exhaustive
def test_postgresql_whose_write_ahead_log_has_no_room_is_away_and_costs_no_fact(
    door: Proxy,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ExitStack() as stack:
        stack.enter_context(caplog.at_level(logging.CRITICAL))
        disk = stack.enter_context(small_disk(300))
        server = stack.enter_context(stopped_postgres(wal=disk.folder))
        with database(server.new_database(), django_db_blocker), installed(door) as portal:
            quiet = portal.whole_run()
        with database(server.new_database(), django_db_blocker), installed(door) as portal:
            pages = Pages()
            portal.watch()
            disk.fill()
            with pytest.raises(OperationalError):
                _collect_until_there_is_no_room(portal)
            # It tries to recover, finds no room for that either, and ends.
            server.wait_for_end()
            give_up_connection()
            pages.while_away()
            give_up_connection()
            server.stop()
            disk.make_room()
            server.start()
            assert "No hour has been collected yet." not in pages.client.get("/").content.decode()
            portal.collect_all()
            portal.derive_all()
            found = facts()
    assert differences(quiet, found) == []


def _collect_until_there_is_no_room(portal: Collecting) -> None:
    """Collect hours again and again, each into a new file of the log."""
    portal.move_to(HOURS[-1].end + timedelta(minutes=10))
    for _ in range(40):
        for hour in HOURS:
            portal.collect(hour)
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_switch_wal()")
