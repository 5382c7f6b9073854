"""Closing a month and writing an export that are killed at any moment: both end as undisturbed."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.conf import settings
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone
from msgspec import Struct
from pytest_django import DjangoDbBlocker

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope, ExportState
from apps.costs.domain.files import FileFormat
from apps.costs.models import Export
from apps.costs.selectors.exported_files import ExportGone, export_download
from apps.costs.services import CloseRefused, ask_export, close_period, keep_closed_files
from apps.costs.services.exports import LEASE, tend_exports, write_export
from tests.factories import make_user
from tests.faults.collecting import doors
from tests.faults.facts import Facts, facts
from tests.faults.kills import Killable, connected_to
from tests.faults.stages import derived, messages

pytestmark = [pytest.mark.django_db, pytest.mark.long]

OCTOBER = date(2026, 10, 1)
AFTERWARDS = datetime(2026, 11, 2, 12, tzinfo=UTC)
MONTH = ExportScope(basis=Basis.ALLOCATED, policy=Policy.PLATFORM, month=OCTOBER)
STATES = {
    ExportState.QUEUED: "pending",
    ExportState.RUNNING: "is being written",
    ExportState.DONE: "ready",
}
"""What the page says of a file."""


def files() -> dict[str, str]:
    """Return the hashes of the files in the folder of exports by their names."""
    folder = Path(settings.EXPORTS_DIR)
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }


# ---------------------------------------------------------------- closing a month


@contextmanager
def exports_folder(parent: Path) -> Iterator[None]:
    """Write exports to an empty folder."""
    with TemporaryDirectory(dir=parent) as folder, override_settings(EXPORTS_DIR=folder):
        yield


def close(_: None) -> None:
    """Do as who closes the month, and then as beat."""
    close_period(OCTOBER, by="finn", forced="two hours of it", now=AFTERWARDS)
    keep_closed_files(now=AFTERWARDS)


def close_again(_: None) -> None:
    """Repeat the command: what is closed already is refused."""
    with suppress(CloseRefused):
        close_period(OCTOBER, by="finn", forced="two hours of it", now=AFTERWARDS)
    keep_closed_files(now=AFTERWARDS)
    keep_closed_files(now=AFTERWARDS + timedelta(days=1))


def closed(_: None) -> Facts:
    found = {name: sha for name, sha in files().items() if ".partial-" not in name}
    return {**facts(), "files": sorted(found.items())}


# ---------------------------------------------------------------- writing an export


class Exporting(Struct):
    """A person whose file is asked for; its time is real, as that of files is."""

    asked_at: datetime
    now: datetime

    @property
    def row(self) -> Export:
        return Export.objects.get()

    @property
    def finn(self) -> User:
        return User.objects.get(username="finn")


@contextmanager
def exporting(parent: Path, asked_at: datetime) -> Iterator[Exporting]:
    with exports_folder(parent):
        yield Exporting(asked_at, timezone.now())


def export(world: Exporting) -> None:
    write_export(world.row.pk, clock=lambda: world.now)


def export_again(world: Exporting) -> None:
    """Let beat look after a while and once the lease is over, and workers do what it says."""
    began = world.now
    check_page(world)
    for later in (timedelta(minutes=2), LEASE + timedelta(seconds=1)):
        world.now = began + later
        with messages() as told:
            tend_exports(now=world.now)
        for message in told:
            write_export(message["export_id"], clock=lambda: world.now)
        check_page(world)
    assert world.row.state == ExportState.DONE, "the next worker had no need of another lease"
    # What a killed one stored, and did not note, is unknown: it goes after a day.
    tend_exports(now=began + timedelta(days=1, hours=1))
    assert set(files()) == {world.row.path}


def check_page(world: Exporting) -> None:
    """The page says how the file stands, and gives it only once all of it is there."""
    row = world.row
    client = Client()
    client.force_login(world.finn)
    page = client.get(reverse("web:export-list")).content.decode()
    assert f">{STATES[ExportState(row.state)]}</span>" in page
    assert ("Download" in page) == (row.state == ExportState.DONE)
    if row.state != ExportState.DONE:
        with pytest.raises(ExportGone, match="not written yet"):
            export_download(row.pk, world.finn)


def exported(world: Exporting) -> Facts:
    found = export_download(world.row.pk, world.finn)
    with found.binary as binary:
        sha256 = hashlib.sha256(binary.read()).hexdigest()
    assert sha256 == world.row.sha256
    return {"file": [(sha256, found.name, world.row.size, world.row.rows_written)]}


# ---------------------------------------------------------------- both


class Steps(Struct, frozen=True):
    close: Killable[None]
    export: Killable[Exporting]


@pytest.fixture(scope="module")
def steps(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Steps]:
    folder, asked_at = tmp_path_factory.mktemp("databases"), timezone.now()
    with django_db_blocker.unblock(), doors() as door, derived(door, folder) as base:
        with connected_to(base), messages():
            ask_export(make_user("finn", Role.FINANCE), MONTH, FileFormat.CSV, now=asked_at)
        yield Steps(
            Killable(
                *(door, folder, base, partial(exports_folder, folder)),
                act=close,
                go_on=close_again,
                look=closed,
            ),
            Killable(
                *(door, folder, base, partial(exporting, folder, asked_at)),
                act=export,
                go_on=export_again,
                look=exported,
            ),
        )


def test_a_close_that_is_killed_is_completed_by_who_closes_again(steps: Steps) -> None:
    steps.close.check(most=3)


def test_an_export_that_is_killed_is_written_by_the_next_worker(steps: Steps) -> None:
    steps.export.check(most=3)


@pytest.mark.exhaustive
def test_a_close_is_killed_at_many_statements(steps: Steps) -> None:
    steps.close.check(most=60, seed=2)


@pytest.mark.exhaustive
def test_an_export_is_killed_at_its_statements(steps: Steps) -> None:
    steps.export.check(most=80, seed=2)
