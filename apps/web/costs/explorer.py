"""The cost explorer: what each group costs, over time and beside the period before."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import Cause, money
from apps.costs.selectors import PLATFORM_NAME, CostRow, cost_rows, not_priced
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.web.components import formats, window_picker
from apps.web.components.figure_row import Change, KeyFigure
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.page_query import HOUR, Query, during, figure_href, without
from apps.web.components.tables import Column, Table, TableRow, declared_columns
from apps.web.costs import money_format
from apps.web.costs.money_format import (
    UNPRICED,
    MoneyRow,
    MoneyTable,
    money_column,
    money_row,
    number_of,
)
from apps.web.costs.query import (
    CAUSES,
    PLATFORM_PAYS,
    CostPageQuery,
    cost_href,
    links_of,
    shown_groups,
)
from apps.web.query_session import QuerySession
from apps.web.usage.comparison import Difference, amount_change

_ENOUGH = 0.5  # of the period's hours; a comparison with less would tell of the gap alone
_GPU_HOURS = Column("gpu_hours", "GPU-hours", Format.GPU_HOURS, "GPU-h")
_UNPRICED = Column(
    "unpriced_gpu_hours", "Unpriced", Format.GPU_HOURS, "GPU-h", "the price book has no price"
)
_SHARE = Column("share_ratio", "Share", Format.RATIO, "%", "of all that has a price")
_UNUSED_RATIO = Column(
    "unused_ratio", "Unused", Format.RATIO, "%", "of the allocated cost that has metrics"
)
_CHANGE = Column("change_ratio", "Change", Format.TEXT, "", "from the period before")
NOTHING = (
    "Nothing that you may see has a cost in this window: no hour of it was collected and priced, "
    "or a filter leaves nothing."
)


@dataclass(slots=True)
class Sum:
    """What a group comes to: units of money, and nano-GPU-hours with and without price.

    `unused` and `used` are what its unused and its active GPU-hours (`active`) cost.
    """

    cost: int = 0
    gpu_hours: int = 0
    unpriced: int = 0
    before: int | None = None
    unused: int = 0
    used: int = 0
    active: int = 0

    @property
    def unused_ratio(self) -> float | None:
        """Unused ÷ allocated cost, without what has no metrics; None where nothing is known."""
        known = self.unused + self.used
        return self.unused / known if known > 0 else None

    def add(self, row: CostRow) -> None:
        self.gpu_hours += row.gpu_hours
        if row.cause in _UNUSED:
            self.unused += row.cost or 0
        elif row.cause is Cause.BUSY:
            self.used += row.cost or 0
            self.active += 0 if row.lacks_price else row.gpu_hours
        if row.lacks_price:
            self.unpriced += row.gpu_hours
        self.cost += row.cost or 0


@dataclass(frozen=True, slots=True)
class Before:
    """The rows of the period before; `problem` says why there are none although asked for."""

    words: str = ""
    problem: str = ""
    rows: Sequence[CostRow] | None = None
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """The rows of the window, by currency the report's first; unpriced ones are with those."""

    rows: Sequence[CostRow]
    before: Before
    currency: str
    by_currency: Mapping[str, Sequence[CostRow]] = field(default_factory=dict)


def costs_of(reading: QuerySession, asked: CostPageQuery) -> Costs:
    """Read the window and, unless the reader said no, the one before it. 22 queries at most."""
    rows = _rows(reading, asked, reading.window)
    before = _before(reading, asked) if rows else Before()
    usual = report().currency
    split: dict[str, list[CostRow]] = {usual: []}
    for row in rows:
        split.setdefault(row.currency or usual, []).append(row)
    order = sorted(split, key=lambda currency: (currency != usual, currency))
    return Costs(rows, before, usual, {c: split[c] for c in order if split[c] or c == usual})


def _rows(reading: QuerySession, asked: CostPageQuery, window: Window) -> list[CostRow]:
    query = replace(asked.question(reading, TimeStep.TOTAL), window=window)
    return cost_rows(query, visibility=reading.visibility, zone=reading.choice.zone)


def _before(reading: QuerySession, asked: CostPageQuery) -> Before:
    window, before = window_before(reading)
    if window is None:
        return before
    return replace(before, rows=_rows(reading, asked, window), window=window)


def window_before(reading: QuerySession) -> tuple[Window | None, Before]:
    """Return the window to compare with, and how it is called; None where that makes no sense.

    It is refused where too few of its hours have facts, or are priced. Two queries, none without a
    comparison.
    """
    if not reading.compares:
        return None, Before()
    window, words = (
        window_picker.before(reading.choice),
        window_picker.before_words(reading.choice),
    )
    filters, visibility = reading.filters, reading.visibility
    there = usage.collected_hours(window, filters=filters, visibility=visibility)
    lacking = {
        one.cluster: one.hours for one in not_priced(window, filters=filters, visibility=visibility)
    }
    known = (count - lacking.get(cluster, 0) for cluster, count in there.items())
    most, every = max(known, default=0), round((window.end - window.start) / HOUR)
    if most < _ENOUGH * every:
        what = "facts and were priced" if any(lacking.values()) else "facts"
        problem = f"No comparison: only {most} of {every} hours of {words} have {what}."
        return None, Before(words, problem)
    return window, Before(words)


# ---------------------------------------------------------------- facts


def figures_of(
    costs: Costs, currency: str, query: Query, *, at_least: bool = False
) -> list[KeyFigure]:
    """Return the sums of a currency's rows: in all, by payer, and unpriced.

    Each with the address that explains it; `query` is that of the page.

    Nothing where nothing has a price yet: what is not priced did not cost 0. `at_least`: hours or
    prices are missing in it.
    """
    rows = costs.by_currency[currency]
    priced = [row for row in rows if row.cost is not None]
    if not priced:
        return []
    total = sum(row.cost or 0 for row in priced)
    by_cause = {cause: sum(r.cost or 0 for r in priced if r.cause is cause) for cause in Cause}
    shown: list[tuple[str, str, Query, int]] = [
        ("Charged, at least" if at_least else "Charged", "", (), total),
        *(
            (label, note, _of_causes(*causes), sum(by_cause[cause] for cause in causes))
            for label, note, causes in _FIGURES
            if causes != (Cause.ENERGY,) or by_cause[Cause.ENERGY]
        ),
    ]
    corrections = [row.cost or 0 for row in priced if row.correction]
    if corrections:
        of = (("corrections", "yes"),)
        shown.append(("Corrections", "of closed months", of, sum(corrections)))
    change = _change(total, _total_before(costs, currency))
    return [
        KeyFigure(
            label,
            formats.money(money(amount), currency),
            exact=f"{money_format.text(amount, currency)} {currency}",
            note=note,
            href=figure_href("cost", (*query, *of), currency=currency),
            change=Change(f"{change.arrow} {change.text}", than=costs.before.words)
            if change and not of
            else None,
        )
        for label, note, of, amount in shown
    ]


_UNUSED = (Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING)
_FIGURES: Sequence[tuple[str, str, tuple[Cause, ...]]] = (
    ("Platform unallocated", "unallocated or unavailable", (Cause.UNALLOCATED, Cause.UNHEALTHY)),
    ("Unused (teams)", "underutilized, idle, not running", _UNUSED),
    ("No metrics", "neither active nor idle", (Cause.UNMEASURED,)),
    ("Energy", "measured, on top", (Cause.ENERGY,)),
)


def _of_causes(*causes: Cause) -> Query:
    return tuple(("cause", cause.value) for cause in causes)


def _total_before(costs: Costs, currency: str) -> int | None:
    if costs.before.rows is None:
        return None
    return sum(row.cost or 0 for row in costs.before.rows if row.currency == currency)


def _change(now: int, before: int | None) -> Difference | None:
    return None if before is None else amount_change(now, before)


# ---------------------------------------------------------------- tables


def group_tables(costs: Costs, asked: CostPageQuery, reading: QuerySession) -> list[Table]:
    """Return a table of groups for each currency."""
    return [_group_table(costs, currency, asked, reading) for currency in costs.by_currency]


def _group_table(costs: Costs, currency: str, asked: CostPageQuery, reading: QuerySession) -> Table:
    sums = _summed(costs, currency)
    keys = _dearest(sums)
    compares = costs.before.rows is not None
    whole = _whole(sums)
    found = [(key, sums[key]) for key in keys]
    rows = _group_rows(found, whole, currency, asked, reading, costs.before.window)
    first = currency == costs.currency
    names = " and ".join(GROUP_LABELS[group].lower() for group in asked.by)
    return MoneyTable(
        id="costs" if first else f"costs-{currency.lower()}",
        title=f"Costs in {currency}" + (f" by {names}" if names else ""),
        columns=_group_columns(asked, currency, compares=compares, unpriced=bool(whole.unpriced)),
        rows=rows,
        zone=reading.choice.zone,
        empty=NOTHING,
        total=_total_row(whole, currency, asked) if len(rows) > 1 else None,
    )


def _group_columns(
    asked: CostPageQuery, currency: str, *, compares: bool, unpriced: bool
) -> list[Column]:
    names = [Column(group.value, GROUP_LABELS[group]) for group in asked.groups]
    before = money_column("cost_before", "Before", currency, "of the period before")
    return [
        *(names or [Column("what", "What")]),
        money_column("cost", "Cost", currency),
        _SHARE,
        *([before, _CHANGE] if compares else []),
        money_column("unused_cost", "Unused", currency, "underutilized, idle, not running"),
        _UNUSED_RATIO,
        money_column("cost_per_active", "Per active GPU-h", currency, "cost ÷ active GPU-hours"),
        _GPU_HOURS,
        *([_UNPRICED] if unpriced else []),
        money_column("price_per_gpu_hour", "Per GPU-hour", currency, "the mean of what is priced"),
    ]


def _summed(costs: Costs, currency: str) -> dict[tuple[str, ...], Sum]:
    found: dict[tuple[str, ...], Sum] = defaultdict(Sum)
    for row in costs.by_currency[currency]:
        found[tuple(row.groups.values())].add(row)
    if costs.before.rows is not None:
        for own in found.values():
            own.before = 0
        for row in costs.before.rows:
            if row.currency == currency and row.cost:
                sums = found[tuple(row.groups.values())]
                sums.before = (sums.before or 0) + row.cost
    return found


def _whole(sums: Mapping[tuple[str, ...], Sum]) -> Sum:
    every = sums.values()
    before = [own.before for own in every]
    return Sum(
        cost=sum(own.cost for own in every),
        gpu_hours=sum(own.gpu_hours for own in every),
        unpriced=sum(own.unpriced for own in every),
        before=sum(b or 0 for b in before) if any(b is not None for b in before) else None,
        unused=sum(own.unused for own in every),
        used=sum(own.used for own in every),
        active=sum(own.active for own in every),
    )


def _group_rows(
    found: Sequence[tuple[tuple[str, ...], Sum]],
    whole: Sum,
    currency: str,
    asked: CostPageQuery,
    reading: QuerySession,
    before: Window | None,
) -> list[MoneyRow]:
    now = money_format.texts([_cost_of(own) for _, own in found], currency)
    then = money_format.texts([own.before or 0 for _, own in found], currency)
    rows = []
    for (key, own), text, text_before in zip(found, now, then, strict=True):
        groups = dict(zip(map(str, asked.groups), key, strict=True))
        row = _row_of(own, whole, text, text_before, currency)
        named = shown_groups(groups) or {"what": "Everything"}
        explains = _group_explains(groups, _query(asked, reading), currency, before)
        rows.append(
            replace(
                row,
                values={**row.values, **named},
                links=links_of(groups, reading),
                explains=explains,
            )
        )
    return rows


def _group_explains(
    groups: Mapping[str, str], query: Query, currency: str, before: Window | None
) -> dict[str, str]:
    """Return where the figures of a group are explained; of a share all else stays as it is."""
    found = {
        "cost": cost_href("cost", groups, query, currency=currency),
        "price_per_gpu_hour": cost_href("cost_per_gpu_hour", groups, query, currency=currency),
    }
    if found["cost"]:
        names = {f"in_{key}": name for key, name in groups.items()}
        payer = PLATFORM_PAYS if groups.get("team") == PLATFORM_NAME else ""
        found["share_ratio"] = figure_href(
            "cost_share", query, currency=currency, payer=payer, **names
        )
    if before is not None:
        then = during(before.start, before.end, query)
        found["cost_before"] = cost_href("cost", groups, then, currency=currency)
    return found


def _query(asked: CostPageQuery, reading: QuerySession) -> Query:
    return (*reading.query, *without(asked.query, "by"))


def _cost_of(own: Sum) -> int | None:
    """Return the cost; None where nothing of it has a price."""
    return None if own.unpriced and own.unpriced == own.gpu_hours and not own.cost else own.cost


def _row_of(own: Sum, whole: Sum, text: str, text_before: str, currency: str) -> MoneyRow:
    cost, priced = _cost_of(own), own.gpu_hours - own.unpriced
    price = None if cost is None or priced <= 0 else round(cost * 10**9 / priced)
    change = _change(own.cost, own.before)
    # What the platform pays is nobody's unused allocation.
    unused = own.unused if own.unused_ratio is not None else None
    per_active = round(own.cost * 10**9 / own.active) if own.active and cost is not None else None
    values: dict[str, Value] = {
        "cost": number_of(cost),
        "cost_before": number_of(own.before),
        "share_ratio": own.cost / whole.cost if whole.cost > 0 and cost is not None else None,
        "change_ratio": "" if change is None else f"{change.arrow} {change.text}",
        "gpu_hours": own.gpu_hours,
        "unpriced_gpu_hours": own.unpriced,
        "price_per_gpu_hour": number_of(price),
        "unused_cost": number_of(unused),
        "unused_ratio": own.unused_ratio,
        "cost_per_active": number_of(per_active),
    }
    price_text = UNPRICED if price is None else money_format.text(price, currency)
    return MoneyRow(
        values,
        amounts={
            "cost": cost,
            "cost_before": own.before,
            "price_per_gpu_hour": price,
            "unused_cost": unused,
            "cost_per_active": per_active,
        },
        printed={
            "cost": text,
            "cost_before": text_before,
            "price_per_gpu_hour": price_text,
            "unused_cost": _printed(unused, currency),
            "cost_per_active": _printed(per_active, currency),
        },
    )


def _printed(amount: int | None, currency: str) -> str:
    return formats.NOTHING if amount is None else money_format.text(amount, currency)


def _total_row(whole: Sum, currency: str, asked: CostPageQuery) -> TableRow:
    text = money_format.texts([whole.cost], currency)[0]
    text_before = money_format.texts([whole.before or 0], currency)[0]
    row = _row_of(whole, whole, text, text_before, currency)
    label = str(asked.groups[0]) if asked.groups else "what"
    return replace(row, values={**row.values, label: "Total"})


def line_table(costs: Costs, asked: CostPageQuery, reading: QuerySession) -> Table:
    """Return the rows as the API and the files have them."""
    rows = _lines(costs, asked, reading)
    return MoneyTable(
        id="lines",
        title="Line items",
        columns=declared_columns(CostRow, Column("note", "Note"), groups=asked.groups),
        rows=rows,
        zone=reading.choice.zone,
        empty=NOTHING,
        note="The same lines as the API and the files have, over the whole window.",
    )


def _lines(costs: Costs, asked: CostPageQuery, reading: QuerySession) -> list[MoneyRow]:
    """Print the lines of a group so that they add up to what its table says."""
    text_of: dict[int, str] = {}
    for currency in costs.by_currency:
        sums = _summed(costs, currency)
        keys = _dearest(sums)
        shown = money_format.texts([_cost_of(sums[key]) for key in keys], currency)
        lines: dict[tuple[str, ...], list[CostRow]] = defaultdict(list)
        for row in costs.by_currency[currency]:
            lines[tuple(row.groups.values())].append(row)
        for key, whole in zip(keys, shown, strict=True):
            own = lines[key]
            texts = money_format.parts(whole, [row.cost for row in own], currency)
            text_of.update((id(row), text) for row, text in zip(own, texts, strict=True))
    query = _query(asked, reading)
    return [_line(row, text_of[id(row)], reading, query) for row in costs.rows]


def _dearest(sums: Mapping[tuple[str, ...], Sum]) -> list[tuple[str, ...]]:
    return sorted(sums, key=lambda key: (-sums[key].cost, -sums[key].gpu_hours, key))


def _line(row: CostRow, text: str, reading: QuerySession, query: Query) -> MoneyRow:
    names = {
        "currency": row.currency or "",
        "cause": row.cause.value,
        "corrections": "yes" if row.correction else "no",
    }
    notes = ["correction of a closed month"] if row.correction else []
    printed = {"cost": text}
    if row.cost is not None and row.price_units is None:
        printed["price_per_gpu_hour"] = "–"  # energy has a cost and no GPU-hours
    return money_row(
        row,
        values={
            **shown_groups(row.groups),
            "cause": CAUSES[row.cause].label,
            "note": ", ".join([*notes, *([UNPRICED] if row.unpriced else [])]),
        },
        links=links_of(row.groups, reading),
        explains={
            "cost": cost_href("cost", row.groups, query, **names),
            "price_per_gpu_hour": cost_href("cost_per_gpu_hour", row.groups, query, **names),
        },
        printed=printed,
    )


def compared_words(before: Before) -> str:
    """Say what the figures are held against; empty without a comparison."""
    return f"“Before” is {before.words}." if before.rows is not None else before.problem


def stack_group(asked: CostPageQuery) -> Grouping | None:
    """Return the group that the bars are stacked by; None: by cause.

    Workloads are too many to be told apart by colours, and to be read for every day.
    """
    first = asked.by[0] if asked.by else None
    return None if first is Grouping.WORKLOAD else first
