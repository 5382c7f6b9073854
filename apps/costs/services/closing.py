"""Close a month, open it again, and book what differs from it later."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from apps.accounts.domain.formats import utc_words
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window, day_of
from apps.clusters.models import Cluster
from apps.clusters.selectors import Report, report
from apps.costs.adapters.formats import write
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.files import FileFormat, TooManyRows, offered_formats
from apps.costs.domain.months import (
    NOTHING,
    ClosedLine,
    LineAmount,
    LineId,
    adjustments,
    canonical_rows,
)
from apps.costs.models import Adjustment, ClosedAmount, ClosedPeriod, PricedHour
from apps.costs.permissions import check_reopen
from apps.costs.selectors.cost_files import cost_centers, days_at_once, period_file
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.months import (
    EVERY_GROUP,
    catalog_rates,
    closed_period,
    gaps_of_month,
    month_window,
)
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostLine, CostQuery, LineKey
from apps.costs.services.prices import due_in
from apps.usage.domain.usage_query import Filters, GroupingRefused, TimeStep
from apps.usage.models import Day
from apps.usage.services import day_value, insert, instant, older_workloads

_LINE_IDS = tuple(grouping.column for grouping in EVERY_GROUP)
LINE_COLUMNS = ("day", *_LINE_IDS, "cause", "currency", "gpu_hours", "cost", "unpriced")
_LINE_KEYS = (*_LINE_IDS, "cause", "currency")
_WORKLOAD = _LINE_IDS.index("workload_id")
_TEXT_FROM = _LINE_IDS.index("capacity_type")
_BLOCK = 1 << 20


def reading_of(
    window: Window,
    basis: Basis,
    policy: Policy,
    *,
    interval: TimeStep = TimeStep.TOTAL,
    cluster: str = "",
    zone: ZoneInfo | None = None,
) -> CostReader:
    """Return the reading whose lines are frozen: by day, or in total of one day."""
    filters = Filters(cluster=(cluster,) if cluster else ())
    asked = CostQuery(window, interval, EVERY_GROUP, filters, basis, policy, corrections=False)
    return CostReader(asked, visibility=EVERYTHING, zone=zone)


def amount_of(key: LineKey, line: CostLine) -> LineAmount:
    """Return a line as it is frozen; without a currency all of it is unpriced."""
    return LineAmount(line.gpu_hours, line.cost, 0 if key.currency else line.gpu_hours)


def rows_of_day(closed: ClosedPeriod, cluster: Cluster, window: Window) -> dict[LineId, LineAmount]:
    """Return the lines of a cluster's local day as its rows are now, as the period was charged."""
    reading = reading_of(
        *(window, Basis(closed.basis), Policy(closed.policy)),
        cluster=cluster.name,
        zone=ZoneInfo(closed.time_zone),
    )
    return {_frozen_key(key): amount_of(key, line) for key, line in reading.sums(window).items()}


def book_differences(
    closed: ClosedPeriod,
    cluster: int,
    day: date,
    recomputed: Mapping[LineId, LineAmount],
    *,
    booked_on: date,
    booked_at: datetime,
) -> int:
    """Book what `recomputed` differs by from what was frozen and booked so far; return lines.

    Of a folded day these are lines of the workloads that stand for those whose names are
    forgotten: what was frozen under their names is compared in sum.
    """
    of_day = {"period": closed, "cluster_id": cluster, "day": day}
    frozen = _sum_rows(ClosedAmount.objects.filter(**of_day))
    booked = _sum_rows(Adjustment.objects.filter(**of_day))
    if Day.objects.filter(cluster_id=cluster, day=day, folded=True).exists():
        # Without this every folded workload would book a negative and a new line.
        frozen, booked = _fold_rows(frozen), _fold_rows(booked)
    lines = adjustments(dict(frozen), recomputed, booked)
    write_adjustments(closed, ((day, key, amount) for key, amount in lines), booked_on, booked_at)
    return len(lines)


def _fold_rows(lines: list[tuple[LineId, LineAmount]]) -> list[tuple[LineId, LineAmount]]:
    named = {int(key[_WORKLOAD]) for key, _ in lines if key[_WORKLOAD]}
    older = {str(pk): str(other) for pk, other in older_workloads(named).items()}
    found: dict[LineId, LineAmount] = {}
    for key, amount in lines:
        workload = older.get(key[_WORKLOAD], key[_WORKLOAD])
        place = (*key[:_WORKLOAD], workload, *key[_WORKLOAD + 1 :])
        found[place] = found[place] + amount if place in found else amount
    return list(found.items())


def write_adjustments(
    closed: ClosedPeriod,
    lines: Iterable[tuple[date, LineId, LineAmount]],
    booked_on: date,
    booked_at: datetime,
) -> None:
    """Write lines (day, key, amount) as booked on a day."""
    head = (closed.pk, day_value(booked_on), instant(booked_at))
    rows = ((*head, *_line_values(day, key, amount)) for day, key, amount in lines)
    insert(Adjustment, ("period_id", "booked_on", "booked_at", *LINE_COLUMNS), rows)


def booked_rows(closed: ClosedPeriod, **where: Any) -> list[tuple[date, LineId, LineAmount]]:
    """Return what was booked against a period, summed by line, in order."""
    found = Adjustment.objects.filter(period=closed, **where)
    days = found.order_by("day").values_list("day", flat=True).distinct()
    return [
        (day, key, amount)
        for day in days
        for key, amount in sorted(_sum_rows(found.filter(day=day)))
    ]


def write_frozen(closed: ClosedPeriod, day: date, lines: Mapping[LineKey, CostLine]) -> None:
    """Freeze a day's lines."""
    made = (
        (closed.pk, *_line_values(day, _frozen_key(key), amount_of(key, line)))
        for key, line in sorted(lines.items(), key=lambda item: _frozen_key(item[0]))
    )
    insert(ClosedAmount, ("period_id", *LINE_COLUMNS), made)


def _frozen_key(key: LineKey) -> LineId:
    """Return a line's ids as texts, empty for none; cause and currency last."""
    return (*("" if pk is None else str(pk) for pk in key.ids), key.cause.value, key.currency)


def _line_values(day: date, key: LineId, amount: LineAmount) -> tuple[Any, ...]:
    ids = [(int(text) if text else None) for text in key[:_TEXT_FROM]]
    texts = key[_TEXT_FROM:]
    return (day_value(day), *ids, *texts, amount.gpu_hours, amount.cost, amount.unpriced)


def _sum_rows(rows: Any) -> list[tuple[LineId, LineAmount]]:
    sums = {f"sum_{name}": Sum(name) for name in ("gpu_hours", "cost", "unpriced")}
    found = rows.order_by().values_list(*_LINE_KEYS).annotate(**sums)
    return [
        (
            tuple("" if value is None else str(value) for value in row[: len(_LINE_KEYS)]),
            LineAmount(*map(int, row[len(_LINE_KEYS) :])),
        )
        for row in found
    ]


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
        raise CloseRefused(
            f"{month:%Y-%m} is closed already, since {utc_words(closed.closed_at, now=at)}."
        )
    if closed is None:
        closed = _freeze(month, by=by, basis=basis, policy=policy, forced=forced.strip(), at=at)
    # After the transaction: writing files takes minutes, too long to hold the days' locks.
    closed.files = {format_.value: sha for format_, sha in _file_hashes(month)}
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
        raise CloseRefused("Reopening a month needs a reason.")
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
        # Pricing runs in the background; until then the old rows are shown.
        PricedHour.objects.filter(hour__gte=closed.start, hour__lt=closed.end).update(rates="")
    return closed


def _freeze(
    month: date, *, by: str, basis: Basis, policy: Policy, forced: str, at: datetime
) -> ClosedPeriod:
    settings = report()
    window = month_window(month, settings.zone)
    # The month of the report zone: in UTC it may be over hours earlier or later.
    if month.day != 1 or window.end > at:
        raise CloseRefused(f"{month:%Y-%m} is not over: a month is closed after its last day.")
    with transaction.atomic():
        # Pricing locks a day's row: none is half written while it is frozen.
        days = Day.objects.select_for_update().filter(start__gte=window.start, end__lte=window.end)
        if not days.count():
            raise CloseRefused(f"{month:%Y-%m} has no data.")
        list(days)
        if not forced:
            _check_whole(month, window, settings)
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
            exchange_rates=catalog_rates(month, settings),
            forced=forced,
            closed_at=at,
            closed_by=by,
        )
        try:
            closed.rows_sha256, closed.row_count = _write_rows(closed, window)
        except GroupingRefused as refusal:
            # Days that were begun in another zone, whose hours by workload are gone.
            raise CloseRefused(f"{month:%Y-%m} cannot be closed by its days: {refusal}.") from None
        closed.save(update_fields=["rows_sha256", "row_count"])
    return closed


def _check_whole(month: date, window: Window, terms: Report) -> None:
    gaps = gaps_of_month(month, window, terms)
    said = gaps.texts()
    due = due_in(window)
    # Gaps know of changed facts alone; a price that changed makes more hours due.
    if due > gaps.not_priced:
        hours = counted(due, "hour is", "hours are")
        said.append(f"{hours} not priced again yet: their prices or facts changed")
    if said:
        raise CloseRefused(
            f"{month:%Y-%m} is not complete: {'; '.join(said)}. Collect and price what is "
            "missing, or close it with a reason."
        )


def _write_rows(closed: ClosedPeriod, window: Window) -> tuple[str, int]:
    """Freeze all lines, some days at a time; return their SHA-256 and how many they are."""
    zone = report().zone
    # Without a zone it is the report's, which the period was just given as its own.
    reading = reading_of(window, Basis(closed.basis), Policy(closed.policy), interval=TimeStep.DAY)
    count = 0

    def rows() -> Iterator[ClosedLine]:
        nonlocal count
        for span in days_at_once(window, zone):
            for day, lines in sorted(_rows_by_day(reading.sums(span), zone).items()):
                write_frozen(closed, day, lines)
                count += len(lines)
                yield from _canonical(day, lines, reading)

    digest = hashlib.sha256()
    for part in canonical_rows(rows(), header=header_of(closed)):
        digest.update(part)
    return digest.hexdigest(), count


def _rows_by_day(
    lines: dict[LineKey, CostLine], zone: ZoneInfo
) -> dict[date, dict[LineKey, CostLine]]:
    found: dict[date, dict[LineKey, CostLine]] = defaultdict(dict)
    for key, line in lines.items():
        found[day_of(key.period, zone)][key] = line
    return found


def header_of(closed: ClosedPeriod) -> dict[str, str]:
    """Return what the figures of a closed month rest on, as it is hashed with them."""
    rates = closed.exchange_rates or {}
    return {
        "period": f"{closed.month:%Y-%m}",
        "time_zone": closed.time_zone,
        "currency": closed.currency,
        "basis": closed.basis,
        "policy": closed.policy,
        "price_book": closed.price_book,
        # Months that were closed before there were rates keep their hash.
        **{f"exchange_rate_{name}": rate for name, rate in sorted(rates.items())},
    }


def _canonical(day: date, lines: dict[LineKey, CostLine], reading: CostReader) -> list[ClosedLine]:
    names = reading.names_of({key.ids for key in lines})
    return sorted(
        (
            (day.isoformat(), *names[key.ids], key.cause.value, key.currency),
            amount_of(key, line),
        )
        for key, line in lines.items()
    )


def _file_hashes(month: date) -> Iterator[tuple[FileFormat, str]]:
    """Yield the SHA-256 of each file of a month; of none that cannot be written."""
    for format_ in offered_formats():
        with TemporaryFile() as out:
            try:
                write(period_file(month, format_, visibility=EVERYTHING), format_, out)
            # A month of too many rows for a workbook is closed without one.
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
    # Lines of a month that was closed since are frozen with it: they get their opposite instead.
    kept = list(ClosedPeriod.objects.filter(reopened_at__isnull=True, month__in=months))
    opposite = [
        (day, key, NOTHING - amount)
        for other in kept
        for day, key, amount in booked_rows(closed, **_in_month(other.month))
    ]
    still_open = booked
    for other in kept:
        still_open = still_open.exclude(**_in_month(other.month))
    still_open.delete()
    write_adjustments(closed, opposite, today, at)


def _in_month(month: date) -> dict[str, int]:
    return {"booked_on__year": month.year, "booked_on__month": month.month}
