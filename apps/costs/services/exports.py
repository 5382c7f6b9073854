"""Exports: cost files written in the background, and the files of closed months.

The row of an export is what is to be done; a message only says that there is something. Where a
writer was killed its lease ends, or runs out, and the next one begins the file anew. Files of
closed months lie under the hash of the closing, so one that was changed on disk is taken for
missing.
"""

import logging
import re
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import partial
from typing import BinaryIO, Final, NamedTuple

from celery import current_app
from django.conf import settings
from django.core.files.storage import Storage
from django.db import DatabaseError, transaction
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, NotAllowed, Visibility, visibility_of
from apps.accounts.services import leases
from apps.accounts.services.leases import LeaseLost
from apps.clusters.selectors import report
from apps.costs.adapters.formats import write
from apps.costs.adapters.storage import (
    Draft,
    StorageAway,
    Stored,
    abandoned,
    drafted,
    is_there,
    opened,
    removed,
    store,
    swept,
)
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import MOST_ATTEMPTS, ExportScope, ExportState, counted
from apps.costs.domain.files import CostFile, FileFormat, FileRefused, file_name
from apps.costs.models import ClosedFile, ClosedPeriod, Export
from apps.costs.selectors.cost_files import (
    cost_file,
    month_rows_expected,
    period_file,
    rows_expected,
)
from apps.costs.selectors.exported_files import (
    check_still_sees,
    closed_name,
    exports_storage,
)
from apps.costs.selectors.months import closed_period, days_query
from apps.costs.selectors.rows import CostQuery
from apps.usage.selectors import GroupingRefused

TASK: Final = "costs.write_export"
LEASE: Final = timedelta(minutes=5)
MOST_OPEN: Final = 5
"""So many files of one person may wait or be written at a time."""
_TELL_SECONDS: Final = 1.0
_RETAINED_ROWS: Final = timedelta(days=30)
_STRAY: Final = timedelta(days=1)
_NEW_DRAFT: Final = timedelta(minutes=1)
_FILE_NAME: Final = re.compile(r"\d+-[0-9a-f]{32}\.[a-z.]+")
"""What an export is called: its number, the lease of its writer, and its format."""
_MESSAGE_LASTS: Final = timedelta(minutes=1)
_OPEN: Final = (ExportState.QUEUED.value, ExportState.RUNNING.value)

logger = logging.getLogger(__name__)


class ExportRefused(ValueError):
    """A file cannot be asked for now; the text says why and what to do."""


def ask_export(user: User, asked: ExportScope, format_: FileFormat, *, now: datetime) -> int:
    """Note that somebody wants a file, and tell a worker; return its id. One transaction.

    What is being made for them already is not made twice. Raises ExportRefused, and FileRefused
    where a workbook is sure to be too long, or the format is not installed.
    """
    visibility = visibility_of(user)
    asked = _as_charged(asked)
    question = asked.record()
    # Opens it as the worker will: a refusal comes at once, not after a time in the queue.
    file_of(asked, format_, visibility)
    with transaction.atomic():
        # Locked: a double click would else pass the limit and write the file twice.
        mine = Export.objects.select_for_update().filter(asked_by=user, state__in=_OPEN)
        open_ones = list(mine.order_by("pk"))
        for row in open_ones:
            if row.format == format_.value and row.question == question:
                return row.pk
        if len(open_ones) >= MOST_OPEN:
            raise ExportRefused(
                f"{MOST_OPEN} files of yours are being written: wait until one of them is done."
            )
        made = Export.objects.create(
            asked_by=user,
            subject=asked.subject.value,
            format=format_.value,
            question=question,
            everything=visibility.everything,
            team_ids=sorted(visibility.team_ids),
            asked_at=now,
        )
        # After the commit, else a fast worker finds no row.
        transaction.on_commit(partial(_send_task, made.pk), robust=True)
    return made.pk


def _as_charged(asked: ExportScope) -> ExportScope:
    """Return what is asked on the terms that its file will have: a closed month keeps its own."""
    closed = closed_period(asked.month) if asked.month else None
    if closed is None:
        return asked
    return replace(asked, basis=Basis(closed.basis), policy=Policy(closed.policy))


def file_of(asked: ExportScope, format_: FileFormat, visibility: Visibility) -> CostFile:
    """Return the file that was asked for, to be written. Raises FileRefused, GroupingRefused."""
    if asked.month is not None:
        return period_file(
            asked.month,
            format_,
            visibility=visibility,
            basis=asked.basis,
            policy=asked.policy,
            filters=asked.filters,
        )
    question = _export_query(asked)
    if question is None:
        raise ExportRefused("A file is of a month or of some days.")
    return cost_file(question, format_, visibility=visibility)


def _export_query(asked: ExportScope) -> CostQuery | None:
    """Return what is asked of some days; None where it is no days that are asked of."""
    if asked.window is None:
        return None
    every = days_query(asked.window, asked.basis, asked.policy)
    if asked.groups is None:
        return replace(every, filters=asked.filters)
    return replace(every, filters=asked.filters, group_by=asked.groups, interval=asked.interval)


def write_export(pk: int, *, clock: Callable[[], datetime] = timezone.now) -> int:
    """Write a file that was asked for, unless somebody else does; return how many were written.

    What goes wrong for good is noted on it, in a sentence. Where the database is away the lease
    runs out and another writer takes it anew. Raises DatabaseError.
    """
    row = _take_lease(pk, clock())
    if row is None:
        return 0
    try:
        done = _write_file(row, clock)
    except LeaseLost:
        logger.info("export %s is written by somebody else, or not wanted any more", pk)
        return 0
    except (FileRefused, GroupingRefused, NotAllowed, ExportRefused) as refusal:
        _mark_failed(row, str(refusal), clock())
        return 0
    except OSError as error:
        logger.warning("export %s cannot be written: %s", pk, error.__cause__ or error)
        _mark_failed(row, f"The file cannot be written on the server: {error.strerror}.", clock())
        return 0
    # Nothing could be noted now: the lease runs out, and another writer begins anew.
    except DatabaseError:
        raise
    except Exception:
        logger.exception("export %s failed", pk)
        _mark_failed(row, "An error of the portal's; the log of the worker shows where.", clock())
        return 0
    return _mark_done(row, *done, at=clock())


def _take_lease(pk: int, now: datetime) -> Export | None:
    """Take the lease of a file without a writer; None where there is none."""
    row = leases.take(
        Export.objects.select_related("asked_by").filter(pk=pk, state__in=_OPEN),
        now,
        lease=leases.new_token(),
        lease_until=now + LEASE,
        state=ExportState.RUNNING.value,
        started_at=now,
        attempts=F("attempts") + 1,
        rows_written=0,
    )
    if row is None:
        return None
    row.refresh_from_db(fields=["attempts"])
    # A file that kills its worker (memory) would else be begun for ever.
    if row.attempts > MOST_ATTEMPTS:
        said = f"It was begun {MOST_ATTEMPTS} times and its writer was lost each time."
        _mark_failed(row, f"{said} Ask for less of it, or as CSV.", now)
        return None
    return row


def _write_file(row: Export, clock: Callable[[], datetime]) -> tuple[Stored, str]:
    asked, format_ = ExportScope.of(row.question), FileFormat(row.format)
    if not row.asked_by.is_active:
        raise ExportRefused("The account that asked for it is disabled.")
    # It may have been queued for hours: who left a team meanwhile gets no file of it.
    check_still_sees(row, visibility_of(row.asked_by))
    visibility = Visibility(everything=row.everything, team_ids=frozenset(row.team_ids))
    _renew_lease(row, clock(), rows_expected=_expected_rows(asked, visibility))
    file = file_of(asked, format_, visibility)

    def tell(count: int) -> None:
        _renew_lease(row, clock(), rows_written=count)

    rows = counted(file.rows, tell, clock=time.monotonic, every_seconds=_TELL_SECONDS)
    telling = replace(file, rows=rows)

    def put(out: BinaryIO) -> None:
        write(telling, format_, out, bom=asked.bom)

    # With the lease: a writer that lost it cannot overwrite the file of its successor.
    owner = f"{row.pk}-{row.lease}"
    name = f"{owner}.{format_.suffix}"
    with drafted(storage := exports_storage(), put, owner=owner) as draft:
        made = store(storage, draft, name)
    return made, file_name(file, name_of(asked, format_), format_)


def name_of(asked: ExportScope, format_: FileFormat) -> str:
    """Return the first part of a download's name: what it holds."""
    return f"{format_.subject}-{asked.month:%Y-%m}" if asked.month else format_.subject


def _expected_rows(asked: ExportScope, visibility: Visibility) -> int | None:
    if asked.month is not None:
        return month_rows_expected(asked.month, visibility=visibility, filters=asked.filters)
    question = _export_query(asked)
    if question is None:
        return None
    return rows_expected(question, visibility=visibility, zone=report().zone)


def _renew_lease(row: Export, now: datetime, **values: object) -> None:
    """Write to a row that is ours and renew the lease. Raises LeaseLost."""
    mine = Export.objects.filter(pk=row.pk, lease=row.lease, state=ExportState.RUNNING.value)
    leases.keep(mine, lease_until=now + LEASE, **values)


def _mark_done(row: Export, file: Stored, name: str, *, at: datetime) -> int:
    try:
        _renew_lease(
            row,
            at,
            state=ExportState.DONE.value,
            ended_at=at,
            path=file.name,
            size=file.size,
            sha256=file.sha256,
            file_name=name,
            error="",
        )
    except LeaseLost:
        # The successor writes under its own lease: nothing names this file any more.
        removed(exports_storage(), file.name)
        return 0
    logger.info("export %s: %s bytes in %s", row.pk, file.size, at - (row.started_at or at))
    return 1


def _mark_failed(row: Export, why: str, now: datetime) -> None:
    mine = Export.objects.filter(pk=row.pk, lease=row.lease, state=ExportState.RUNNING.value)
    mine.update(state=ExportState.FAILED.value, error=why, ended_at=now, lease_until=None)


def _send_task(pk: int) -> None:
    current_app.send_task(TASK, kwargs={"export_id": pk})


# ---------------------------------------------------------------- what is left to do, and to tidy


def tend_exports(*, now: datetime) -> int:
    """Enqueue files without a writer, and delete old ones; return how many were enqueued.

    To enqueue twice does no harm: the second worker finds the lease taken.
    """
    _end_leases_of_the_dead(now)
    lost = Q(state=ExportState.RUNNING.value, lease_until__lte=now)
    forgotten = Q(state=ExportState.QUEUED.value, asked_at__lte=now - _MESSAGE_LASTS)
    due = list(Export.objects.filter(lost | forgotten).order_by("pk").values_list("pk", flat=True))
    for pk in due:
        _send_task(pk)
    sweep_exports(now=now)
    return len(due)


def _end_leases_of_the_dead(now: datetime) -> None:
    """Delete what killed writers left of their files, and let others write these at once."""
    for owner in abandoned(exports_storage(), before=now - _NEW_DRAFT):
        number, _, lease = owner.partition("-")
        if number.isdecimal():
            running = Export.objects.filter(state=ExportState.RUNNING.value)
            running.filter(pk=int(number), lease=lease).update(lease_until=now)


def sweep_exports(*, now: datetime) -> int:
    """Delete expired files and unknown ones; return how many."""
    old = Export.objects.filter(
        state=ExportState.DONE.value, ended_at__lte=now - timedelta(days=settings.EXPORT_DAYS)
    )
    count = 0
    for row in old.order_by("pk"):
        # First the row: a file without one is found by the sweep, a row without a file is a lie.
        if old.filter(pk=row.pk).update(state=ExportState.EXPIRED.value):
            removed(exports_storage(), row.path)
            count += 1
    over = (ExportState.EXPIRED.value, ExportState.FAILED.value)
    Export.objects.filter(state__in=over, ended_at__lte=now - _RETAINED_ROWS).delete()
    known = set(Export.objects.filter(state=ExportState.DONE.value).values_list("path", flat=True))
    return count + swept(exports_storage(), _FILE_NAME, known, before=now - _STRAY)


class ClosedCopy(NamedTuple):
    """A file of a closed month, open at its start; `as_closed`: it has the closing's hash."""

    binary: BinaryIO
    as_closed: bool


def closed_copy(period: ClosedPeriod, format_: FileFormat, *, now: datetime) -> ClosedCopy:
    """Return the file of a closed month as it was kept, or made anew.

    What was made anew is kept where its hash is that of the closing; whether it is, is noted. So it
    is while object storage is away. The caller closes it. Raises KeyError for a format that the
    month was not closed with, OSError.
    """
    sha = period.files[format_.value]
    try:
        kept = opened(exports_storage(), closed_name(sha, format_), sha)
    except StorageAway as error:
        logger.warning("%s of %s is made anew: %s", format_.value, period, error.__cause__)
        kept = None
    if kept is not None:
        return ClosedCopy(kept, as_closed=True)
    return _write_again(period, format_, sha, now)


def copy_of_month(
    month: date, format_: FileFormat, *, visibility: Visibility, now: datetime
) -> ClosedCopy | None:
    """Return the file of a month as it was closed; None where there is none for who asks.

    That is so of a month that is open, of a format that it was not closed with or that is not
    installed any more, and for who does not see everything: they get their own rows, made for
    them. The caller closes it. Raises OSError.
    """
    closed = closed_period(month) if visibility.everything else None
    if closed is None or format_.value not in closed.files or not format_.is_installed:
        return None
    return closed_copy(closed, format_, now=now)


def keep_closed_files(*, now: datetime) -> int:
    """Keep the files of all closed months that are not kept yet; return how many are now.

    One that came out otherwise when it was made anew is not tried again. Raises OSError.
    """
    count = 0
    storage = exports_storage()
    for period in ClosedPeriod.objects.filter(reopened_at__isnull=True).order_by("month"):
        kept, differing = _formats_of(period)
        for name, sha in sorted(period.files.items()):
            format_ = FileFormat(name)
            if name in differing or not format_.is_installed:
                continue
            # One that is there and not noted was stored by a process that was killed then.
            if name in kept and is_there(storage, closed_name(sha, format_)):
                continue
            copy = _write_again(period, format_, sha, now)
            copy.binary.close()
            count += copy.as_closed
    return count


def _formats_of(period: ClosedPeriod) -> tuple[set[str], set[str]]:
    """Return the formats that are noted as kept, and those that came out otherwise. One query."""
    kept, differing = set(), set()
    rows = ClosedFile.objects.filter(period=period).order_by("pk")
    for row in rows:
        if row.kept_at is not None:
            kept.add(row.format)
        if row.remade_at is not None and row.remade_sha256 != row.sha256:
            differing.add(row.format)
    return kept, differing


def _write_again(period: ClosedPeriod, format_: FileFormat, sha: str, now: datetime) -> ClosedCopy:
    file = period_file(period.month, format_, visibility=EVERYTHING)
    storage = exports_storage()
    with drafted(storage, partial(write, file, format_)) as draft:
        # Still open, and gone with its reader where it is not what was closed.
        binary = draft.path.open("rb")
        as_closed = draft.sha256 == sha
        is_stored = as_closed and _was_stored(storage, draft, closed_name(sha, format_))
        if not as_closed:
            logger.warning("%s of %s was made anew and is not as closed", format_.value, period)
    # The first copy of a closing is no second making: only later ones are noted as such.
    first = as_closed and not ClosedFile.objects.filter(period=period, format=format_.value)
    noted = {} if first else {"remade_at": now, "remade_sha256": draft.sha256}
    kept = {"size": draft.length, "kept_at": now} if is_stored else {}
    ClosedFile.objects.update_or_create(
        period=period, format=format_.value, defaults={"sha256": sha, **noted, **kept}
    )
    return ClosedCopy(binary, as_closed)


def _was_stored(storage: Storage, draft: Draft, name: str) -> bool:
    try:
        store(storage, draft, name)
    except StorageAway as error:
        logger.warning("%s cannot be kept: %s", name, error.__cause__)
        return False
    return True
