"""Closing a month and opening it again."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime
from tempfile import TemporaryFile
from typing import BinaryIO
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.calendar import day_of
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.adapters import write
from apps.costs.domain.closing import NOTHING, Closed, canonical_lines
from apps.costs.domain.costing import Basis
from apps.costs.domain.files import FileFormat, TooManyRows
from apps.costs.domain.unallocated import Policy
from apps.costs.models import Adjustment, ClosedPeriod, PricedHour
from apps.costs.permissions import check_reopen
from apps.costs.selectors.cost_reader import CostLine, CostReader, LineKey
from apps.costs.selectors.files.cost_files import cost_centers, period_file
from apps.costs.selectors.files.row_estimates import days_at_once
from apps.costs.selectors.periods import closed_period, gaps_of, month_window
from apps.costs.selectors.prices import price_book
from apps.costs.services.adjusting import (
    amount_of,
    booked_lines,
    reading_of,
    write_adjustments,
    write_frozen,
)
from apps.costs.services.due import due_in
from apps.usage.domain.refusals import GroupingRefused
from apps.usage.domain.rows import TimeStep
from apps.usage.models import Day

_BLOCK = 1 << 20


class CloseRefused(ValueError):
    """A month cannot be closed, or opened again; the text says why and what to do."""


def close_period(
    month: date,
    *,
    by: str,
    basis: Basis = Basis.ALLOCATED,
    policy: Policy = Policy.PLATFORM,
    forced: str = "",
    now: datetime | None = None,
) -> ClosedPeriod:
    """Freeze a month of the report zone: its rows, and the SHA-256 of these and of each file.

    `month` is its first day, `by` a user name; `forced` is the reason to close it although hours
    are missing, not priced, or without a price in the book. From then on nothing in it changes:
    differences become adjustment lines of the month that is open then. A closing that was cut
    short before its files were reckoned is completed.
    Raises CloseRefused, with nothing changed.
    """
    at = now or timezone.now()
    closed = closed_period(month)
    if closed is not None and closed.files:
        raise CloseRefused(f"{month:%Y-%m} is closed already, since {closed.closed_at:%Y-%m-%d}.")
    if closed is None:
        closed = _freeze(month, by=by, basis=basis, policy=policy, forced=forced.strip(), at=at)
    closed.files = {format_.value: sha for format_, sha in _hashes(month)}
    closed.save(update_fields=["files"])
    return closed


def reopen_period(
    month: date, *, by: User, reason: str, now: datetime | None = None
) -> ClosedPeriod:
    """Open a closed month again: it is priced anew, as any open month is. One transaction.

    What was booked against it is taken back: lines in months that are open go, those in months
    closed meanwhile get their opposite in the open one. What was frozen is kept for the record.
    Raises PermissionDenied for all but admins, CloseRefused without a reason or a closed month.
    """
    check_reopen(by)
    if not reason.strip():
        raise CloseRefused("Opening a closed month again needs a reason.")
    at = now or timezone.now()
    with transaction.atomic():
        closed = (
            ClosedPeriod.objects.select_for_update()
            .filter(month=month, reopened_at__isnull=True)
            .first()
        )
        if closed is None:
            raise CloseRefused(f"{month:%Y-%m} is not closed.")
        closed.reopened_at, closed.reopened_by = at, by.username
        closed.reopen_reason = reason.strip()
        closed.save(update_fields=["reopened_at", "reopened_by", "reopen_reason"])
        _take_back(closed, at)
        # No digest is empty: all of its hours are due.
        PricedHour.objects.filter(hour__gte=closed.start, hour__lt=closed.end).update(rates="")
    return closed


def _freeze(
    month: date, *, by: str, basis: Basis, policy: Policy, forced: str, at: datetime
) -> ClosedPeriod:
    settings = report()
    window = month_window(month, settings.zone)
    if month.day != 1 or window.end > at:
        raise CloseRefused(f"{month:%Y-%m} is not over: a month is closed after its last day.")
    with transaction.atomic():
        # Whoever prices a day holds its row: none is half written while it is frozen.
        days = Day.objects.select_for_update().filter(start__gte=window.start, end__lte=window.end)
        if not days.count():
            raise CloseRefused(f"{month:%Y-%m} has no facts at all.")
        list(days)
        _check_whole(month, window, forced)
        closed = ClosedPeriod.objects.create(
            month=month,
            start=window.start,
            end=window.end,
            time_zone=settings.zone.key,
            currency=settings.currency,
            basis=basis.value,
            policy=policy.value,
            price_book=price_book().version,
            cost_centers=cost_centers(),
            forced=forced,
            closed_at=at,
            closed_by=by,
        )
        try:
            closed.rows_sha256, closed.row_count = _write_lines(closed, window)
        except GroupingRefused as refusal:
            # Days that were begun in another zone, whose hours by workload are gone.
            raise CloseRefused(f"{month:%Y-%m} cannot be closed by its days: {refusal}.") from None
        closed.save(update_fields=["rows_sha256", "row_count"])
    return closed


def _check_whole(month: date, window: Window, forced: str) -> None:
    if forced:
        return
    gaps = gaps_of(window)
    said = gaps.texts()
    due = due_in(window)
    if due > gaps.not_priced:
        said.append(f"{due} hours wait to be priced anew, for their prices or facts changed")
    if said:
        raise CloseRefused(
            f"{month:%Y-%m} is not complete: {'; '.join(said)}. Collect and price what is "
            "missing, or close it all the same with a reason."
        )


def _write_lines(closed: ClosedPeriod, window: Window) -> tuple[str, int]:
    """Freeze all lines, some days at a time; return their SHA-256 and how many they are."""
    zone = report().zone
    reading = reading_of(window, Basis(closed.basis), Policy(closed.policy), interval=TimeStep.DAY)
    count = 0

    def rows() -> Iterator[Closed]:
        nonlocal count
        for span in days_at_once(window, zone):
            for day, lines in sorted(_by_day(reading.lines(span), zone).items()):
                write_frozen(closed, day, lines)
                count += len(lines)
                yield from _canonical(day, lines, reading)

    digest = hashlib.sha256()
    for part in canonical_lines(rows(), header=header_of(closed)):
        digest.update(part)
    return digest.hexdigest(), count


def _by_day(lines: dict[LineKey, CostLine], zone: ZoneInfo) -> dict[date, dict[LineKey, CostLine]]:
    found: dict[date, dict[LineKey, CostLine]] = defaultdict(dict)
    for key, line in lines.items():
        found[day_of(key.period, zone)][key] = line
    return found


def header_of(closed: ClosedPeriod) -> dict[str, str]:
    """Return what the figures of a closed month rest on, as it is hashed with them."""
    return {
        "period": f"{closed.month:%Y-%m}",
        "time_zone": closed.time_zone,
        "currency": closed.currency,
        "basis": closed.basis,
        "policy": closed.policy,
        "price_book": closed.price_book,
    }


def _canonical(day: date, lines: dict[LineKey, CostLine], reading: CostReader) -> list[Closed]:
    names = reading.names_of({key.ids for key in lines})
    return sorted(
        (
            (day.isoformat(), *names[key.ids], key.cause.value, key.currency),
            amount_of(key, line),
        )
        for key, line in lines.items()
    )


def _hashes(month: date) -> Iterator[tuple[FileFormat, str]]:
    """Yield the SHA-256 of each file of a month; of none that cannot be written."""
    for format_ in FileFormat:
        with TemporaryFile() as out:
            try:
                write(period_file(month, format_, visibility=EVERYTHING), format_, out)
            except TooManyRows:
                continue
            yield format_, sha256_of_file(out)


def sha256_of_file(out: BinaryIO) -> str:
    """Return the SHA-256 of an open file from its start."""
    out.seek(0)
    digest = hashlib.sha256()
    while block := out.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _take_back(closed: ClosedPeriod, at: datetime) -> None:
    today = day_of(at, report().zone)
    booked = Adjustment.objects.filter(period=closed)
    months = {day.replace(day=1) for day in booked.values_list("booked_on", flat=True).distinct()}
    kept = list(ClosedPeriod.objects.filter(reopened_at__isnull=True, month__in=months))
    opposite = [
        (day, key, NOTHING - amount)
        for other in kept
        for day, key, amount in booked_lines(closed, **_in_month(other.month))
    ]
    still_open = booked
    for other in kept:
        still_open = still_open.exclude(**_in_month(other.month))
    still_open.delete()
    write_adjustments(closed, opposite, today, at)


def _in_month(month: date) -> dict[str, int]:
    return {"booked_on__year": month.year, "booked_on__month": month.month}
