"""Exports and month close: files on request, written in the background, and kept."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo

from django.http import FileResponse, Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from msgspec import Struct
from msgspec.structs import asdict

from apps.accounts.permissions import NotAllowed, can_administer
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window, day_window
from apps.clusters.selectors import report
from apps.costs import selectors as costs
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope, ExportState
from apps.costs.domain.files import FileFormat, FileRefused, offered_formats
from apps.costs.permissions import can_see_bills
from apps.costs.selectors import ClosedFileRow, ExportRow, charging
from apps.costs.services import (
    CloseRefused,
    ExportRefused,
    ask_export,
    copy_of_month,
    reopen_period,
)
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.selectors import GroupingRefused, NamesUnknown, check_names
from apps.web.components import page_query
from apps.web.components.formats import Format, shown
from apps.web.components.tabs import Tab, tab_bar
from apps.web.costs import months
from apps.web.costs.bill_view import LARGE_DIFFERENCE, signed_percent
from apps.web.costs.months import LABELS, Month, as_closed, download, refused
from apps.web.costs.query import BASES, GROUPS, NOTHING, POLICIES, TAKES, query_of, with_places
from apps.web.costs.query import CostPageQuery as PageAsked
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

_STATES = {
    ExportState.QUEUED: ("pending", "none"),
    ExportState.RUNNING: ("is being written", "partial"),
    ExportState.DONE: ("ready", "complete"),
    ExportState.FAILED: ("failed", "failed"),
    ExportState.EXPIRED: ("deleted", "none"),
}
INTERVALS = {
    TimeStep.TOTAL: "in one sum",
    TimeStep.HOUR: "by hour",
    TimeStep.DAY: "by day",
    TimeStep.WEEK: "by week",
    TimeStep.MONTH: "by month",
}
_MOST_DAYS = 400
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


TABS = (Tab("files", "Files"), Tab("months", "Month close"), Tab("adjustments", "Adjustments"))


class InvalidExport(ValueError):
    """What was asked for is no month, no days, or no format; the text says what would be."""


class ExportLine(Struct, frozen=True):
    """A requested file, in words; `percent` None: its length is unknown."""

    row: ExportRow
    what: str
    terms: str
    state: str
    css: str
    percent: int | None
    written: str
    size: str

    @property
    def is_ready(self) -> bool:
        return self.row.state is ExportState.DONE


class ClosedMonth(Struct, frozen=True):
    """A month with what is said of its kept files: (label, sentence); `bill` is empty without one.

    `differs`: its bill is further from the portal's cost than can be left without a question.
    """

    month: Month
    files: Sequence[tuple[str, str]]
    bill: str = ""
    differs: bool = False


def shown_exports(rows: Iterable[ExportRow], zone: ZoneInfo) -> list[ExportLine]:
    return [_shown(row, zone) for row in rows]


def _shown(row: ExportRow, zone: ZoneInfo) -> ExportLine:
    state, css = _STATES[row.state]
    asked = row.scope
    label = LABELS[row.format]
    # Rounded down: 100 % is said of what is done.
    percent = None if row.progress is None else int(100 * row.progress)
    return ExportLine(
        row=row,
        what=f"{_period(asked, zone)}{_narrowed(asked)} as {label}"
        f"{' for Excel' if asked.bom else ''}",
        terms=f"{BASES[asked.basis]}; unallocated cost {POLICIES[asked.policy]}",
        state=state,
        css=css,
        percent=percent,
        written=_written(row),
        size="" if row.size is None else size_text(row.size),
    )


def _narrowed(asked: ExportScope) -> str:
    """Say by what the rows of a file are told apart, and what narrows them."""
    names = [name for of in asdict(asked.filters).values() for name in of]
    of = f" of {', '.join(names)}" if names else ""
    if asked.groups is None:
        return of
    groups = ", ".join(GROUPS[group.value] for group in asked.groups) or "nothing"
    return f"{of} by {groups}, {INTERVALS[asked.interval]}"


def _written(row: ExportRow) -> str:
    if not row.rows_written:
        return ""
    if row.rows_expected and row.state.moves:
        return f"{row.rows_written:,} of about {counted(row.rows_expected, 'row')}"
    return counted(row.rows_written, "row")


def _period(asked: ExportScope, zone: ZoneInfo) -> str:
    if asked.window is None:
        return f"{asked.month:%Y-%m}"
    first = asked.window.start.astimezone(zone).date()
    # The end is the midnight after the last day.
    last = (asked.window.end.astimezone(zone) - timedelta(seconds=1)).date()
    return f"{first}" if first == last else f"{first} to {last}"


def size_text(size: int) -> str:
    """Write a number of bytes, short."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def closed_months(
    months: Iterable[Month],
    kept: Mapping[tuple[date, str], ClosedFileRow],
    bills: Mapping[date, float],
    zone: ZoneInfo,
) -> list[ClosedMonth]:
    """Return months, with what is said of the files of those that are closed and of their bills."""
    return [
        ClosedMonth(
            month,
            _closed_words(month, kept, zone),
            bill=f"Bill differs by {signed_percent(ratio)}" if ratio is not None else "",
            differs=ratio is not None and abs(ratio) > LARGE_DIFFERENCE,
        )
        for month in months
        for ratio in (bills.get(month.period.month),)
    ]


def _closed_words(
    month: Month, kept: Mapping[tuple[date, str], ClosedFileRow], zone: ZoneInfo
) -> list[tuple[str, str]]:
    if not month.period.files:
        return []
    return [
        (LABELS[format_], _closed_sentence(kept.get((month.period.month, format_.value)), zone))
        for format_ in FileFormat
        if format_.value in month.period.files
    ]


def _closed_sentence(row: ClosedFileRow | None, zone: ZoneInfo) -> str:
    if row is None:
        return "not stored yet: created on download"
    if row.stored is None:
        return "file storage does not answer: created on download"
    said = (
        "" if row.size is None or not row.stored else f"stored at the close, {size_text(row.size)}"
    )
    if row.remade_at is None:
        return said or "not on this server: created on download"
    at = shown(row.remade_at, Format.TIME, zone)
    agrees = "the hash matches" if row.agrees else "the hash DIFFERS from the close"
    return (
        f"{said}; created again on {at}: {agrees}" if said else f"created again on {at}: {agrees}"
    )


class Background(Struct, frozen=True):
    """The form that has the rows of a page written: `hidden` fields, and what can be chosen."""

    hidden: Sequence[tuple[str, str]]
    formats: Sequence[tuple[str, str]]
    intervals: Sequence[tuple[str, str]]
    days: str


def background_of(asked: PageAsked, reading: QuerySession) -> Background:
    """Return the form for what a page of costs shows: its groups, filters, days and terms."""
    choice = reading.choice
    days = dict.fromkeys((str(choice.first), str(choice.last)))
    filters = asdict(reading.filters)
    return Background(
        hidden=[
            ("first", str(choice.first)),
            ("last", str(choice.last)),
            *(("by", group.value) for group in asked.by),
            # Without a group the form would mean the columns of a month's file.
            *(() if asked.by else (("by", NOTHING),)),
            ("basis", asked.basis.value),
            ("policy", asked.policy.value),
            *((key, name) for key in ("cluster", *TAKES) for name in filters[key]),
        ],
        formats=[(format_.value, LABELS[format_]) for format_ in offered_formats()],
        intervals=[(interval.value, label) for interval, label in INTERVALS.items()],
        days=" to ".join(days),
    )


def new_export_in(form: QueryDict, zone: ZoneInfo, now: datetime) -> tuple[ExportScope, FileFormat]:
    """Return the query of a form. Raises InvalidExport."""
    basis, policy = charging()
    try:
        format_ = FileFormat(form.get("format", FileFormat.CSV.value))
        given: dict[str, Any] = {
            "basis": Basis(form.get("basis") or basis),
            "policy": Policy(form.get("policy") or policy),
            # The mark is for Excel, which reads a CSV by it; other formats need none.
            "bom": bool(form.get("bom")) and format_.suffix == "csv",
        }
    except ValueError as error:
        raise InvalidExport(
            f"The portal knows no such format or way to charge: {error}."
        ) from error
    first, last = (form.get(name, "").strip() for name in ("first", "last"))
    if first or last:
        return ExportScope(
            window=_days(first, last or first, zone, now), **given, **_own(form)
        ), format_
    month = month_of(form.get("period", "").strip())
    if month is None:
        raise InvalidExport("Choose a month, or the first and the last day.")
    return ExportScope(month=month, filters=_filters(form), **given), format_


def _filters(form: QueryDict) -> Filters:
    return Filters(**{key: tuple(filter(None, form.getlist(key))) for key in ("cluster", *TAKES)})


def _own(form: QueryDict) -> dict[str, Any]:
    """Return the groups, their periods and the filters of a form that has any of its own."""
    own: dict[str, Any] = {"filters": _filters(form)}
    names, unknown = page_query.names_from(form, "by", (*GROUPS, NOTHING), "group")
    lengths, no_length = page_query.names_from(form, "interval", [i.value for i in TimeStep])
    if unknown or no_length:
        raise InvalidExport(unknown or no_length)
    if names:
        own["groups"] = with_places([Grouping(name) for name in names if name != NOTHING])
        own["interval"] = TimeStep(lengths[0]) if lengths else TimeStep.DAY
    return own


def month_of(text: str) -> date | None:
    """Return the first day of a month written as 2026-10, None for anything else."""
    try:
        found = date.fromisoformat(f"{text}-01")
    except ValueError:
        return None
    # Python reads 2026-W10-01, too.
    return found if len(text) == len("2026-10") and 2000 <= found.year < 2100 else None


def _days(first: str, last: str, zone: ZoneInfo, now: datetime) -> Window:
    try:
        days = (date.fromisoformat(first), date.fromisoformat(last))
    except ValueError as error:
        raise InvalidExport("Days are written as 2026-10-31, both of them.") from error
    if days[1] < days[0]:
        raise InvalidExport("The last day comes before the first.")
    if (days[1] - days[0]).days >= _MOST_DAYS:
        raise InvalidExport(f"A file takes at most {_MOST_DAYS} days: ask for two.")
    if not 2000 <= days[0].year <= days[1].year < 2100 or days[0] > now.astimezone(zone).date():
        raise InvalidExport("There are no costs of such days.")
    return Window(day_window(days[0], zone).start, day_window(days[1], zone).end)


@page
def exports(request: PageRequest) -> HttpResponseBase:
    return _page(request)


def _page(
    request: PageRequest, *, problem: str = "", status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request, takes=("team",))
    asked = query_of(request.GET)
    tabs = tab_bar(request, TABS, name="Exports")
    finance = reading.visibility.everything
    shown: dict[str, Any] = {}
    if tabs.chosen == "months":
        shown = _months(request, reading, asked)
    elif tabs.chosen == "adjustments":
        adjustments = costs.adjustment_rows(visibility=reading.visibility)
        shown = {"tables": [months.adjustments_table(adjustments, reading)]}
    else:
        shown = _export_context(request)
    return respond(
        request,
        reading,
        "exports",
        status=status,
        tabs=tabs if finance else None,
        tab=tabs.chosen if finance else "files",
        asked=asked,
        problem=problem,
        export=export_form(reading),
        book=costs.price_book().version,
        **shown,
    )


def _months(request: PageRequest, reading: QuerySession, asked: PageAsked) -> dict[str, Any]:
    periods = costs.period_states(now=reading.now, visibility=reading.visibility)
    kept = costs.closed_files(visibility=reading.visibility)
    bills: Mapping[date, float] = {}
    if can_see_bills(request.user):
        bills = costs.bill_differences(visibility=reading.visibility, now=reading.now)
    shown_months = months.months_of(periods, asked, reading.now)
    return {
        "months": closed_months(shown_months, kept, bills, reading.choice.zone),
        "reopens": can_administer(request.user),
    }


class ExportForm(Struct, frozen=True):
    """The form of a month's file: `month` is chosen at first, of `teams` those named in `team`.

    `warnings` say of which hours of that month its file has no costs.
    """

    month: str
    teams: Sequence[str]
    team: Sequence[str]
    formats: Sequence[tuple[str, str]]
    warnings: Sequence[str] = ()


def export_form(reading: QuerySession) -> ExportForm:
    """Return the form of a month's file, for the last closed month or the last whole one.

    Two queries at most.
    """
    closed = costs.last_closed_month(visibility=reading.visibility)
    this_month = reading.now.astimezone(report().zone).date().replace(day=1)
    month = closed or (this_month - timedelta(days=1))
    # A month of one team is mostly read by a person, in a spreadsheet.
    formats = sorted(offered_formats(), key=lambda format_: format_ is not FileFormat.XLSX)
    return ExportForm(
        month=f"{month:%Y-%m}",
        teams=reading.choices.get("team") or (),
        team=reading.filters.team,
        formats=[(format_.value, LABELS[format_]) for format_ in formats],
        warnings=months.uncollected_texts(month.replace(day=1), reading.now),
    )


def _export_context(request: PageRequest) -> dict[str, Any]:
    rows = costs.export_rows(request.user)
    zone = report().zone
    return {
        "exports": shown_exports(rows, zone),
        "zone": zone,
        "moving": any(row.state.moves for row in rows),
    }


@page
def export_list(request: PageRequest) -> HttpResponseBase:
    """Answer with the list of the reader's files alone, as htmx fetches it while one is written."""
    return render(request, "exports/_list.html", _export_context(request))


@page
def month_warnings(request: PageRequest) -> HttpResponseBase:
    """Answer with what the file of a month lacks, as htmx fetches it when another one is chosen."""
    month = month_of(request.GET.get("period", "").strip())
    # The browser requires a month by itself; what is half typed is no mistake yet.
    warnings = months.uncollected_texts(month, timezone.now()) if month else ()
    return render(request, "costs/_export_warnings.html", {"warnings": warnings})


@change
def create(request: PageRequest) -> HttpResponseBase:
    """Have a file written in the background."""
    now = timezone.now()
    try:
        asked, format_ = new_export_in(request.POST, report().zone, now)
        check_names(asked.filters)
        ask_export(request.user, asked, format_, now=now)
    except (InvalidExport, ExportRefused, NamesUnknown, FileRefused) as refusal:
        return _page(request, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    except GroupingRefused as refusal:
        said = f"This cannot be had over this window: {refusal}."
        return _page(request, problem=said, status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(f"{reverse('web:exports')}#asked")


@page
def export_file(request: PageRequest, pk: int) -> HttpResponseBase:
    """Hand out a file that the reader asked for, if they may still see what is in it."""
    try:
        found = costs.export_download(pk, request.user)
    except costs.ExportGone as gone:
        raise Http404(str(gone)) from gone
    except NotAllowed as refusal:
        return refused(f"{refusal} Ask for it anew.", status=HTTPStatus.FORBIDDEN)
    except costs.StorageAway:
        said = "The file storage does not answer now. Try again in a few minutes."
        return refused(said, status=HTTPStatus.SERVICE_UNAVAILABLE)
    return FileResponse(
        found.binary,
        as_attachment=True,
        filename=found.name,
        content_type=found.format.content_type,
    )


@change
def reopen(request: PageRequest, month: str) -> HttpResponseBase:
    """Open a closed month again, for a reason; for administrators."""
    first = month_of(month)
    if not can_administer(request.user) or first is None or costs.closed_period(first) is None:
        raise Http404("There is no closed month that you may open again.")
    try:
        reopen_period(first, by=request.user, reason=request.POST.get("reason", "")[:2000])
    except CloseRefused as refusal:
        return _page(request, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(f"{reverse('web:exports')}?tab=months#month-{month}")


@page
def month_file(request: PageRequest) -> HttpResponseBase:
    """Hand out a month's file at once: a closed one as it was closed, else as it stands."""
    reading = query_session(request, takes=("team",))
    asked = query_of(request.GET)
    names, unknown = page_query.names_from(request.GET, "format", [f.value for f in FileFormat])
    written = request.GET.get("period", "").strip() or f"{reading.choice.first:%Y-%m}"
    month = month_of(written)
    if month is None:
        return refused(f"“{written[:40]}” is not a month such as 2026-10.")
    if problem := next(filter(None, (unknown, asked.problem, *reading.problems)), ""):
        return refused(problem)
    format_ = FileFormat(names[0]) if names else FileFormat.CSV
    teams = reading.filters.team
    name = "-".join((format_.subject, written, *teams))
    make = partial(
        costs.period_file,
        month,
        format_,
        visibility=reading.visibility,
        basis=asked.basis,
        policy=asked.policy,
        filters=Filters(team=teams),
    )
    bom = bool(request.GET.get("bom"))
    kept = None
    # What is kept has all teams and no mark: with either the rows are read.
    if not bom and not teams:
        kept = copy_of_month(month, format_, visibility=reading.visibility, now=reading.now)
    if kept is not None:
        return as_closed(make, kept, format_, name)
    return download(make, format_, name, bom=bom)
