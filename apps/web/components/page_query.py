"""The query of a page's address: its window, filters and pages, and links that keep them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpRequest, QueryDict
from django.urls import NoReverseMatch, get_script_prefix, reverse
from django.utils.encoding import escape_uri_path
from msgspec import Struct, field

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import (
    Window,
    day_of,
    day_start,
    days_in,
    hour_floor,
    last_day_before,
    month_before,
)
from apps.usage.domain.usage_query import Filters, TimeStep
from apps.usage.selectors import filter_names, namespaces_seen
from apps.web.components.formats import days_text, span_text

Query = Sequence[tuple[str, str]]
SCOPES = ("cluster", "tier", "team", "namespace", "workload", "pod", "gpu_model", "capacity_type")
"""What narrows a figure down; a workload reads `Kind/name`, a pod is named by its UID."""

TIMES = frozenset({"window", "first", "last", "start", "end"})
"""What an address says of time."""


def href(page: str, query: Query = (), /, **parts: str) -> str | None:
    """Return the address of a page; None when a part cannot stand in an address.

    Names come from clusters and their metrics, where an empty one or a slash may turn up: such a
    row is shown without a link rather than breaking the page.
    """
    path = _path(get_script_prefix(), page, tuple(parts.items()))
    return None if path is None else with_query(path, query)


@lru_cache(maxsize=8192)
def _path(_prefix: str, page: str, parts: tuple[tuple[str, str], ...]) -> str | None:
    """Return the path of a page, cached: a list needs the same ones on each of its rows."""
    try:
        return reverse(f"web:{page}", kwargs=dict(parts))
    except NoReverseMatch:
        return None


def path_of(request: HttpRequest) -> str:
    """Return the address of a request without its query, as it must stand in a link.

    Django hands the path over decoded: a name that holds `?`, `#` or `%` would end or change it.
    """
    return escape_uri_path(request.path)


def days_query(window: Window, zone: ZoneInfo) -> Query:
    """Return what an address has for the local days of a window."""
    first, last = day_of(window.start, zone), last_day_before(window.end, zone)
    return (("first", str(first)), ("last", str(last)))


def with_query(path: str, query: Query) -> str:
    """Return `path?query`, or `path` alone when the query is empty."""
    return f"{path}?{_encoded(tuple(query))}" if query else path


@lru_cache(maxsize=1024)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Return a query as it stands in an address, kept: all links of a page have the same one."""
    return urlencode(query)


def without(query: Query, *keys: str) -> list[tuple[str, str]]:
    """Return a query without some of its keys."""
    return [pair for pair in query if pair[0] not in keys]


def workload_href(cluster: str, namespace: str, workload: str, query: Query) -> str | None:
    """Return the address of a workload's page; `workload` reads `Kind/name`."""
    kind, _, name = workload.partition("/")
    return href("workload", query, cluster=cluster, namespace=namespace, kind=kind, name=name)


def next_href(path: str, query: Query, cursor: str | None, anchor: str = "") -> str | None:
    """Return the address of the rows behind a cursor; None without one."""
    return with_query(path, (*query, ("cursor", cursor))) + anchor if cursor else None


def option_links(
    path: str,
    query: Query,
    key: str,
    options: Mapping[str, str],
    chosen: Collection[str],
    *,
    anchor: str = "",
) -> list[tuple[str, str, bool]]:
    """Return (label, address, chosen) of what a key of an address can say, by label.

    The empty text is the address without the key: that stands where nothing is chosen.
    """
    return [
        (
            label,
            with_query(path, (*query, (key, value)) if value else query) + anchor,
            value in chosen if value else not chosen,
        )
        for label, value in options.items()
    ]


def figure_href(figure: str, query: Query, **names: str) -> str:
    """Return the address of the page that explains a figure of a room, by its key.

    `names` say what the figure is of; a name stands in place of the filters of its key.
    """
    kept = without(query, *names)
    named = [(key, name) for key, name in names.items() if name]
    return with_query(href("explain-figure", figure=figure) or "", [*kept, *named])


def during(start: datetime, end: datetime, query: Query) -> Query:
    """Return a query with another stretch of time, in UTC, in place of its own."""
    times = (("start", _utc(start)), ("end", _utc(end)))
    return (*times, *without(query, *TIMES))


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def figure_hrefs(figures: Mapping[str, str], query: Query, **names: str) -> dict[str, str]:
    """Return the addresses of the figures in columns, by column key."""
    return {column: figure_href(figure, query, **names) for column, figure in figures.items()}


def explain_href(figure: str, query: Query, **scope: str) -> str:
    """Return the address of the page that explains one figure.

    `figure` is a key of `apps.web.explain.figures.FIGURES`: a column key such as
    `busy_gpu_hours` or `utilization_ratio`, or the field of a ledger line alone (`busy`). `query`
    is that of the reading: window and filters. `scope` names what the figure is of, by the keys
    of SCOPES; none at all is everything that the reader may see. A name of the scope stands in
    place of the filters of its key, and a pod in place of all but its cluster: it is not narrowed.

        explain_href("busy_gpu_hours", reading.query, tier="a100", team="vision")

    In a template: `{% load portal %}{% explain "busy_gpu_hours" reading.query tier=card.name %}`.
    """
    unknown = scope.keys() - set(SCOPES)
    if unknown:
        raise ValueError(f"a figure cannot be narrowed by {', '.join(sorted(unknown))}")
    named = [(key, scope[key]) for key in SCOPES if scope.get(key)]
    replaced = set(SCOPES) if scope.get("pod") else {key for key, _ in named}
    kept = without(query, *replaced)
    asked = [("figure", figure)] if figure else []
    return with_query(href("explain") or "", (*asked, *named, *kept))


HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LONGEST_DAYS = 400
EARLIEST = date(2000, 1, 1)
PER_PAGE = 25
PER_PAGE_KEY = "per_page"
FEW_ROWS = 10
"""How many rows a list of much text opens with."""
MOST_PER_PAGE = 1000
_NEVER = 9000  # years past it come near the end of the calendar, where sums overflow
HOURLY_UP_TO = 3 * DAY + HOUR  # three local days last 73 hours when summer time ends
DEFAULT_PRESET = "7d"
PRESETS = {
    "today": "Today",
    "yesterday": "Yesterday",
    "24h": "Last 24 hours",
    "7d": "7 days",
    "30d": "30 days",
    "month": "This month",
    "last-month": "Last month",
}


class WindowRefused(ValueError):
    """The stretch of time asked for makes no sense; the text says what does."""


class WindowChoice(Struct, frozen=True):
    """The window of a page: `preset` is empty for days chosen by hand.

    `query` reproduces the choice in an address; `problem` says why the default is shown.
    """

    window: Window
    zone: ZoneInfo
    query: Query
    preset: str = ""
    problem: str = ""

    @property
    def interval(self) -> TimeStep:
        """Hours up to three days, else days."""
        short = self.window.end - self.window.start <= HOURLY_UP_TO
        return TimeStep.HOUR if short else TimeStep.DAY

    @property
    def first(self) -> date:
        """The first local day that the window touches."""
        return self.window.start.astimezone(self.zone).date()

    @property
    def last(self) -> date:
        """The last local day that the window touches."""
        return last_day_before(self.window.end, self.zone)

    @property
    def last_day_end(self) -> datetime:
        """The end of the last local day that the window touches, also where it is cut short."""
        return day_start(self.last + DAY, self.zone)

    @property
    def label(self) -> str:
        """The window in words with its time zone, as captions give it."""
        return f"{self.span_label} ({self.zone.key})"

    @property
    def span_label(self) -> str:
        """The window in words, where the page says elsewhere which zone its times are local to."""
        start = self.window.start.astimezone(self.zone)
        end = self.window.end.astimezone(self.zone)
        if start.time() == time(0) and end.time() == time(0):
            return self.short_label
        return span_text(start, end, self.zone)

    @property
    def short_label(self) -> str:
        """The days of the window, as a narrow page gives them."""
        return days_text(self.first, self.last, self.zone)

    @property
    def periods(self) -> list[datetime]:
        """The starts in UTC of the hours or local days in it, oldest first."""
        if self.interval is TimeStep.HOUR:
            hours = int((self.window.end - self.window.start) / HOUR)
            return [self.window.start + i * HOUR for i in range(hours)]
        starts = (day_start(day, self.zone) for day in days_in(self.window, self.zone))
        return list(dict.fromkeys(starts))  # a day that a zone left out starts with the next


def window_from(params: QueryDict, *, zone: ZoneInfo, now: datetime) -> WindowChoice:
    """Return the window that `params` ask for, cut at the end of the hour of `now`."""
    try:
        return _chosen_window(params, zone, now)
    except WindowRefused as refusal:
        shown = PRESETS[DEFAULT_PRESET].lower()
        return preset_choice(
            DEFAULT_PRESET, zone, now, problem=f"{refusal} The last {shown} are shown."
        )


def names_from(
    params: QueryDict, key: str, known: Sequence[str], label: str = ""
) -> tuple[tuple[str, ...], str]:
    """Return the known names asked for under `key`, and a message on the unknown ones.

    `label` is how a reader calls what is named, where that is not the key.
    """
    asked = [name for name in params.getlist(key) if name]
    unknown = [name for name in asked if name not in known]
    # Each name once, in the order asked for: links of the page repeat it.
    kept = tuple(dict.fromkeys(name for name in asked if name in known))
    if not unknown:
        return kept, ""
    allowed = ", ".join(known) or "none"
    return kept, f"There is no {label or key} “{unknown[0][:80]}”; there are: {allowed}."


class Pages(Struct, frozen=True):
    """Which page of a list is shown; `number` and `last` count from 1, `count` is of all rows."""

    number: int
    last: int
    per_page: int
    count: int

    @property
    def part(self) -> slice:
        """The rows of this page."""
        return slice((self.number - 1) * self.per_page, self.number * self.per_page)

    @property
    def place(self) -> str:
        """The rows of this page in words, as `26–50 of 132`; empty where one page holds all."""
        first = (self.number - 1) * self.per_page + 1
        last = min(self.number * self.per_page, self.count)
        return f"{first:,}–{last:,} of {self.count:,}" if self.last > 1 else ""


def pages_from(params: QueryDict, *, count: int, usual: int = PER_PAGE, key: str = "page") -> Pages:
    """Return the page that `params` ask for; what is no page number gives the nearest page.

    `per_page` sets another length than the usual one, up to MOST_PER_PAGE.
    """
    # Whatever an address says there is a page: a list does not refuse a number.
    per_page = min(max(1, _whole(params.get(PER_PAGE_KEY, ""), usual)), MOST_PER_PAGE)
    last = max(1, -(-count // per_page))
    return Pages(min(max(1, _whole(params.get(key, ""), 1)), last), last, per_page, count)


def _whole(text: str, otherwise: int) -> int:
    # Python reads digits of all scripts, and a long row of them as a huge number.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else otherwise


def _chosen_window(params: QueryDict, zone: ZoneInfo, now: datetime) -> WindowChoice:
    given = {key: params.get(key, "").strip() for key in ("first", "last", "start", "end")}
    if given["first"] or given["last"]:
        return _between_days(given, zone, now)
    if given["start"] or given["end"]:
        return _between_times(given, zone, now)
    name = params.get("window", "").strip() or DEFAULT_PRESET
    if name not in PRESETS:
        raise WindowRefused(
            f"There is no window “{name[:80]}”; there are: {', '.join(PRESETS)}, or days as "
            "first=2026-10-01 and last=2026-10-31."
        )
    return preset_choice(name, zone, now)


def preset_choice(name: str, zone: ZoneInfo, now: datetime, problem: str = "") -> WindowChoice:
    """Return the window of one of PRESETS as it is at `now`."""
    today = now.astimezone(zone).date()
    this_month = today.replace(day=1)
    # The running hour has no facts yet; windows of days end with it all the same.
    closed = hour_floor(now, zone)
    ends = closed + HOUR
    spans: Mapping[str, tuple[datetime, datetime]] = {
        "today": (day_start(today, zone), ends),
        "yesterday": (day_start(today - DAY, zone), day_start(today, zone)),
        "24h": (closed - 24 * HOUR, closed),
        "7d": (day_start(today - 6 * DAY, zone), ends),
        "30d": (day_start(today - 29 * DAY, zone), ends),
        "month": (day_start(this_month, zone), ends),
        "last-month": (day_start(month_before(today), zone), day_start(this_month, zone)),
    }
    return WindowChoice(Window(*spans[name]), zone, (("window", name),), name, problem)


def _between_days(given: Mapping[str, str], zone: ZoneInfo, now: datetime) -> WindowChoice:
    first = _date(given["first"] or given["last"], "first day")
    last = _date(given["last"] or given["first"], "last day")
    if last < first:
        raise WindowRefused(f"The last day, {last}, lies before the first, {first}.")
    _check_days(first, last)
    window = _until_now(day_start(first, zone), day_start(last + DAY, zone), zone, now)
    return WindowChoice(window, zone, (("first", str(first)), ("last", str(last))))


def _between_times(given: Mapping[str, str], zone: ZoneInfo, now: datetime) -> WindowChoice:
    if not (given["start"] and given["end"]):
        raise WindowRefused("A start and an end are needed, or a first and a last day.")
    start, end = _instant(given["start"], "start", zone), _instant(given["end"], "end", zone)
    if end <= start:
        raise WindowRefused("The end does not lie after the start.")
    _check_days(start.astimezone(zone).date(), end.astimezone(zone).date())
    # Facts are kept by the hour: a part of one is widened to all of it.
    whole_start, whole_end = hour_floor(start, zone), hour_floor(end, zone)
    if whole_end < end:
        whole_end += HOUR
    query = (("start", given["start"]), ("end", given["end"]))
    return WindowChoice(_until_now(whole_start, whole_end, zone, now), zone, query)


def _until_now(start: datetime, end: datetime, zone: ZoneInfo, now: datetime) -> Window:
    if start >= end:  # a zone that crossed the date line left a day out
        raise WindowRefused(f"That time never was: the calendar of {zone.key} skipped it.")
    # To the end of the running hour: the hours of a window are whole.
    limit = hour_end(now, zone)
    if start >= limit:
        raise WindowRefused("That lies in the future.")
    return Window(start, min(end, limit))


def hour_end(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the end of the fact hour that holds `at`, in UTC."""
    return hour_floor(at, zone) + HOUR


def _check_days(first: date, last: date) -> None:
    if first < EARLIEST:
        raise WindowRefused(f"Windows start on {EARLIEST} or later.")
    if (last - first).days >= LONGEST_DAYS:
        raise WindowRefused(f"A window holds {LONGEST_DAYS} days at most.")


def _date(text: str, what: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise WindowRefused(f"The {what} “{text[:40]}” is not a day such as 2026-10-25.") from None
    # Before anything is added to it: dates end with the year 9999.
    if day.year >= _NEVER:
        raise WindowRefused("That lies in the future.")
    return day


def _instant(text: str, what: str, zone: ZoneInfo) -> datetime:
    # A plus sign that was not escaped arrives as a blank: 2026-10-25T00:00:00 02:00.
    repaired = text.replace(" ", "+") if "T" in text else text
    try:
        at = datetime.fromisoformat(repaired)
    except ValueError:
        raise WindowRefused(
            f"The {what} “{text[:40]}” is neither a day such as 2026-10-25 nor a time such as "
            "2026-10-25T06:00:00Z."
        ) from None
    if not EARLIEST.year <= at.year < _NEVER:
        raise WindowRefused(f"The {what} “{text[:40]}” is too early or too late.")
    return at.replace(tzinfo=zone) if at.tzinfo is None else at


LABELS = {
    "cluster": "cluster",
    "tier": "tier",
    "team": "team",
    "namespace": "namespace",
    "gpu_model": "GPU model",
    "capacity_type": "capacity type",
}
"""The keys of filters in an address, in the order of links, and how a reader calls them."""
EVERY = tuple(LABELS)
_MOST = 100  # names under one key, which somebody else may have written


class Filtering(Struct, frozen=True):
    """`filters` are in force. `asides` are pairs that this page does not take.

    `query` holds both, for links. `choices` are the names that can be added, by the key of the
    filter; None where a name has to be written, because there may be very many. `problems` say
    what was asked for and is not there.
    """

    filters: Filters = field(default_factory=Filters)
    asides: Query = ()
    query: Query = ()
    choices: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    problems: Sequence[str] = ()


def filtering_of(
    params: QueryDict,
    *,
    takes: Sequence[str],
    keeps: bool,
    clusters: Sequence[str],
    visibility: Visibility,
    now: datetime,
) -> Filtering:
    """Return how `params` narrow a page that takes these filters, the cluster among them always.

    `keeps`: whether other filters stay in the links. No query for a page that takes clusters
    alone; else one, and three at most where a namespace is named.
    """
    taken = [key for key in EVERY if key == "cluster" or key in takes]
    known = {"cluster": clusters, **(filter_names(visibility=visibility) if takes else {})}
    asked = {key: _chosen_names(params, key) for key in EVERY}
    in_force: dict[str, tuple[str, ...]] = {}
    problems = []
    for key in taken:
        if key == "namespace":
            in_force[key] = namespaces_seen(asked[key], visibility=visibility, now=now)
            problem = _unseen(asked[key], in_force[key])
        else:
            in_force[key], problem = names_from(params, key, known[key], LABELS[key])
        problems += [problem] if problem else []
    asides = [(key, name) for key in EVERY if key not in taken for name in asked[key]]
    # Filters of other pages travel along, so that the next page still has them.
    passed = in_force | ({key: asked[key] for key, _ in asides} if keeps else {})
    return Filtering(
        filters=Filters(**in_force),
        asides=asides if keeps else (),
        query=[(key, name) for key in EVERY for name in passed.get(key, ())],
        choices={key: None if key == "namespace" else known[key] for key in taken},
        problems=problems,
    )


def _chosen_names(params: QueryDict, key: str) -> tuple[str, ...]:
    """Return the names under a key; never one that PostgreSQL refuses to compare with."""
    names = [name for name in params.getlist(key) if name and "\0" not in name]
    return tuple(dict.fromkeys(names))[:_MOST]


def _unseen(asked: Sequence[str], seen: Sequence[str]) -> str:
    unknown = [name for name in asked if name not in seen]
    return f"There is no namespace “{unknown[0][:80]}” that you may see." if unknown else ""
