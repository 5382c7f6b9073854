"""Recommendations: the list by state, the page of one, decisions, and the file."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

from django.http import Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.urls import reverse
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import can_administer, teams_led_by
from apps.costs import selectors as costs
from apps.costs.domain.costing import money as in_units
from apps.costs.domain.costing import units
from apps.costs.domain.recommendations.recommendation import (
    SAVED_GPU_HOURS,
    CoverageGap,
    RecommendationKind,
    RecommendationState,
)
from apps.costs.selectors import (
    DECIDED,
    DECIDED_TO_SAVE,
    RecommendationFilters,
    RecommendationRow,
    RecommendationSum,
    Savings,
    WasteCovered,
    waste_covered,
)
from apps.costs.services import (
    DecisionRefused,
    UnknownRecommendation,
    accept_recommendation,
    dismiss_recommendation,
    reopen_recommendation,
)
from apps.usage.domain.amounts import nano
from apps.web.components import formats, page_query
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import (
    Query,
    figure_href,
    href,
    path_of,
    with_query,
)
from apps.web.components.tables import Column, declared_columns, declared_values
from apps.web.components.tabs import TAB_KEY, Tab, tab_bar
from apps.web.components.window_picker import remaining_query
from apps.web.costs import money_format
from apps.web.costs.money_format import MoneyRow, MoneyTable, number_of
from apps.web.costs.recommendation_view import (
    KINDS,
    STATES,
    UNPRICED,
    RecommendationLine,
    figures_of,
    line_of,
    money,
)
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

TAKES = ("tier", "team", "namespace")
TABS = tuple(Tab(state.value, label.capitalize()) for state, (label, _) in STATES.items())
MOST = 10_000
"""Rows that are listed at most; the largest savings come first."""
_LONGEST_QUERY = 2000
GAPS: Mapping[str, str] = {
    CoverageGap.WELL_USED: "Well used workloads",
    CoverageGap.TOO_SHORT: "Less than seven days",
    CoverageGap.NO_METRICS: "No metrics",
    CoverageGap.ENDED: "Work has ended",
    CoverageGap.UNAVAILABLE: "Unavailable GPUs",
    CoverageGap.NEEDED: "Unallocated, needed at peaks",
    CoverageGap.NO_RULE: "No rule applies",
    CoverageGap.REMAINDER: "Left after changes",
    DECIDED: "Accepted or dismissed",
}
"""Why nothing open is recommended against some waste."""


class RecommendationQuery(Struct, frozen=True):
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense."""

    kinds: tuple[str, ...]
    states: tuple[str, ...]
    query: Query
    problem: str

    def filters(self, reading: QuerySession) -> RecommendationFilters:
        states = self.states or (RecommendationState.OPEN.value,)
        return reading.filters.of_kind(RecommendationFilters, kind=self.kinds, state=states)


def query_of(params: QueryDict) -> RecommendationQuery:
    """Return what an address asks; what is not understood narrows nothing and is told."""
    kinds, unknown = page_query.names_from(
        params, "kind", [kind.value for kind in RecommendationKind]
    )
    states, no_state = page_query.names_from(
        params, "state", [state.value for state in RecommendationState]
    )
    return RecommendationQuery(
        kinds,
        states,
        [("kind", name) for name in kinds],
        " ".join(text for text in (unknown, no_state) if text),
    )


class Covered(Struct, frozen=True):
    """Waste covered as the page shows it; `rest` adds up to what is not covered, to the cent."""

    ratio: float
    covered: str
    waste: str
    short: str
    days: str
    rest: Sequence[tuple[str, str]]


def covered_of(found: WasteCovered, zone: ZoneInfo) -> Covered | None:
    """Return the waste covered; None before evidence was looked at, or without priced waste."""
    if found.ratio is None:
        return None
    amounts = [found.covered, *(cost for _, cost in found.rest)]
    # Rounded together, so that the parts add up to the waste as they are printed.
    texts = money_format.texts(amounts, found.currency, digits=money_format.WHOLE)
    covered, *rest = (formats.money(money_format.number(one), found.currency) for one in texts)
    return Covered(
        ratio=found.ratio,
        covered=covered,
        short=f"{_whole(found.covered, found)} of {_whole(found.waste, found)}",
        waste=_whole(found.waste, found),
        days=_days(found, zone),
        rest=[
            (GAPS.get(reason, reason), text)
            for (reason, _), text in zip(found.rest, rest, strict=True)
        ],
    )


def _days(found: WasteCovered, zone: ZoneInfo) -> str:
    if found.first and found.last:
        return formats.days_text(found.first, found.last, zone)
    return f"up to {formats.day_text(found.last, zone)}" if found.last else ""


def _whole(amount: int, found: WasteCovered) -> str:
    return formats.money(in_units(amount), found.currency)


def _figures(
    filters: RecommendationFilters,
    covered: WasteCovered,
    asked: RecommendationQuery,
    reading: QuerySession,
) -> FigureRow:
    """Return the savings that are open, accepted and realized, and the waste that is covered."""
    query = (*reading.query, *asked.query)
    asks_accepted = [*query, *(("state", state) for state in DECIDED_TO_SAVE)]
    found = costs.savings(filters=filters, visibility=reading.visibility, now=reading.now)
    saving = "saving_per_month"
    figures = [
        _open_figure(found, covered, partial(figure_href, saving, query)),
        _sum_figure(
            "Accepted savings", found.accepted, partial(figure_href, saving, asks_accepted)
        ),
        _realized(found, query),
        _covered_figure(covered, query, reading.choice.zone),
    ]
    if found.quota:
        href_of = partial(figure_href, "quota_saving_per_month", query)
        figures.append(_sum_figure("Quota, no cash", found.quota, href_of))
    return figure_row(*figures)


def _open_figure(found: Savings, covered: WasteCovered, href_of: Callable[..., str]) -> KeyFigure:
    label = "Open savings"
    # Before evidence was looked at a 0 would say that there is nothing to save.
    if not found.open and covered.last is None:
        return no_data(label, "No evidence was looked at yet.", note="not checked yet")
    return _sum_figure(label, found.open, href_of)


def _sum_figure(
    label: str, sums: Sequence[RecommendationSum], href_of: Callable[..., str]
) -> KeyFigure:
    """Return a sum; of several currencies the first, which is explained, before the others."""
    priced = [one for one in sums if one.saving_per_month is not None]
    count = sum(one.count for one in sums)
    note = f"{count:,} counted"
    # Unpriced ones save something of unknown worth: that is no 0.
    if not priced:
        return KeyFigure(label, UNPRICED if count else "0", note=note)
    texts = [money(one.saving_per_month, one.currency) for one in priced]
    return KeyFigure(
        label,
        " + ".join(texts),
        "a month",
        href=href_of(currency=priced[0].currency),
        note=note,
    )


def _realized(found: Savings, query: Query) -> KeyFigure:
    label = "Realized savings"
    # Before the first verdict a 0 would say that no saving came.
    if not found.judged:
        reason = "A saving is judged seven days after a recommendation is accepted."
        return no_data(label, reason, note="none judged yet")
    if not found.realized:
        return KeyFigure(label, "0", note=f"of {found.judged} judged")
    texts = [money(one.saving_per_month, one.currency) for one in found.realized]
    return KeyFigure(
        label,
        " + ".join(texts),
        "a month",
        href=figure_href("realized_savings", query, currency=found.realized[0].currency),
        note=f"{sum(one.count for one in found.realized)} of {found.judged} judged",
    )


def _covered_figure(found: WasteCovered, query: Query, zone: ZoneInfo) -> KeyFigure:
    label, known = "Waste covered", covered_of(found, zone)
    if known is None:
        return no_data(label, "No priced waste was looked at yet.")
    return KeyFigure(
        label,
        formats.percent(known.ratio),
        exact=f"{known.covered} of {known.waste}, {known.days}; each GPU-hour counts once",
        href=figure_href("waste_covered", query),
        note=known.short,
    )


# ---------------------------------------------------------------- the list

_SHOWN = ("team", "tier", "cluster", "confidence")
_OF_STATES: Mapping[str, Sequence[Column]] = {
    RecommendationState.ACCEPTED: (Column("realized", "Realized", Format.DECIMAL, "a month"),),
    RecommendationState.DONE: (Column("realized", "Realized", Format.DECIMAL, "a month"),),
    RecommendationState.DISMISSED: (Column("dismiss_reason", "Reason given", wraps=True),),
}


def _columns(state: str, *, decides: bool) -> list[Column]:
    declared = {column.key: column for column in declared_columns(RecommendationRow)}
    own = [declared.pop(key) for key in _SHOWN]
    more = list(_OF_STATES.get(state, ()))
    saving = replace(declared.pop("saving_per_month"), label="Saving", unit="a month")
    return [
        Column("recommendation", "Recommendation"),
        saving,
        Column("saved_gpu_hours_per_month", "GPU-hours", Format.GPU_HOURS, "a month"),
        *more,
        Column("subject", "Subject"),
        *own,
        Column("days", "Evidence", Format.NUMBER, "days"),
        Column("counted", "Counted", hint="Of alternatives for one subject the best is counted."),
        *([Column("action", "Action")] if decides else []),
        *(replace(column, in_files=True) for column in declared.values()),
    ]


def _table(
    rows: Sequence[RecommendationRow],
    state: str,
    request: PageRequest,
    reading: QuerySession,
    *,
    empty: str,
    cut: bool,
) -> MoneyTable:
    """Return the recommendations of one state; its file has their words and evidence besides."""
    led = _decides_for(request)
    retained = costs.retained_of(rows, now=reading.now, reader=request.user)
    back = [*reading.query, *query_of(request.GET).query, *_tab(state)]
    lines = [line_of(row, reading, led, back, retained.get(row.pk)) for row in rows]
    # A column of buttons that the reader may not press is left out.
    decides = any(line.decides for line in lines)
    return MoneyTable(
        id="recommendations",
        title="Recommendations",
        columns=_columns(state, decides=decides),
        rows=[_row(line) for line in lines],
        zone=reading.choice.zone,
        empty=empty,
        note=f"Listed are the {MOST:,} largest savings." if cut else "",
        on_phone=(
            "recommendation",
            "saving_per_month",
            "team",
            "tier",
            "subject",
            *(c.key for c in _OF_STATES.get(state, ())),
            "action",
        ),
    )


def _row(line: RecommendationLine) -> MoneyRow:
    row = line.row
    hours = row.evidence.get(SAVED_GPU_HOURS)
    amounts = {
        key: None if amount is None else units(amount)
        for key, amount in (
            ("saving_per_month", row.saving_per_month),
            ("realized", row.saved_per_month),
        )
    }
    # In this order: an alternative is in no sum, whether somebody keeps its subject or not.
    counted = "alternative" if row.alternative else "kept" if line.retained else "yes"
    return MoneyRow(
        {
            **declared_values(row),
            **{key: number_of(amount) for key, amount in amounts.items()},
            "recommendation": line.kind,
            "subject": line.subject,
            "saved_gpu_hours_per_month": None if hours is None else nano(hours),
            "days": row.evidence.get("days"),
            "counted": counted,
            "dismiss_reason": row.dismiss_reason,
            "action": "Request change" if line.ask else "Decide" if line.decides else "",
        },
        {
            "recommendation": line.hrefs["own"],
            "subject": line.hrefs["workload"],
            "team": line.hrefs["team"],
            "tier": line.hrefs["tier"],
            "action": line.ask or line.hrefs["own"],
        },
        explains={"saving_per_month": line.hrefs["saving"] or ""},
        amounts=amounts,
        texts={
            "saving_per_month": line.saving,
            "realized": formats.NOTHING
            if row.saved_per_month is None
            else money(row.saved_per_month, row.currency),
        },
    )


def _tab(state: str) -> Query:
    # The first tab has no key in its address.
    return () if state == RecommendationState.OPEN else ((TAB_KEY, state),)


@page
def recommendations(request: PageRequest) -> HttpResponseBase:
    asked = query_of(request.GET)
    if asked.states:
        return _moved(request, asked.states[0])
    reading = query_session(request, takes=TAKES)
    tabs = tab_bar(request, TABS, name="Recommendations by state")
    filters = replace(asked.filters(reading), state=(tabs.chosen,))
    found = costs.recommendation_page(
        filters=filters, visibility=reading.visibility, cursor=None, page_size=MOST
    )
    looked = costs.recommended_at(visibility=reading.visibility)
    table = _table(
        found.rows,
        tabs.chosen,
        request,
        reading,
        empty=_empty(tabs.chosen, asked, reading, is_looked=looked is not None),
        cut=found.next_cursor is not None,
    )
    counts = dict.fromkeys((state.value for state in RecommendationState), 0)
    # Counted over all states, so that each tab tells how many it has before it is opened.
    for kind, state, count in costs.kinds_found(filters=filters, visibility=reading.visibility):
        if not asked.kinds or kind in asked.kinds:
            counts[state] += count
    covered = waste_covered(filters=filters, visibility=reading.visibility)
    return respond(
        request,
        reading,
        "recommendations",
        tables=[table],
        asked=asked,
        tabs=tabs.counted(counts),
        figures=_figures(filters, covered, asked, reading),
        covered=covered_of(covered, reading.choice.zone),
        kinds=_kind_chips(request, asked, tabs.chosen, reading),
        looked=shown(looked, Format.TIME, reading.choice.zone) if looked else "",
    )


def _moved(request: PageRequest, state: str) -> HttpResponseRedirect:
    """Lead from the addresses that pages had before there were tabs."""
    query = [*remaining_query(request, drop=("state", TAB_KEY)), *_tab(state)]
    return HttpResponseRedirect(with_query(path_of(request), query))


def _kind_chips(
    request: PageRequest, asked: RecommendationQuery, state: str, reading: QuerySession
) -> list[tuple[str, str]]:
    """Return (kind, address without it) of the kinds that the list is narrowed to."""
    query = [*reading.query, *asked.query, *_tab(state)]
    return [
        (
            KINDS[RecommendationKind(kind)],
            with_query(path_of(request), [pair for pair in query if pair != ("kind", kind)]),
        )
        for kind in asked.kinds
    ]


_EMPTY: Mapping[str, str] = {
    RecommendationState.OPEN: "No open recommendations: allocated GPUs are used, or have too few "
    "metrics to tell.",
    RecommendationState.ACCEPTED: "No accepted recommendations. Accept an open one; its saving is "
    "judged after seven days.",
    RecommendationState.DISMISSED: "No dismissed recommendations.",
    RecommendationState.DONE: "No saving is realized in full yet. Accepted ones are judged after "
    "seven days.",
    RecommendationState.GONE: "Every recommendation that was open is still found.",
}


def _empty(
    state: str, asked: RecommendationQuery, reading: QuerySession, *, is_looked: bool
) -> str:
    """Return the one cause of an empty list."""
    own = reading.filters
    # Before filters: to remove one would not help while nothing was looked at.
    if not is_looked:
        return (
            "No evidence was looked at yet: that needs seven collected days, and is done once for "
            "each new day."
        )
    if asked.kinds or own.team or own.tier or own.cluster or own.namespace:
        return "No recommendation matches. Remove a filter."
    return _EMPTY[state]


def _decides_for(request: PageRequest) -> Collection[int] | None:
    """Return the teams on whose recommendations the reader decides; None: on all."""
    return None if can_administer(request.user) else teams_led_by(request.user)


# ---------------------------------------------------------------- one recommendation


@page
def recommendation(request: PageRequest, pk: int) -> HttpResponseBase:
    return _one(request, pk)


def _one(request: PageRequest, pk: int, *, problem: str = "") -> HttpResponseBase:
    """Return the page of one; `problem` says why a decision was refused."""
    # After a refused decision the address is that of the decision, and the form has the list's.
    back = _back_of(request) if request.method == "POST" else remaining_query(request, drop=())
    reading = query_session(request)
    row = costs.recommendation(pk, visibility=reading.visibility)
    if row is None:
        raise Http404("There is no such recommendation, or it is not yours.")
    retained = costs.retained_of([row], now=reading.now, reader=request.user).get(pk)
    line = line_of(row, reading, _decides_for(request), back, retained)
    return respond(
        request,
        reading,
        "recommendation",
        status=400 if problem else 200,
        line=line,
        figures=figures_of(line),
        problem=problem,
        back=with_query("", back).removeprefix("?"),
        back_href=href("recommendations", back),
    )


@change
def accept(request: PageRequest, pk: int) -> HttpResponseBase:
    return _decided(request, pk, accept_recommendation)


@change
def dismiss(request: PageRequest, pk: int) -> HttpResponseBase:
    reason = request.POST.get("reason", "")
    return _decided(request, pk, partial(dismiss_recommendation, reason=reason))


@change
def reopen(request: PageRequest, pk: int) -> HttpResponseBase:
    return _decided(request, pk, reopen_recommendation)


def _decided(request: PageRequest, pk: int, decide: Callable[..., None]) -> HttpResponseBase:
    """Decide, and go back to the page of the recommendation, or say there why not."""
    reading = query_session(request)
    try:
        decide(request.user, pk, now=reading.now)
    except UnknownRecommendation as unknown:
        raise Http404(str(unknown)) from unknown
    except DecisionRefused as refusal:
        return _one(request, pk, problem=str(refusal))
    own = href("recommendation", _back_of(request), pk=str(pk))
    return HttpResponseRedirect(own or reverse("web:recommendations"))


def _back_of(request: PageRequest) -> Query:
    """Return the query of the list that the reader came from."""
    # It comes from the form, and only ever leads back to the list of this portal.
    return parse_qsl(request.POST.get("back", "")[:_LONGEST_QUERY])
