"""The cost explorer: what each group costs, over time and beside the period before."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import FREE, WASTE, Cause, money
from apps.costs.selectors import (
    PLATFORM_NAME,
    CostQuery,
    CostRow,
    cost_rows,
    covers_platform,
    line_key,
    price_sources,
)
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.web.components import formats
from apps.web.components.figure_row import MOST, KeyFigure, PeriodChange
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.page_query import Query, during, figure_href, without
from apps.web.components.tables import Column, Table, TableRow, declared_columns
from apps.web.costs import money_format
from apps.web.costs.comparison import PreviousCosts, window_before
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

_ROWS = 10
_MY_TEAMS = "my teams"
_GPU_HOURS = Column("gpu_hours", "GPU-hours", Format.GPU_HOURS, "GPU-h")
_UNPRICED = Column(
    "unpriced_gpu_hours", "Unpriced", Format.GPU_HOURS, "GPU-h", "the price book has no price"
)
_PRICE_SOURCE = Column(
    "price_source",
    "Price source",
    hint="The prices of the book that these hours have: kind, place, start and source.",
    # As long as all else of the row: the page would be read no more.
    in_files=True,
)
_SHARE = Column("share_ratio", "Share", Format.RATIO, "%", "of all that has a price")
_UNUSED_RATIO = Column(
    "unused_ratio", "Unused", Format.RATIO, "%", "of the allocated cost that has metrics"
)
_CHANGE = Column("change_ratio", "Change", Format.CHANGE, "%", "of the cost before")
NOTHING = (
    "Nothing that you may see has a cost in this window: no hour of it was collected and priced, "
    "or a filter leaves nothing."
)


class GroupCost(Struct):
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
        if row.cause in UNUSED:
            self.unused += row.cost or 0
        elif row.cause is Cause.BUSY:
            self.used += row.cost or 0
            # Only hours with a price: the cost per active GPU-hour is divided by them.
            self.active += 0 if row.lacks_price else row.gpu_hours
        if row.lacks_price:
            self.unpriced += row.gpu_hours
        self.cost += row.cost or 0


class WindowCosts(Struct, frozen=True):
    """The rows of the window, by currency the report's first; unpriced ones are with those.

    Without `platform` they are of teams alone. `whose` names these for a reader who may not see
    all: `my teams`.
    """

    rows: Sequence[CostRow]
    before: PreviousCosts
    currency: str
    by_currency: Mapping[str, Sequence[CostRow]] = field(default_factory=dict)
    platform: bool = True
    whose: str = "teams"

    @property
    def total_label(self) -> str:
        return f"Total, {self.whose}" if self.whose == _MY_TEAMS else "Total"


def costs_of(reading: QuerySession, asked: CostPageQuery) -> WindowCosts:
    """Read the window and, unless the reader said no, the one before it. 22 queries at most."""
    rows = _rows(reading, asked, reading.window)
    # Nothing to compare needs no reading of another window.
    before = _before(reading, asked) if rows else PreviousCosts()
    usual = report().currency
    split: dict[str, list[CostRow]] = {usual: []}
    for row in rows:
        split.setdefault(row.currency or usual, []).append(row)
    order = sorted(split, key=lambda currency: (currency != usual, currency))
    question = asked.question(reading, TimeStep.TOTAL)
    # Apportioned by a policy, the unallocated is charged to teams.
    free = any(row.cause in FREE for row in rows)
    platform = free or covers_platform(question, reading.visibility)
    return WindowCosts(
        rows,
        before,
        usual,
        {c: split[c] for c in order if split[c] or c == usual},
        platform=platform,
        whose=_MY_TEAMS if not (platform or reading.visibility.everything) else "teams",
    )


def _rows(reading: QuerySession, asked: CostPageQuery, window: Window) -> list[CostRow]:
    query = _question(asked, reading, window)
    return cost_rows(query, visibility=reading.visibility, zone=reading.choice.zone)


def _question(asked: CostPageQuery, reading: QuerySession, window: Window) -> CostQuery:
    question = asked.question(reading, TimeStep.TOTAL)
    return replace(question, window=window, group_by=asked.row_groups)


def _before(reading: QuerySession, asked: CostPageQuery) -> PreviousCosts:
    window, before = window_before(reading)
    if window is None:
        return before
    return replace(before, rows=_rows(reading, asked, window), window=window)


# ---------------------------------------------------------------- figures

UNUSED = (Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING)


def figures_of(
    costs: WindowCosts, currency: str, query: Query, *, at_least: bool = False
) -> list[KeyFigure]:
    """Return what teams are charged, what the platform keeps, and what of both was unused.

    Each with its change from the period before and the address that explains it; `query` is that
    of the page. Nothing where nothing has a price yet: what is not priced did not cost 0.
    `at_least`: hours or prices are missing in it.
    """
    rows = [row for row in costs.by_currency[currency] if row.cost is not None]
    if not rows:
        return []
    before = costs.before.rows
    then = None if before is None else [row for row in before if row.currency == currency]

    def figure(
        label: str, chosen: Callable[[CostRow], bool], *names: Pair, of: str = "", note: str = ""
    ) -> KeyFigure:
        amount = _sum(rows, chosen)
        explained = figure_href("cost", (*query, *names), currency=currency)
        return KeyFigure(
            label,
            formats.money(money(amount), currency),
            of,
            exact=f"{money_format.text(amount, currency)} {currency}",
            note=note,
            # Charged is the sum over all teams, which no single address explains.
            href=explained if names or chosen is _every else "",
            change=_change(amount, then, chosen, costs.before.words),
        )

    unused = _sum(rows, lambda row: row.cause in UNUSED)
    known = unused + _sum(rows, lambda row: row.cause is Cause.BUSY)
    platform = figure(
        "Platform",
        lambda row: not _is_charged(row),
        ("payer", PLATFORM_PAYS),
        note="charged to no team",
    )
    common = [
        figure("Charged, at least" if at_least else "Charged", _is_charged, note="to teams"),
        *([platform] if costs.platform else []),
        figure(
            "Unused (teams)",
            lambda row: row.cause in UNUSED,
            *_of_causes(*UNUSED),
            of=formats.percent(unused / known) if known > 0 else "",
            note="underutilized, idle, not running",
        ),
    ]
    total = figure(costs.total_label, _every, note="teams and platform" if costs.platform else "")
    return [*common, *_rare_figures(rows, figure)[: MOST - len(common) - 1], total]


def _rare_figures(rows: Sequence[CostRow], figure: Callable[..., KeyFigure]) -> list[KeyFigure]:
    """Return the figures that few windows have, first those that nothing else on the page tells.

    A row has no room for all of them; the waterfall has the causes.
    """
    found = []
    if any(row.correction for row in rows):
        of_closed = ("corrections", "yes")
        found.append(
            figure("Corrections", lambda row: row.correction, of_closed, note="of closed months")
        )
    for cause, label, note in _FEW:
        is_it = partial(_is_of, cause)
        if _sum(rows, is_it):
            found.append(figure(label, is_it, *_of_causes(cause), note=note))
    return found


_FEW = (
    (Cause.ENERGY, "Energy", "measured, in the total"),
    (Cause.PLANNED_OUTAGE, "Planned outage", "away as announced"),
    (Cause.UNMEASURED, "No metrics", "neither active nor unused"),
)


Pair = tuple[str, str]


def _is_of(cause: Cause, row: CostRow) -> bool:
    return row.cause is cause


def _every(_row: CostRow) -> bool:
    return True


def _is_charged(row: CostRow) -> bool:
    return row.groups[Grouping.TEAM] != PLATFORM_NAME


def _sum(rows: Sequence[CostRow], chosen: Callable[[CostRow], bool]) -> int:
    return sum(row.cost or 0 for row in rows if chosen(row))


def _change(
    amount: int,
    before: Sequence[CostRow] | None,
    chosen: Callable[[CostRow], bool],
    words: str,
) -> PeriodChange | None:
    ratio = None if before is None else growth(amount, _sum(before, chosen))
    return None if ratio is None else PeriodChange(formats.growth(ratio), than=f"from {words}")


def growth(amount: int, before: int | None) -> float | None:
    """Return by which part an amount grew; None where there was nothing before."""
    return amount / before - 1 if before and before > 0 else None


def _of_causes(*causes: Cause) -> Query:
    return tuple(("cause", cause.value) for cause in causes)


# ---------------------------------------------------------------- tables


def group_tables(costs: WindowCosts, asked: CostPageQuery, reading: QuerySession) -> list[Table]:
    """Return a table of groups for each currency."""
    return [_group_table(costs, currency, asked, reading) for currency in costs.by_currency]


def _group_table(
    costs: WindowCosts, currency: str, asked: CostPageQuery, reading: QuerySession
) -> Table:
    sums = summed(costs, currency, asked.key_of)
    keys = _dearest(sums)
    compares = costs.before.rows is not None
    whole = whole_of(sums)
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
        on_phone=(*(g.value for g in asked.groups), "cost", "unused_cost", _UNUSED_RATIO.key),
    )


def _group_columns(
    asked: CostPageQuery, currency: str, *, compares: bool, unpriced: bool
) -> list[Column]:
    names = [Column(group.value, GROUP_LABELS[group]) for group in asked.groups]
    before = money_column("cost_before", "Previous", currency, "of the period before")
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


def summed(
    costs: WindowCosts, currency: str, key_of: Callable[[CostRow], tuple[str, ...]]
) -> dict[tuple[str, ...], GroupCost]:
    """Return the sums of a currency's rows by key; `before` is None without a comparison."""
    found: dict[tuple[str, ...], GroupCost] = defaultdict(GroupCost)
    for row in costs.by_currency[currency]:
        found[key_of(row)].add(row)
    if costs.before.rows is not None:
        # 0 and not None: a group that is new had no cost before.
        for own in found.values():
            own.before = 0
        for row in costs.before.rows:
            if row.currency == currency and row.cost:
                sums = found[key_of(row)]
                sums.before = (sums.before or 0) + row.cost
    return found


def whole_of(sums: Mapping[tuple[str, ...], GroupCost]) -> GroupCost:
    """Return the sum over all groups."""
    every = sums.values()
    before = [own.before for own in every]
    return GroupCost(
        cost=sum(own.cost for own in every),
        gpu_hours=sum(own.gpu_hours for own in every),
        unpriced=sum(own.unpriced for own in every),
        before=sum(b or 0 for b in before) if any(b is not None for b in before) else None,
        unused=sum(own.unused for own in every),
        used=sum(own.used for own in every),
        active=sum(own.active for own in every),
    )


def _group_rows(
    found: Sequence[tuple[tuple[str, ...], GroupCost]],
    whole: GroupCost,
    currency: str,
    asked: CostPageQuery,
    reading: QuerySession,
    before: Window | None,
) -> list[MoneyRow]:
    rows = []
    for key, own in found:
        cost = _cost_of(own)
        text = UNPRICED if cost is None else amount_text(cost, currency, digits=money_format.WHOLE)
        text_before = amount_text(own.before or 0, currency, digits=money_format.WHOLE)
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


def _cost_of(own: GroupCost) -> int | None:
    """Return the cost; None where nothing of it has a price."""
    # A correction may have money without hours: then something has a price.
    return None if own.unpriced and own.unpriced == own.gpu_hours and not own.cost else own.cost


def _row_of(
    own: GroupCost, whole: GroupCost, text: str, text_before: str, currency: str
) -> MoneyRow:
    cost, priced = _cost_of(own), own.gpu_hours - own.unpriced
    price = None if cost is None or priced <= 0 else round(cost * 10**9 / priced)
    # What the platform pays is no team's unused allocation.
    unused = own.unused if own.unused_ratio is not None else None
    per_active = round(own.cost * 10**9 / own.active) if own.active and cost is not None else None
    values: dict[str, Value] = {
        "cost": number_of(cost),
        "cost_before": number_of(own.before),
        "share_ratio": own.cost / whole.cost if whole.cost > 0 and cost is not None else None,
        "change_ratio": growth(own.cost, own.before),
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
        texts={
            "cost": text,
            "cost_before": text_before,
            "price_per_gpu_hour": price_text,
            "unused_cost": amount_text(unused, currency, digits=money_format.WHOLE),
            "cost_per_active": amount_text(per_active, currency),
        },
    )


def amount_text(amount: int | None, currency: str, *, digits: int | None = None) -> str:
    """Print one amount; a dash for what there is none of."""
    if amount is None:
        return formats.NOTHING
    return money_format.texts([amount], currency, digits=digits)[0]


def _total_row(whole: GroupCost, currency: str, asked: CostPageQuery) -> TableRow:
    text = amount_text(whole.cost, currency, digits=money_format.WHOLE)
    text_before = amount_text(whole.before or 0, currency, digits=money_format.WHOLE)
    row = _row_of(whole, whole, text, text_before, currency)
    label = str(asked.groups[0]) if asked.groups else "what"
    return replace(row, values={**row.values, label: "Total"})


def line_table(costs: WindowCosts, asked: CostPageQuery, reading: QuerySession) -> Table:
    """Return the rows by cause and payer, in cents; of waste those of its causes alone."""
    return MoneyTable(
        id="lines",
        title="Line items",
        columns=declared_columns(
            CostRow, Column("note", "Note"), _PRICE_SOURCE, groups=asked.row_groups
        ),
        rows=_money_rows(costs, asked, reading),
        zone=reading.choice.zone,
        empty=NOTHING,
        page_length=_ROWS,
        on_phone=(*asked.row_groups[:1], "cause", "gpu_hours", "cost"),
    )


def _money_rows(costs: WindowCosts, asked: CostPageQuery, reading: QuerySession) -> list[MoneyRow]:
    """Print the lines of a currency so that they add up."""
    query, found = _query(asked, reading), []
    sources = price_sources(
        _question(asked, reading, reading.window),
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )
    for currency, every in costs.by_currency.items():
        rows = [row for row in every if not asked.waste or row.cause in WASTE]
        texts = money_format.texts([row.cost for row in rows], currency)
        found += [
            _line(row, text, reading, query, sources.get(line_key(row), ()))
            for row, text in zip(rows, texts, strict=True)
        ]
    return found


def _dearest(sums: Mapping[tuple[str, ...], GroupCost]) -> list[tuple[str, ...]]:
    return sorted(sums, key=lambda key: (-sums[key].cost, -sums[key].gpu_hours, key))


def _line(
    row: CostRow, text: str, reading: QuerySession, query: Query, sources: Sequence[str]
) -> MoneyRow:
    names = {
        "currency": row.currency or "",
        "cause": row.cause.value,
        "corrections": "yes" if row.correction else "no",
    }
    notes = ["correction of a closed month"] if row.correction else []
    texts = {"cost": text}
    if row.cost is not None and row.price_units is None:
        texts["price_per_gpu_hour"] = "–"  # energy has a cost and no GPU-hours
    return money_row(
        row,
        values={
            **shown_groups(row.groups),
            "cause": CAUSES[row.cause].label,
            "note": ", ".join([*notes, *([UNPRICED] if row.unpriced else [])]),
            "price_source": "; ".join(sources),
        },
        links=links_of(row.groups, reading),
        explains={
            "cost": cost_href("cost", row.groups, query, **names),
            "price_per_gpu_hour": cost_href("cost_per_gpu_hour", row.groups, query, **names),
        },
        texts=texts,
    )


def stack_group(asked: CostPageQuery) -> Grouping | None:
    """Return the group that the bars are stacked by; None: by cause.

    Workloads are too many to be told apart by colours, and to be read for every day.
    """
    first = asked.by[0] if asked.by else None
    return None if first is Grouping.WORKLOAD else first
