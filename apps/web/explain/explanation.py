"""An explanation of one figure: its formula with its own numbers, and where these come from."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec import Struct

from apps.clusters import gateways
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import ShownColumn, ShownQuery
from apps.usage.domain.amounts import Amounts
from apps.web.components.formats import Format, exact, plain, shown
from apps.web.components.page_query import LABELS, Query
from apps.web.explain.figures import (
    ALLOCATED_EQUATION,
    CAPACITY_EQUATION,
    FIGURES,
    FigureScope,
    LedgerFigure,
    Number,
)
from apps.web.query_session import QuerySession

_SLOT = timedelta(seconds=SLOT_SECONDS)
_MARGIN = timedelta(milliseconds=1)
Write = Callable[[LedgerFigure, Number], str]


class FormulaTerm(Struct, frozen=True):
    """A part of a formula: an operator alone, or a number with its name and explanation.

    `title` is the number in full where `text` is rounded.
    """

    text: str
    label: str = ""
    href: str = ""
    title: str = ""


class Equation(Struct, frozen=True):
    """An equation of the ledger with the numbers in it; `holds`: whether they agree exactly."""

    terms: Sequence[FormulaTerm]
    holds: bool


class QuerySource(Struct, frozen=True):
    """Queries of some clusters; `from_api` are those whose pods the Kubernetes API tells.

    A cluster that is known by its job log has no queries but `files` with `columns`.
    """

    clusters: Sequence[str]
    from_api: Sequence[str]
    about: str
    queries: Sequence[ShownQuery] = ()
    files: str = ""
    columns: Sequence[ShownColumn] = ()


class Explanation(Struct, frozen=True):
    """What the page of a figure says; `nothing` says why there is no value, where there is none.

    `value` is as other pages show it, `rounded` as in the formula, `in_full` to the last digit.
    `formula` is empty for what is counted.
    """

    figure: LedgerFigure
    value: str
    rounded: str
    in_full: str
    formula: Sequence[FormulaTerm]
    equations: Sequence[Equation]
    coverage: str
    from_series: str
    apportioned: str
    nothing: str


def explanation(
    figure: LedgerFigure, amounts: Amounts | None, scope: FigureScope, reading: QuerySession
) -> Explanation:
    """Explain a figure of one line of the ledger; None where no hour of it has facts."""
    known = amounts or Amounts()
    # A pod holds GPUs of one tier: its ratio blends nothing.
    blended = figure.is_ratio and not (scope["tier"] or scope["pod"])
    value = figure.value(known) if amounts and not blended else None
    return Explanation(
        figure=figure,
        value=shown(value, _kind(figure), reading.choice.zone),
        rounded=rounded(figure, value),
        in_full=in_full(figure, value),
        formula=_formula(figure, known, scope, reading.query) if value is not None else (),
        equations=_equations(known, scope, reading.query) if amounts else (),
        coverage=shown(known.coverage_ratio, Format.RATIO, reading.choice.zone),
        apportioned=_apportioned(known, reading),
        from_series=shown(known.from_series_ratio, Format.RATIO, reading.choice.zone),
        nothing="" if value is not None else _nothing(figure, amounts, scope, blended=blended),
    )


def _apportioned(amounts: Amounts, reading: QuerySession) -> str:
    if not amounts.grade_apportioned:
        return ""
    share = amounts.grade_apportioned / amounts.allocated
    return shown(share, Format.RATIO, reading.choice.zone)


def in_full(figure: LedgerFigure, value: Number) -> str:
    """Write a value of a figure in full: GPU-hours to nine decimals, ratios in per cent to six."""
    return _written(figure, value, hours_to=9, percent_to=6)


def rounded(figure: LedgerFigure, value: Number) -> str:
    """Write a value as a formula shows it: GPU-hours to three decimals, per cent to two."""
    return _written(figure, value, hours_to=3, percent_to=2)


def _written(figure: LedgerFigure, value: Number, *, hours_to: int, percent_to: int) -> str:
    if value is None:
        return "unknown"
    if figure.is_ratio:
        # By way of its text: a binary fraction would show digits that were never computed.
        return f"{plain(round(Decimal(repr(float(value))) * 100, percent_to))} %"
    return f"{round(Decimal(value).scaleb(-9), hours_to).normalize():,f}"


def _kind(figure: LedgerFigure) -> Format:
    return Format.RATIO if figure.is_ratio else Format.GPU_HOURS


def _formula(
    figure: LedgerFigure, amounts: Amounts, scope: FigureScope, query: Query
) -> list[FormulaTerm]:
    """Return the terms of a figure's formula, rounded for reading."""
    return _terms(figure.formula, amounts, scope, query, rounded)


def _terms(
    formula: Sequence[str], amounts: Amounts, scope: FigureScope, query: Query, write: Write
) -> list[FormulaTerm]:
    return [
        _number(FIGURES[part], amounts, scope, query, write)
        if part in FIGURES
        else FormulaTerm(part)
        for part in formula
    ]


def _number(
    figure: LedgerFigure, amounts: Amounts, scope: FigureScope, query: Query, write: Write
) -> FormulaTerm:
    value = figure.value(amounts)
    text, full = write(figure, value), in_full(figure, value)
    # A title that repeats its text would only get in the way of the pointer.
    title = full if full != text else ""
    return FormulaTerm(text, figure.label.lower(), scope.href(figure.key, query), title)


def _equations(amounts: Amounts, scope: FigureScope, query: Query) -> list[Equation]:
    # What some teams hold has no capacity to be split.
    asked: list[Sequence[str]] = [] if amounts.capacity is None else [CAPACITY_EQUATION]
    asked.append(ALLOCATED_EQUATION)
    return [
        Equation(_terms(parts, amounts, scope, query, in_full), holds=_holds(parts, amounts))
        for parts in asked
    ]


def _holds(parts: Sequence[str], amounts: Amounts) -> bool:
    whole, *rest = (FIGURES[part].value(amounts) or 0 for part in parts if part in FIGURES)
    return whole == sum(rest)


def _nothing(
    figure: LedgerFigure, amounts: Amounts | None, scope: FigureScope, *, blended: bool
) -> str:
    if figure.of_capacity and not scope.has_capacity:
        return (
            "Only nodes have it: a team, a namespace, a workload or a pod has no capacity of its "
            "own. Ask for that of a tier."
        )
    if amounts is None and scope.is_detailed:
        return (
            "Nothing of that name held a GPU in this window's collected hours, or you may not see "
            "it. Choose another window."
        )
    if amounts is None:
        return "No data in this window. Choose another window."
    if blended:
        return "Tiers are never blended into one ratio: choose one of the tiers below."
    if figure.is_ratio:
        return "There is nothing to divide by, so there is no ratio: that is not the same as 0 %."
    return "It is not known in this window."


# ---------------------------------------------------------------- where it comes from


def sources_of(
    figure: LedgerFigure, reading: QuerySession, *, namespace: str, pods: Sequence[str]
) -> list[QuerySource]:
    """Return the queries behind a figure, clusters with the same ones together. Two queries.

    `namespace` and `pods` narrow them by name; empty for all.
    """
    return queries_of(figure.sources, reading, namespace=namespace, pods=pods)


def queries_of(
    kinds: Sequence[str], reading: QuerySession, *, namespace: str = "", pods: Sequence[str] = ()
) -> list[QuerySource]:
    """Return the queries of these kinds (capacity, holding, activity), as `sources_of` does."""
    if not kinds:
        return []
    wanted = reading.filters.cluster
    rows = [
        row
        for row in clusters.cluster_rows(visibility=reading.visibility)
        if not wanted or row.name in wanted
    ]
    known = gateways.known_by()
    own, logs = known.matchers, known.job_logs
    # Queries differ by matchers alone: clusters with the same ones share what is shown.
    alike: dict[tuple[tuple[str, str], ...], list[clusters.ClusterRow]] = {}
    for row in rows:
        if row.name not in logs:
            alike.setdefault(tuple(sorted(own.get(row.name, {}).items())), []).append(row)
    from_series = [
        QuerySource(
            clusters=[row.name for row in group],
            from_api=[row.name for row in group if row.has_kubernetes_api],
            about=about,
            queries=gateways.explain_queries(
                about=about, matchers=dict(matchers), namespace=namespace, pods=pods
            ),
        )
        for matchers, group in alike.items()
        for about in kinds
    ]
    # Queries that cannot be run would explain nothing: of a job log its files and columns do.
    return from_series + [
        QuerySource(
            [row.name], (), about, files=logs[row.name], columns=gateways.log_columns(about)
        )
        for row in rows
        if row.name in logs
        for about in kinds
    ]


class Instants(Struct, frozen=True):
    """When the queries are put: at `count` instants, half an hour apart."""

    first: str
    last: str
    count: int


def lasting_href(figure: LedgerFigure, scope: FigureScope, reading: QuerySession) -> str:
    """Return the address of this explanation that means the same window tomorrow.

    Empty where that of the page does: days and times stay what they are.
    """
    if not reading.choice.preset:
        return ""
    zone = reading.choice.zone
    times = (
        ("start", exact(reading.window.start, Format.TIME, zone)),
        ("end", exact(reading.window.end, Format.TIME, zone)),
    )
    chosen = [(key, name) for key in LABELS for name in getattr(reading.filters, key)]
    return scope.href(figure.key, (*times, *chosen))


def instants_of(reading: QuerySession) -> Instants:
    """Return the instants at which the window's half hours are asked for, in UTC."""
    window = reading.window
    # A query looks back from its instant, and the margin leaves the next slot's sample out.
    first, last = window.start + _SLOT - _MARGIN, window.end - _MARGIN
    return Instants(
        first=_to_milliseconds(first),
        last=_to_milliseconds(last),
        count=int((window.end - window.start) / _SLOT),
    )


def _to_milliseconds(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
