"""Recommendations: the list with evidence and savings, decisions on each, and the file."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from django.http import Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse

from apps.accounts.permissions import can_administer, teams_led_by
from apps.clusters.domain.names import ANY
from apps.costs import selectors as costs
from apps.costs.domain.recommendations.recommendation import (
    DECIDABLE,
    OF_QUOTA,
    SAVED_EACH,
    CoverageGap,
    FollowUpOutcome,
    RecommendationKind,
    RecommendationState,
)
from apps.costs.selectors import (
    DECIDED,
    RECOMMENDED,
    RecommendationFilters,
    RecommendationRow,
    RecommendationSum,
    RetainedWorkload,
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
from apps.quotas.domain.keys import QuotaRef
from apps.usage.domain.usage_query import RowPage
from apps.web.alerts.alert_list import kept_words
from apps.web.components import formats, page_query
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import (
    Query,
    figure_href,
    href,
    next_href,
    path_of,
    with_query,
    without,
    workload_href,
)
from apps.web.components.tables import Table, TableRow, declared_columns, declared_values
from apps.web.costs import money_format
from apps.web.costs.query import Option
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, every_row, query_session
from apps.web.quota_requests.request_input import ask_href

TAKES = ("tier", "team", "namespace")
KINDS: Mapping[RecommendationKind, str] = {
    RecommendationKind.FEWER_GPUS: "fewer GPUs",
    RecommendationKind.MIG_PROFILE: "a MIG profile",
    RecommendationKind.SHARED_TIER: "a shared tier",
    RecommendationKind.SMALLER_MODEL: "a smaller model",
    RecommendationKind.STOP_IDLE_NOTEBOOK: "stop an idle notebook",
    RecommendationKind.UNUSED_QUOTA: "quota held but unused",
    RecommendationKind.MIG_LAYOUT: "another MIG layout",
    RecommendationKind.SPOT: "spot capacity",
    RecommendationKind.EMPTY_NODES: "nodes that stand empty",
    RecommendationKind.IDLE_START: "idle start",
    RecommendationKind.IDLE_END: "idle end",
    RecommendationKind.IDLE_TIMEOUT: "idle timeout",
    RecommendationKind.SCALE_TO_DEMAND: "scale to demand",
    RecommendationKind.EMPTY_HOURS: "empty hours",
    RecommendationKind.LEND_QUOTA: "lend quota",
}
STATES: Mapping[RecommendationState, tuple[str, str]] = {
    RecommendationState.OPEN: ("open", "none"),
    RecommendationState.ACCEPTED: ("accepted", "partial"),
    RecommendationState.DISMISSED: ("dismissed", "none"),
    RecommendationState.DONE: ("done", "complete"),
    RecommendationState.GONE: ("no longer found", "none"),
}
_VERDICTS: Mapping[str, str] = {
    FollowUpOutcome.TOO_EARLY: "Too early to say: seven days have to be collected since.",
    FollowUpOutcome.CAME: "The saving came.",
    FollowUpOutcome.PARTLY: "A part of the saving came.",
    FollowUpOutcome.DID_NOT: "The saving did not come.",
}
_FIGURES: Mapping[str, tuple[str, Format, str]] = {
    "days": ("evidence", Format.NUMBER, "days"),
    "weeks": ("evidence", Format.COUNT, "weeks"),
    "gpu_hours": ("held", Format.NUMBER, "GPU-hours"),
    "coverage_ratio": ("measured", Format.RATIO, ""),
    "mean_activity": ("mean activity", Format.RATIO, ""),
    "p95_activity": ("95 % of half-hours at most", Format.RATIO, ""),
    "idle_ratio": ("idle of what it held", Format.RATIO, ""),
    "idle_hours_now": ("idle up to now", Format.NUMBER, "hours"),
    "memory_peak_mib": ("peak memory of a GPU", Format.COUNT, "MiB"),
    "card_memory_mib": ("memory of the GPU", Format.COUNT, "MiB"),
    "memory_there_mib": ("memory there", Format.COUNT, "MiB"),
    "expected_p95_activity": ("95 % of half-hours there", Format.RATIO, ""),
    "gpus_per_pod": ("GPUs of a pod", Format.COUNT, ""),
    "gpus_never_active": ("of them never active", Format.COUNT, ""),
    "profile": ("profile", Format.TEXT, ""),
    "profile_share": ("share of the GPU", Format.RATIO, ""),
    "price_per_gpu_hour": ("price in force", Format.TEXT, "per GPU-hour"),
    "price_there": ("price there", Format.TEXT, "per GPU-hour"),
    "spot_price_per_gpu_hour": ("price of spot", Format.TEXT, "per GPU-hour"),
    "restarts": ("restarts", Format.COUNT, ""),
    "finished_after_restart": ("runs that finished after one", Format.COUNT, ""),
    "hard": ("quota allows", Format.NUMBER, ""),
    "peak_used": ("most that was used at once", Format.NUMBER, ""),
    "unallocated_gpus": ("stood empty in the tier", Format.NUMBER, "GPUs"),
    "cards": ("cards", Format.COUNT, ""),
    "stranded_slices_now": ("slices stranded now", Format.COUNT, "of a GPU"),
    "stranded_slices_then": ("slices stranded then", Format.COUNT, "of a GPU"),
    "most_held": ("most that was held", Format.TEXT, ""),
    "empty_node_hours_per_week": ("empty every week", Format.COUNT, "node-hours"),
    "gpus_per_node": ("GPUs of a node", Format.COUNT, ""),
    "quiet_gpu_hours": ("held and quiet", Format.NUMBER, "GPU-hours"),
    "freed_gpu_hours": ("freed", Format.NUMBER, "GPU-hours"),
    "pending_gpu_hours_at_most": ("pending then, at most", Format.NUMBER, "GPU-hours"),
    "workloads_hit": ("workloads hit", Format.COUNT, ""),
    "pods_hit": ("pods hit", Format.COUNT, ""),
    "most_hit": ("most hit", Format.TEXT, ""),
    "most_replicas_held": ("most replicas held", Format.NUMBER, ""),
    "most_replicas_needed": ("most replicas needed", Format.COUNT, ""),
    "empty_gpu_hours": ("empty", Format.NUMBER, "GPU-hours"),
    "usual_gpu_hours": ("usually empty", Format.NUMBER, "GPU-hours"),
    "always_empty_gpus": ("always empty", Format.COUNT, "GPUs"),
    "usual_used": ("used in nine of ten hours", Format.NUMBER, ""),
    "free_unit_hours": ("free while other work was pending", Format.NUMBER, "unit-hours"),
    "pending_unit_hours": ("pending demand of other work", Format.NUMBER, "unit-hours"),
    "saved_gpu_hours_per_month": ("saved", Format.NUMBER, "GPU-hours a month"),
    "saved_per_gpu_hour": ("price saved", Format.TEXT, "per GPU-hour"),
    "members": ("workloads judged together", Format.COUNT, ""),
}
_NO_WORKLOAD = (
    *OF_QUOTA,
    RecommendationKind.EMPTY_NODES,
    RecommendationKind.EMPTY_HOURS,
    RecommendationKind.IDLE_TIMEOUT,
)
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
UNPRICED = "unpriced"
_UNKNOWN = "This cannot be told: not everything since was priced, or not at comparable prices."


@dataclass(frozen=True, slots=True)
class RecommendationQuery:
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense."""

    kinds: tuple[str, ...]
    states: tuple[str, ...]
    query: Query
    problem: str

    def filters(self, reading: QuerySession) -> RecommendationFilters:
        own = reading.filters
        states = self.states or (RecommendationState.OPEN.value,)
        return RecommendationFilters(
            own.cluster, own.tier, own.team, own.namespace, self.kinds, states
        )

    def kind_options(self, counts: Sequence[tuple[str, str, int]]) -> list[Option]:
        """Return the kinds that there are any of, and those asked for."""
        there = {kind for kind, _, _ in counts} | set(self.kinds)
        first = self.kinds[0] if self.kinds else ""
        kinds = [Option(k.value, name, k.value == first) for k, name in KINDS.items() if k in there]
        return [Option("", "any", not first), *kinds]

    def state_options(self, counts: Sequence[tuple[str, str, int]]) -> list[Option]:
        """Return every state with how many there are, of all kinds."""
        first = self.states[0] if self.states else RecommendationState.OPEN.value
        of = {state: sum(n for _, s, n in counts if s == state) for state in RecommendationState}
        return [
            Option(state.value, f"{label} ({of[state]})", state.value == first)
            for state, (label, _) in STATES.items()
        ]


def asked_of(params: QueryDict) -> RecommendationQuery:
    """Return what an address asks; what is not understood narrows nothing and is told."""
    kinds, unknown = page_query.names_from(
        params, "kind", [kind.value for kind in RecommendationKind]
    )
    states, no_state = page_query.names_from(
        params, "state", [state.value for state in RecommendationState]
    )
    query = (*(("kind", name) for name in kinds), *(("state", name) for name in states))
    return RecommendationQuery(
        kinds, states, query, " ".join(text for text in (unknown, no_state) if text)
    )


@dataclass(frozen=True, slots=True)
class RecommendationLine:
    """One recommendation ready for the page; `problem` says why a decision was refused."""

    row: RecommendationRow
    title: str
    saving: str
    state: str
    css: str
    hrefs: Mapping[str, str | None]
    evidence: Sequence[tuple[str, str]]
    followed: Sequence[str]
    decides: bool
    problem: str = ""
    name: str = ""
    ask: str = ""
    kept: str = ""

    @property
    def risk(self) -> str:
        return self.row.risk

    @property
    def cash(self) -> bool:
        return self.row.cash


def line_of(
    row: RecommendationRow,
    reading: QuerySession,
    led: Collection[int] | None,
    kept: RetainedWorkload | None = None,
) -> RecommendationLine:
    """Return a line; `led` are the teams whose recommendations the reader decides on, None: all.

    For a quota to lower, a reader who may decide can also request the change: `ask` opens the form.
    """
    state, css = STATES[RecommendationState(row.state)]
    may = led is None or (row.team_id is not None and row.team_id in led)
    lowered = _lowered(row)
    return RecommendationLine(
        row=row,
        title=KINDS[RecommendationKind(row.kind)],
        saving=money(row.saving_per_month, row.currency),
        state=state,
        css=css,
        hrefs=_hrefs(row, reading.query),
        evidence=_evidence(row.evidence, row.currency or ""),
        followed=_followed(row),
        decides=may and row.state in DECIDABLE,
        name=_named(row, lowered),
        ask=_ask(row, lowered, reading.query) if may and row.state in DECIDABLE else "",
        kept=kept_words(kept, reading.choice.zone),
    )


_LOWERED = re.compile(r"Lower (?P<key>.+?) from (?P<before>\S+) to (?P<after>[^\s:]+):")
Lowered = tuple[str, str, str]
"""Key, the amount now, the amount to lower it to."""


def _lowered(row: RecommendationRow) -> Lowered | None:
    """Return what the words of a recommendation lower; None for others and other words."""
    found = _LOWERED.match(row.change) if row.kind == RecommendationKind.UNUSED_QUOTA else None
    return found.group("key", "before", "after") if found else None  # type: ignore[return-value]


def _named(row: RecommendationRow, lowered: Lowered | None) -> str:
    """Return a recommendation's title: its subject; of a quota its team, and the change."""
    if (
        row.kind in (RecommendationKind.EMPTY_NODES, RecommendationKind.EMPTY_HOURS)
        and row.workload
    ):
        _, paid, model = row.workload.split("/", 2)
        return f"{row.tier} on {row.cluster}: GPU model {model}, capacity type {paid}"
    if lowered is None:
        return row.workload or row.node or row.tier or ""
    key, before, after = lowered
    whose = row.namespace or row.workload.partition("/")[2]
    return f"{whose}: {key} {before} → {after}"


def _ask(row: RecommendationRow, lowered: Lowered | None, query: Query) -> str:
    source, _, name = row.workload.partition("/")
    if lowered is None or not name:
        return ""
    key, _before, after = lowered
    ref = QuotaRef(source, row.namespace, name, key, row.cluster)
    return ask_href(ref, after=after, query=query)


def money(amount: Decimal | None, currency: str | None) -> str:
    """Write an amount; what has no price says so."""
    return UNPRICED if amount is None else formats.money(amount, currency or "")


def _hrefs(row: RecommendationRow, query: Query) -> dict[str, str | None]:
    workload = None
    if row.workload and not row.workload.endswith(("/", ANY)) and row.kind not in _NO_WORKLOAD:
        workload = workload_href(row.cluster, row.namespace, row.workload, query)
    saving = figure_href(RECOMMENDED, query, recommendation=str(row.pk))
    return {
        # What was found before these numbers were kept cannot be explained.
        "saving": saving if SAVED_EACH in row.evidence else None,
        "workload": workload,
        "team": href("team", query, name=row.team) if row.team else None,
        "tier": href("tier", query, name=row.tier) if row.tier else None,
    }


def _evidence(found: Mapping[str, Any], currency: str) -> list[tuple[str, str]]:
    """Return (what, how much) of the figures that it rests on, in a fixed order."""
    known = [name for name in _FIGURES if name in found]
    return [(_FIGURES[name][0], _figure(name, found[name], currency)) for name in known]


def _figure(name: str, value: Any, currency: str) -> str:
    _, kind, unit = _FIGURES[name]
    if "price" in name:
        return f"{Decimal(str(value)).normalize():f} {currency} {unit}"
    text = str(value) if kind is Format.TEXT or isinstance(value, str) else _number(value, kind)
    return f"{text} {unit}".strip()


def _number(value: float, kind: Format) -> str:
    if kind is Format.RATIO:
        return formats.percent(value)
    return f"{value:,.0f}" if kind is Format.COUNT else f"{value:,.1f}".removesuffix(".0")


def _followed(row: RecommendationRow) -> list[str]:
    """Return what came of an accepted one, in sentences; both costs, so that one can judge."""
    if row.state not in (RecommendationState.ACCEPTED, RecommendationState.DONE):
        return []
    if row.cost_before is None or row.days_before is None:
        return ["Whether its saving comes cannot be told: its own cost before is not known."]
    not_told = _UNKNOWN if row.days_after is not None else _VERDICTS[FollowUpOutcome.TOO_EARLY]
    said = [_VERDICTS.get(row.verdict, not_told)]
    if row.saved_per_month is not None:
        said[0] += f" It costs {money(row.saved_per_month, row.currency)} a month less than before."
    said.append(_cost("Before", row.cost_before, row.days_before, row.currency))
    if row.cost_after is not None and row.days_after is not None:
        said.append(_cost("Since", row.cost_after, row.days_after, row.currency))
    return said


def _cost(when: str, cost: Decimal, days: float, currency: str | None) -> str:
    return f"{when}: {money(cost, currency)} in {_number(days, Format.NUMBER)} days."


def facts_of(sums: Iterable[RecommendationSum]) -> list[tuple[str, str, str]]:
    """Return (what they save together, of how many, currency), by currency."""
    return [
        (
            money(one.saving_per_month, one.currency),
            f"{one.count} subject{'s' * (one.count != 1)}",
            one.currency if one.saving_per_month is not None else "",
        )
        for one in sums
    ]


@dataclass(frozen=True, slots=True)
class Covered:
    """Waste covered as the page shows it; `rest` adds up to what is not covered, to the cent."""

    ratio: float
    covered: str
    waste: str
    days: str
    rest: Sequence[tuple[str, str]]


def covered_of(found: WasteCovered) -> Covered | None:
    """Return the waste covered; None before evidence was looked at, or without priced waste."""
    if found.ratio is None:
        return None
    amounts = [found.covered, *(cost for _, cost in found.rest)]
    covered, *rest = money_format.texts(amounts, found.currency)
    return Covered(
        ratio=found.ratio,
        covered=f"{covered} {found.currency}",
        waste=f"{money_format.text(found.waste, found.currency)} {found.currency}",
        days=f"{found.first} to {found.last}" if found.first else f"up to {found.last}",
        rest=[
            (GAPS.get(reason, reason), f"{text} {found.currency}")
            for (reason, _), text in zip(found.rest, rest, strict=True)
        ],
    )


def file_table(
    every: Callable[[], Iterable[RecommendationRow]],
    reading: QuerySession,
    *,
    any_rows: bool,
    next_href: str | None,
) -> Table:
    """Return the table whose file has all rows; the page shows lines instead of its rows."""
    return Table(
        id="recommendations",
        title="Recommendations",
        columns=declared_columns(RecommendationRow),
        rows=(TableRow({}),) if any_rows else (),
        zone=reading.choice.zone,
        empty="",
        next_href=next_href,
        every=lambda: (TableRow(declared_values(row)) for row in every()),
        ordered=True,
    )


def checked_words(at: Any, reading: QuerySession) -> str:
    """Return when evidence was last looked at; empty where it never was."""
    return "" if at is None else shown(at, Format.TIME, reading.choice.zone)


PER_PAGE = 10  # each with its evidence
PER_FILE_READ = 500
_OWN = ("cluster", "tier", "team")


@page
def recommendations(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    asked = asked_of(request.GET)
    filters = asked.filters(reading)
    found = _page(reading, filters, request.GET.get("cursor") or None)
    led = _decides_for(request)
    kept = costs.retained_of(found.rows, now=reading.now)
    counts = costs.kinds_found(filters=filters, visibility=reading.visibility)
    table = file_table(
        lambda: every_row(lambda at: _page(reading, filters, at, PER_FILE_READ)),
        reading,
        any_rows=bool(found.rows),
        next_href=next_href(path_of(request), (*reading.query, *asked.query), found.next_cursor),
    )
    return respond(
        request,
        reading,
        "recommendations",
        tables=[table],
        lines=[line_of(row, reading, led, kept=kept.get(row.pk)) for row in found.rows],
        asked=asked,
        kinds=asked.kind_options(counts),
        states=asked.state_options(counts),
        sums=facts_of(
            costs.recommendation_sums(
                filters=filters, visibility=reading.visibility, now=reading.now
            )
        ),
        quota_sums=facts_of(
            costs.recommendation_sums(filters=filters, visibility=reading.visibility, of_quota=True)
        ),
        covered=covered_of(waste_covered(filters=filters, visibility=reading.visibility)),
        looked=checked_words(costs.recommended_at(visibility=reading.visibility), reading),
        explain_query=(*reading.query, *asked.query),
        hidden=without(reading.query, *_OWN),
        back=with_query("", (*reading.query, *asked.query)).removeprefix("?"),
    )


def _page(
    reading: QuerySession, filters: RecommendationFilters, cursor: str | None, size: int = PER_PAGE
) -> RowPage[RecommendationRow]:
    return costs.recommendation_page(
        filters=filters, visibility=reading.visibility, cursor=cursor, page_size=size
    )


def _decides_for(request: PageRequest) -> Collection[int] | None:
    """Return the teams on whose recommendations the reader decides; None: on all."""
    return None if can_administer(request.user) else teams_led_by(request.user)


# ---------------------------------------------------------------- deciding


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
    """Decide, and answer with the line for htmx; without it go back to the list, or say why not."""
    reading = query_session(request)
    problem = ""
    try:
        decide(request.user, pk, now=reading.now)
    except UnknownRecommendation as unknown:
        raise Http404(str(unknown)) from unknown
    except DecisionRefused as refusal:
        problem = str(refusal)
    back = QueryDict(request.POST.get("back", "")[:2000]).urlencode()
    if not request.htmx and not problem:
        address = reverse("web:recommendations")
        return HttpResponseRedirect(f"{address}?{back}#recommendation-{pk}" if back else address)
    line = replace(_line(request, reading, pk), problem=problem)
    shown = {"line": line, "reading": reading, "choice": reading.choice, "back": back}
    if request.htmx:
        return render(request, "recommendations/_row.html", shown)
    return respond(
        request,
        reading,
        "recommendations",
        status=400,
        lines=[line],
        back=back,
        one=True,
    )


def _line(request: PageRequest, reading: QuerySession, pk: int) -> RecommendationLine:
    row = costs.recommendation(pk, visibility=reading.visibility)
    if row is None:
        raise Http404("There is no such recommendation, or it is not yours.")
    kept = costs.retained_of([row], now=reading.now).get(pk)
    return line_of(row, reading, _decides_for(request), kept=kept)
