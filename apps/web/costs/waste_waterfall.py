"""The waste waterfall, the unused cost of groups, and the workloads that wasted most."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.costs.domain.costing import (
    FREE,
    FREE_WASTE,
    WATERFALL_CAUSES,
    Cause,
    WaterfallStep,
    money,
)
from apps.costs.selectors import (
    PLATFORM_NAME,
    CostRow,
    Waterfall,
    WorstWorkload,
    unallocated_burst,
    waterfalls,
)
from apps.usage.domain.usage_query import Grouping
from apps.web.components import formats
from apps.web.components.drawings import Drawing
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.page_query import figure_href, without
from apps.web.components.tables import Column, LedgerClass, Table, declared_columns
from apps.web.costs import money_format
from apps.web.costs.explorer import NOTHING as NOTHING_COST
from apps.web.costs.explorer import (
    UNUSED,
    GroupCost,
    WindowCosts,
    amount_text,
    growth,
    summed,
    whole_of,
)
from apps.web.costs.money_format import (
    UNPRICED,
    WHOLE,
    MoneyRow,
    MoneyTable,
    money_column,
    money_row,
    number_of,
)
from apps.web.costs.query import (
    CAUSES,
    NOBODY,
    CostPageQuery,
    cost_href,
    links_of,
    shown_groups,
    workload_pods_href,
)
from apps.web.query_session import QuerySession

NOTHING = "No unused cost in this window."
_ORDER = [cause for cause in WATERFALL_CAUSES if cause in UNUSED]


class WaterfallBar(Struct, frozen=True):
    """A step as it is drawn: where it starts and how long it is, in percent of the whole."""

    cls: LedgerClass
    step: WaterfallStep
    text: str
    exact: str
    href: str
    left: float
    width: float
    change: str


class WasteWaterfall(Drawing, frozen=True, kw_only=True):
    """From the cost of all capacity to its active part, in one currency; energy is on top."""

    template: ClassVar[str] = "costs/_waterfall.html"

    total: str
    bars: Sequence[WaterfallBar]


def waterfalls_of(
    costs: WindowCosts, asked: CostPageQuery, reading: QuerySession
) -> list[WasteWaterfall]:
    """Return a waterfall for each currency of the page. Five queries at most, of waste alone."""
    burst: dict[str, int] = {}
    if asked.waste:
        burst = unallocated_burst(
            reading.window,
            filters=reading.filters,
            visibility=reading.visibility,
            zone=reading.choice.zone,
        )
    found = waterfalls(
        costs.rows,
        before=costs.before.rows,
        currency=costs.currency,
        burst=burst,
        platform=costs.platform,
    )
    return [_drawn(one, costs, asked, reading) for one in found]


def _drawn(
    found: Waterfall, costs: WindowCosts, asked: CostPageQuery, reading: QuerySession
) -> WasteWaterfall:
    currency, usual = found.currency, found.currency == costs.currency
    bars = [
        _bar(step, found.total, currency, _step_href(step, currency, asked, reading))
        for step in found.steps
    ]
    return WasteWaterfall(
        id="waterfall" if usual else f"waterfall-{currency.lower()}",
        title="Cost breakdown",
        caption=_caption(found),
        table=_waterfall_table(bars, found, reading, usual=usual),
        empty="" if any(step.gpu_hours for step in found.steps) else NOTHING_COST,
        total=formats.money(money(found.total), currency),
        bars=bars,
    )


def _caption(found: Waterfall) -> str:
    said = []
    if found.energy:
        said.append(f"Energy adds {formats.money(money(found.energy), found.currency)}.")
    if unpriced := sum(step.unpriced for step in found.steps):
        said.append(f"Totals exclude {_hours(unpriced)} GPU-h without a price.")
    if burst := sum(step.burst or 0 for step in found.steps):
        said.append(f"Shared GPUs used {_hours(burst)} GPU-h of unallocated capacity.")
    return " ".join(said)


def _hours(amount: int) -> str:
    return formats.shown(amount, Format.GPU_HOURS, ZoneInfo("UTC"))


def _cost(step: WaterfallStep) -> int | None:
    """Return what a step costs; None where none of its hours has a price."""
    return None if step.unpriced and step.unpriced == step.gpu_hours else step.cost


def _step_href(
    step: WaterfallStep, currency: str, asked: CostPageQuery, reading: QuerySession
) -> str:
    """Return where a step is explained: as held, or on the terms that the page charges by."""
    cause = step.cause
    if asked.waste:
        return figure_href(f"{cause.value}_cost", reading.query, currency=currency)
    query = [*reading.query, *without(asked.query, "by")]
    return figure_href("cost", query, currency=currency, cause=cause.value, corrections="no")


def _bar(step: WaterfallStep, total: int, currency: str, href: str) -> WaterfallBar:
    cost, grown = _cost(step), growth(step.cost, step.cost_before)
    return WaterfallBar(
        cls=CAUSES[step.cause],
        step=step,
        text=UNPRICED if cost is None else formats.money(money(cost), currency),
        exact=f"{money_format.in_full(cost)} {currency}" if cost else "",
        href=href,
        left=round(100 * (total - step.above) / total, 3) if total > 0 else 0.0,
        # A step cannot be drawn backwards; corrections, which may be negative, are not among them.
        width=round(100 * max(0, step.cost) / total, 3) if total > 0 else 0.0,
        change="" if grown is None else formats.growth(grown),
    )


def _waterfall_table(
    bars: Sequence[WaterfallBar], found: Waterfall, reading: QuerySession, *, usual: bool
) -> Table:
    """Return the steps as a table to the cent, its total the cost of the capacity."""
    currency = found.currency
    texts = money_format.texts([_cost(bar.step) for bar in bars], currency)
    rows = [
        MoneyRow(
            {
                "cause": bar.cls.label,
                "waste": "waste" if bar.step.waste else "",
                "gpu_hours": bar.step.gpu_hours,
                "cost": number_of(_cost(bar.step)),
                "share_ratio": None if _cost(bar.step) is None else bar.step.share,
                "unpriced_gpu_hours": bar.step.unpriced,
            },
            amounts={"cost": _cost(bar.step)},
            texts={"cost": text},
        )
        for bar, text in zip(bars, texts, strict=True)
    ]
    total = MoneyRow(
        {
            "cause": "Total",
            "gpu_hours": sum(step.gpu_hours for step in found.steps),
            "share_ratio": 1.0 if found.total else None,
            "unpriced_gpu_hours": sum(step.unpriced for step in found.steps),
        },
        amounts={"cost": found.total},
        texts={"cost": amount_text(found.total, currency)},
    )
    return MoneyTable(
        id="fall" if usual else f"fall-{currency.lower()}",
        title=f"Capacity cost by cause, {currency}",
        columns=[
            Column("cause", "Cause"),
            Column("waste", "Counts as"),
            Column("gpu_hours", "GPU-hours", Format.GPU_HOURS, "GPU-h"),
            money_column("cost", "Cost", currency),
            Column("share_ratio", "Share", Format.RATIO, "%", "of the cost of the capacity"),
            Column("unpriced_gpu_hours", "Unpriced", Format.GPU_HOURS, "GPU-h"),
        ],
        rows=rows,
        zone=reading.choice.zone,
        empty=NOTHING,
        total=total,
        ordered=True,
    )


# ---------------------------------------------------------------- by group


class _ByCause(Struct):
    """What one group cost by cause, None for a cause of which nothing has a price."""

    cost: dict[Cause, int | None]
    gpu_hours: int = 0
    unpriced: int = 0
    before: int = 0

    @property
    def whole(self) -> int | None:
        """What all of it costs; None where nothing of it has a price."""
        known = [amount for amount in self.cost.values() if amount is not None]
        return sum(known) if known else None

    def add(self, row: CostRow) -> None:
        self.gpu_hours += row.gpu_hours
        if row.cost is None:
            self.unpriced += row.gpu_hours
        else:
            self.cost[row.cause] = (self.cost.get(row.cause) or 0) + row.cost


def _by_cause(
    costs: WindowCosts, currency: str, asked: CostPageQuery, causes: Sequence[Cause]
) -> dict[tuple[str, ...], _ByCause]:
    """Return the cost of these causes by group; a cause of which there is nothing cost 0.

    Without any price in the group it cost nothing that is known.
    """
    found: dict[tuple[str, ...], _ByCause] = {}
    priced, lacking = set(), set()
    for row in costs.by_currency[currency]:
        key = asked.key_of(row)
        if row.cost is not None:
            priced.add(key)
        if row.cause in causes:
            found.setdefault(key, _ByCause({})).add(row)
            if row.cost is None:
                lacking.add((key, row.cause))
    for key, own in found.items():
        # None is not known, 0 is known to be nothing: see the docstring.
        nothing = {cause for cause in causes if key not in priced or (key, cause) in lacking}
        own.cost = {c: own.cost.get(c, None if c in nothing else 0) for c in causes}
    for row in costs.before.rows or ():
        if row.currency == currency and row.cause in causes and asked.key_of(row) in found:
            found[asked.key_of(row)].before += row.cost or 0
    return found


def unused_tables(costs: WindowCosts, asked: CostPageQuery, reading: QuerySession) -> list[Table]:
    """Return what teams held and did not use by group, a table for each currency."""
    return [_cause_table(costs, c, UNUSED, asked, reading) for c in costs.by_currency]


def platform_tables(costs: WindowCosts, asked: CostPageQuery, reading: QuerySession) -> list[Table]:
    """Return what the platform pays for without a team: capacity without a holder."""
    away = any(row.cause is Cause.PLANNED_OUTAGE for row in costs.rows)
    causes = FREE if away else FREE_WASTE
    return [_cause_table(costs, c, causes, asked, reading) for c in costs.by_currency]


def _cause_table(
    costs: WindowCosts,
    currency: str,
    causes: Sequence[Cause],
    asked: CostPageQuery,
    reading: QuerySession,
) -> Table:
    """Return the cost of these causes by group, dearest first."""
    usual = currency == costs.currency
    order = [cause for cause in WATERFALL_CAUSES if cause in causes]
    found = _by_cause(costs, currency, asked, order)
    names = sorted(found, key=lambda key: (-(found[key].whole or 0), key))
    # Only of what teams held is there something that they are charged for it.
    paid = summed(_of_teams(costs), currency, asked.key_of) if causes is UNUSED else None
    compares = costs.before.rows is not None
    lines = [
        _cause_row(
            _Group(key, found[key], None if paid is None else paid[key]),
            currency,
            asked,
            reading,
        )
        for key in names
    ]
    kind = "unused" if causes is UNUSED else "platform"
    label = " and ".join(GROUP_LABELS[group].lower() for group in asked.by) or "all"
    total_name = str(asked.groups[0]) if asked.groups else "what"
    return MoneyTable(
        id=kind if usual else f"{kind}-{currency.lower()}",
        title=f"{'Unused' if kind == 'unused' else 'Platform'} cost by {label}",
        columns=_cause_columns(asked, order, currency, kind, compares=compares),
        rows=lines,
        zone=reading.choice.zone,
        empty=NOTHING,
        total=_cause_total(found, paid, total_name, currency) if len(lines) > 1 else None,
    )


def _of_teams(costs: WindowCosts) -> WindowCosts:
    """Return the costs without what the platform pays: it never enters a team's."""

    def listed(rows: Sequence[CostRow]) -> list[CostRow]:
        return [row for row in rows if row.groups[Grouping.TEAM] != PLATFORM_NAME]

    before = costs.before.rows
    return WindowCosts(
        listed(costs.rows),
        type(costs.before)(rows=None if before is None else listed(before)),
        costs.currency,
        {currency: listed(rows) for currency, rows in costs.by_currency.items()},
    )


def _cause_columns(
    asked: CostPageQuery, order: Sequence[Cause], currency: str, kind: str, *, compares: bool
) -> list[Column]:
    names = [Column(group.value, GROUP_LABELS[group]) for group in asked.groups]
    causes = [money_column(f"{cause.value}_cost", CAUSES[cause].label, currency) for cause in order]
    change = Column("change_ratio", "Change", Format.CHANGE, "%", f"of the {kind} cost before")
    whole = money_column(f"{kind}_cost", kind.capitalize(), currency, "the sum of its causes")
    label = "GPU-hours" if kind == "platform" else "Unused GPU-hours"
    hours = Column("gpu_hours", label, Format.GPU_HOURS, "GPU-h", f"{kind} alone")
    lead = [*(names or [Column("what", "What")])]
    if kind == "platform":
        return [*lead, whole, *([change] if compares else []), *causes, hours]
    return [
        *lead,
        money_column("cost", "Cost", currency, "charged to teams"),
        whole,
        *([change] if compares else []),
        Column("unused_ratio", "Unused", Format.RATIO, "%", "of the allocated cost with metrics"),
        *causes,
        money_column("cost_per_active", "Per active GPU-h", currency, "cost ÷ active GPU-hours"),
        hours,
    ]


class _Group(NamedTuple):
    """A group of a table by its names; `paid` is what it is charged, None for the platform."""

    key: tuple[str, ...]
    own: _ByCause
    paid: GroupCost | None


def _cause_row(
    group: _Group,
    currency: str,
    asked: CostPageQuery,
    reading: QuerySession,
) -> MoneyRow:
    key, own, paid = group
    kind = "unused" if paid is not None else "platform"
    groups = dict(zip(map(str, asked.groups), key, strict=True))
    exact = {f"{kind}_cost": own.whole, **{f"{c.value}_cost": n for c, n in own.cost.items()}}
    row = _money_row(exact, own, paid, currency)
    explains = {
        name: cost_href(name, groups, reading.query, currency=currency)
        for name in exact
        if name != f"{kind}_cost"
    }
    if groups.get("team"):
        explains[f"{kind}_cost"] = cost_href("waste_cost", groups, reading.query, currency=currency)
        explains["cost"] = cost_href("cost", groups, reading.query, currency=currency)
    named = shown_groups(groups, nobody=NOBODY) or {"what": "Everything"}
    return MoneyRow(
        {**row.values, **named},
        links_of(groups, reading),
        amounts=row.amounts,
        texts=row.texts,
        explains=explains,
    )


def _money_row(
    exact: Mapping[str, int | None],
    own: _ByCause,
    paid: GroupCost | None,
    currency: str,
) -> MoneyRow:
    amounts = dict(exact)
    # Each is rounded by itself: other pages that show it must say the same.
    shown = {
        key: UNPRICED if amount is None else amount_text(amount, currency, digits=WHOLE)
        for key, amount in exact.items()
    }
    values: dict[str, Value] = {
        "gpu_hours": own.gpu_hours,
        "change_ratio": growth(own.whole or 0, own.before),
    }
    if paid is not None:
        lacks = paid.unpriced and paid.unpriced == paid.gpu_hours
        amounts["cost"] = None if lacks else paid.cost
        shown["cost"] = UNPRICED if lacks else amount_text(paid.cost, currency, digits=WHOLE)
        per_active = round(paid.cost * 10**9 / paid.active) if paid.active else None
        amounts["cost_per_active"] = per_active
        shown["cost_per_active"] = amount_text(per_active, currency)
        values["unused_ratio"] = paid.unused_ratio
    values.update({name: number_of(amount) for name, amount in amounts.items()})
    return MoneyRow(values, amounts=amounts, texts=shown)


def _cause_total(
    found: Mapping[tuple[str, ...], _ByCause],
    paid: Mapping[tuple[str, ...], GroupCost] | None,
    name: str,
    currency: str,
) -> MoneyRow:
    """Return the sum over all groups."""
    whole = _ByCause({})
    for own in found.values():
        whole.gpu_hours += own.gpu_hours
        whole.before += own.before
        for cause, amount in own.cost.items():
            # None stays None only where no group has a price of this cause.
            known = whole.cost.get(cause)
            whole.cost[cause] = known if amount is None else (known or 0) + amount
    kind = "platform" if paid is None else "unused"
    exact = {f"{kind}_cost": whole.whole, **{f"{c.value}_cost": n for c, n in whole.cost.items()}}
    row = _money_row(exact, whole, None if paid is None else whole_of(paid), currency)
    return MoneyRow({**row.values, name: "Total"}, amounts=row.amounts, texts=row.texts)


# ---------------------------------------------------------------- the worst workloads


def worst_table(
    found: Mapping[Cause, Sequence[WorstWorkload]], reading: QuerySession, *, problem: str = ""
) -> Table:
    """Return the workloads that wasted most by each cause; each leads to its pods.

    The dearest come first, unpriced ones last. `problem` says why none can be told.
    """
    worst = [one for cause in _ORDER for one in found.get(cause, ())]
    worst.sort(
        key=lambda one: (one.cost is None, one.currency or "", -(one.cost or 0), -one.gpu_hours)
    )
    return MoneyTable(
        id="worst",
        title="Top unused workloads",
        columns=declared_columns(WorstWorkload),
        rows=_worst_rows(worst, reading),
        zone=reading.choice.zone,
        empty=problem or "No unused workload in this window.",
        on_phone=("workload", "team", "gpu_hours", "cost"),
    )


def _worst_rows(worst: Sequence[WorstWorkload], reading: QuerySession) -> list[MoneyRow]:
    return [
        money_row(
            one,
            values={"cause": CAUSES[one.cause].label},
            links={
                **links_of({"team": one.team, "tier": one.tier}, reading),
                "workload": workload_pods_href(one.cluster, one.namespace, one.workload, reading),
            },
            explains={"cost": _explained(one, reading)},
        )
        for one in worst
        if one.gpu_hours
    ]


def _explained(one: WorstWorkload, reading: QuerySession) -> str:
    groups = {
        "cluster": one.cluster,
        "namespace": one.namespace,
        "workload": one.workload,
        "team": one.team,
        "tier": one.tier,
    }
    figure = f"{one.cause.value}_cost"
    return cost_href(figure, groups, reading.query, currency=one.currency or "")
