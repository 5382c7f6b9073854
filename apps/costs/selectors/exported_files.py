"""Files that were exported, and those of closed months: where they lie, and who may fetch them."""

from datetime import date, datetime
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.core.files.storage import Storage
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.models import User
from apps.accounts.permissions import NotAllowed, Visibility, visibility_of
from apps.costs.adapters.storage import (
    StorageAway,
    bucket_storage,
    folder_storage,
    is_there,
    opened,
)
from apps.costs.domain.exports import ExportScope, ExportState, covers, expires_at, progress
from apps.costs.domain.files import FileFormat
from apps.costs.models import ClosedFile, Export

MOST_SHOWN = 20


class ExportGone(LookupError):
    """There is no such file, or none any more; the text says which."""


class ExportRow(Struct, frozen=True):
    """A file that somebody asked for.

    `progress` is 0..1, None while the length is unknown; `size` in bytes and `sha256` are there
    once it is done. `expires_at` is when its file is deleted.
    """

    pk: int
    scope: ExportScope
    format: FileFormat
    state: ExportState
    rows_written: int
    rows_expected: int | None
    progress: float | None
    size: int | None
    sha256: str
    file_name: str
    error: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None


class Download(Struct, frozen=True):
    """A file that is there, and what it is called. Who opens `binary` closes it."""

    binary: BinaryIO
    name: str
    format: FileFormat
    sha256: str


def exports_storage() -> Storage:
    """Return where files that were asked for lie; those of closed months lie below `closed`."""
    if settings.EXPORTS_S3["bucket"]:
        return bucket_storage(**settings.EXPORTS_S3)
    chosen: str = settings.EXPORTS_DIR
    return folder_storage(Path(chosen) if chosen else Path(settings.VAR_DIR) / "exports")


def export_rows(user: User) -> list[ExportRow]:
    """Return the files that a person asked for, newest first. One query.

    They are the person's own, whatever anybody's visibility.
    """
    rows = Export.objects.filter(asked_by=user).order_by("-asked_at", "-pk")
    return [_export_row(row) for row in rows[:MOST_SHOWN]]


def _export_row(row: Export) -> ExportRow:
    state = ExportState(row.state)
    done = state is ExportState.DONE and row.ended_at is not None
    return row_from(
        ExportRow,
        row,
        scope=ExportScope.of(row.question),
        format=FileFormat(row.format),
        state=state,
        progress=progress(row.rows_written, row.rows_expected),
        expires_at=expires_at(row.ended_at, settings.EXPORT_DAYS)
        if done and row.ended_at
        else None,
    )


def export_download(pk: int, user: User) -> Download:
    """Return a file that `user` asked for. Two queries.

    What they may see is looked at again: who left a team cannot fetch its money any more.
    Raises ExportGone, StorageAway, and NotAllowed where the file holds more than they see now.
    """
    # A file of somebody else gets the same answer as none: numbers tell nothing.
    row = Export.objects.filter(pk=pk, asked_by=user).first()
    if row is None:
        raise ExportGone("There is no such file of yours.")
    # Before its state: who lost a team is not told either how far the file is.
    check_still_sees(row, visibility_of(user))
    if row.state == ExportState.EXPIRED:
        raise ExportGone(
            "This file was kept as long as files are, and is deleted: ask for it anew."
        )
    if row.state != ExportState.DONE:
        raise ExportGone("This file is not written yet.")
    binary = opened(exports_storage(), row.path)
    if binary is None:
        raise ExportGone("This file is not stored any more: ask for it anew.")
    return Download(binary, row.file_name, FileFormat(row.format), row.sha256)


def check_still_sees(row: Export, visibility: Visibility) -> None:
    """Raise NotAllowed where a file holds more than `visibility` lets see."""
    now = (visibility.everything, sorted(visibility.team_ids))
    if not covers(now, (row.everything, row.team_ids)):
        raise NotAllowed("What you may see has changed since you asked for this file.")


class ClosedFileRow(Struct, frozen=True):
    """A file of a closed month as it is kept.

    `stored`: its bytes are there; None while object storage does not say. `agrees` is None unless
    it was made anew since; then whether what came out has the hash of the closing.
    """

    month: date
    format: FileFormat
    sha256: str
    stored: bool | None
    size: int | None
    remade_at: datetime | None
    agrees: bool | None


def closed_name(sha256: str, format_: FileFormat) -> str:
    """Return the name of a closed month's file in the storage: its hash."""
    # By what is in it: two closings of one month never overwrite each other's files.
    return f"closed/{sha256}.{format_.suffix}"


def closed_files(*, visibility: Visibility) -> dict[tuple[date, str], ClosedFileRow]:
    """Return what is kept of closed months by month and format; for who sees everything.

    One query, and one look into the storage for each file.
    """
    if not visibility.everything:
        return {}
    rows = ClosedFile.objects.filter(period__reopened_at__isnull=True).select_related("period")
    found = {}
    is_away = False
    for row in rows.order_by("period__month", "format"):
        stored = None if is_away else _is_stored(row)
        # One time-out is enough for a page.
        is_away = stored is None
        found[row.period.month, row.format] = _closed_row(row, stored=stored)
    return found


def _is_stored(row: ClosedFile) -> bool | None:
    try:
        return is_there(exports_storage(), closed_name(row.sha256, FileFormat(row.format)))
    except StorageAway:
        return None


def _closed_row(row: ClosedFile, *, stored: bool | None) -> ClosedFileRow:
    format_ = FileFormat(row.format)
    return row_from(
        ClosedFileRow,
        row,
        month=row.period.month,
        format=format_,
        stored=stored,
        agrees=row.remade_sha256 == row.sha256 if row.remade_at else None,
    )
