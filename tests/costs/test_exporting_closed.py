"""Files of closed months: kept as they were, and what becomes of them when they are lost."""

import hashlib
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pytest_django import DjangoAssertNumQueries, Settings

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.costs.domain.files import FileFormat
from apps.costs.models import ClosedFile, ClosedPeriod
from apps.costs.selectors.exported_files import closed_files
from apps.costs.services import close_period
from apps.costs.services.exports import closed_copy, copy_of_month, keep_closed_files
from tests.costs.portal import closed_path, make_priced
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

OCTOBER = date(2026, 10, 1)
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
LATER = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _folder(settings: Settings, tmp_path: Path) -> None:
    settings.EXPORTS_DIR = str(tmp_path / "exports")


def fill() -> ClosedPeriod:
    make_priced()
    return close_period(OCTOBER, by="finn", now=NOW, forced="what was before the portal")


_closed = shared(fill)
closed = copy_of("_closed")


def content_of(period: ClosedPeriod, format_: FileFormat) -> tuple[bytes, bool]:
    copy = closed_copy(period, format_, now=LATER)
    with copy.binary as binary:
        return binary.read(), copy.as_closed


def test_every_file_of_a_closed_month_is_kept_once(closed: ClosedPeriod) -> None:
    assert keep_closed_files(now=NOW) == len(FileFormat)
    assert keep_closed_files(now=LATER) == 0
    for name, sha in closed.files.items():
        path = closed_path(sha, FileFormat(name))
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha
    assert {row.kept_at for row in ClosedFile.objects.all()} == {NOW}


def test_what_is_kept_is_handed_out_byte_by_byte(closed: ClosedPeriod) -> None:
    keep_closed_files(now=NOW)
    # As when the library that writes Parquet is another one: it could not be made anew.
    sha = hashlib.sha256(b"as it was closed").hexdigest()
    closed_path(sha, FileFormat.PARQUET).write_bytes(b"as it was closed")
    closed.files["parquet"] = sha
    assert content_of(closed, FileFormat.PARQUET) == (b"as it was closed", True)


@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_a_file_that_is_lost_is_made_anew_and_agrees(closed: ClosedPeriod, how: str) -> None:
    keep_closed_files(now=NOW)
    path = closed_path(closed.files["csv"], FileFormat.CSV)
    content = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(content.replace(b"vision", b"speech"))
    assert content_of(closed, FileFormat.CSV) == (content, True)
    assert path.read_bytes() == content
    found = closed_files(visibility=EVERYTHING)[OCTOBER, "csv"]
    assert (found.stored, found.agrees, found.remade_at) == (True, True, LATER)


def test_one_that_comes_out_otherwise_says_so_and_is_not_kept(closed: ClosedPeriod) -> None:
    closed.files["csv"] = "0" * 64
    closed.save()
    content, as_closed = content_of(closed, FileFormat.CSV)
    assert content
    assert not as_closed
    found = closed_files(visibility=EVERYTHING)[OCTOBER, "csv"]
    assert (found.stored, found.agrees, found.sha256) == (False, False, "0" * 64)
    assert not closed_path("", FileFormat.CSV).parent.exists()
    # It would not come out right another time.
    assert keep_closed_files(now=LATER) == len(FileFormat) - 1


def test_what_is_kept_is_for_who_sees_everything(
    closed: ClosedPeriod, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    keep_closed_files(now=NOW)
    with django_assert_num_queries(1):
        found = closed_files(visibility=EVERYTHING)
    assert {name for _, name in found} == {format_.value for format_ in FileFormat}
    assert all(row.stored and row.agrees is None and row.size for row in found.values())
    assert closed_files(visibility=Visibility(everything=False)) == {}


def test_the_kept_file_of_a_month_is_for_who_sees_everything(closed: ClosedPeriod) -> None:
    keep_closed_files(now=LATER)
    asked = (closed.month, FileFormat.FOCUS_CSV)
    copy = copy_of_month(*asked, visibility=EVERYTHING, now=LATER)
    assert copy is not None
    with copy.binary as binary:
        assert hashlib.sha256(binary.read()).hexdigest() == closed.files["focus-csv"]
    own = Visibility(everything=False, team_ids=frozenset({1}))
    assert copy_of_month(*asked, visibility=own, now=LATER) is None
    november = closed.month.replace(month=11)
    assert copy_of_month(november, asked[1], visibility=EVERYTHING, now=LATER) is None
