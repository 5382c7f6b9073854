"""The evidence of a quota request: usage, waste, pending time and cost at submission."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from math import fsum
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.formats import duration
from apps.quota_requests.domain.snapshots import (
    CurrencyCost,
    Evidence,
    FieldOwner,
    QuotaUse,
    TierUse,
)
from apps.web.components import formats
from apps.web.components.figure_row import FigureRow
from apps.web.components.formats import NOTHING, Format, percent, shown, unit_words

UNKNOWN = "not known"
_UTC = ZoneInfo("UTC")


class Grid(Struct, frozen=True):
    """A small table: its first column names the rows, the others hold figures.

    `worded`: the others hold words. `folded`: it is closed until somebody opens it.
    """

    id: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    worded: bool = False
    folded: bool = False


class Summary(Struct, frozen=True):
    """What one screen shows: facts, figures at a glance, tables, and sentences of what to mind.

    `warnings` speak against going on without a thought; `notes` say what else is so, or not known.
    """

    facts: FigureRow | None = None
    glance: Sequence[tuple[str, str, str]] = ()
    grids: Sequence[Grid] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    owners: Sequence[FieldOwner] = ()
    detail: str = ""


def amount(units: float | None) -> str:
    """Write an amount; what is not known is said."""
    return UNKNOWN if units is None else shown(float(units), Format.NUMBER, _UTC)


def gpu_hours(hours: float | None) -> str:
    """Write GPU-hours with one decimal, as everywhere, so that a column lines up."""
    if hours is None:
        return UNKNOWN
    # A little is not nothing: rounded to 0.0 it would be said that there was none.
    return "<0.1" if 0 < hours < 0.05 else f"{hours:,.1f}"


def ratio(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else percent(fraction)


def money(sum_: Decimal | None, currency: str) -> str:
    return UNKNOWN if sum_ is None else formats.money(sum_, currency)


def wait(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)


def at(instant: datetime | None, zone: ZoneInfo) -> str:
    """Write an instant to the minute."""
    return shown(instant, Format.HOUR, zone) if instant else NOTHING


def evidence_summary(evidence: Evidence | None, zone: ZoneInfo) -> Summary:
    """Return the evidence of a request; empty before it is submitted."""
    if evidence is None:
        return Summary()
    makers = (_quota_grid, _usage_grid, _money_grid, _fairness_grid, _budget_grid)
    grids = [make(evidence, zone) for make in makers]
    return Summary(
        glance=_glance(evidence),
        grids=[grid for grid in grids if grid.rows],
        notes=[
            # The note of a grid without rows is all of it: a sentence takes its place.
            *(grid.note for grid in grids if grid.note and not grid.rows),
            *(
                [f"Incomplete data: {'; '.join(dict.fromkeys(evidence.missing))}."]
                if evidence.missing
                else []
            ),
        ],
    )


def _glance(evidence: Evidence) -> list[tuple[str, str, str]]:
    quota, usage = evidence.quota or QuotaUse(), evidence.usage or ()
    unit = quota.unit or "units of the key"
    # Utilization is of what could be active: neither time without metrics nor pods that did not
    # run.
    measured = _sum(usage, "allocated") - _sum(usage, "unmeasured") - _sum(usage, "not_running")
    used = _sum(usage, "busy") / measured if measured > 0 else None
    pending, rejected = amount(quota.pending), amount(quota.suppressed)
    return [
        ("Utilization", ratio(used), "active ÷ (allocated, running, with metrics), of 30 days"),
        ("Idle", *_idle(usage, evidence.money or ())),
        ("Quota usage, mean", ratio(quota.saturation_mean), "used ÷ limit, 30 days"),
        ("Pending", pending, f"{unit_words(pending, unit)} now"),
        ("Blocked by quota", rejected, f"{unit_words(rejected, unit)} now"),
        ("Unmet fair share", *_denied(evidence)),
        ("Budget", *_burn(evidence)),
    ]


def _idle(usage: Sequence[TierUse], sums: Sequence[CurrencyCost]) -> tuple[str, str]:
    costs = " and ".join(money(row.idle, row.currency) for row in sums)
    worth = f", worth {costs}" if costs else "; cost not known"
    return (
        f"{gpu_hours(_sum(usage, 'idle'))} GPU-h" if usage else UNKNOWN,
        f"of 30 days{worth}" if usage else "of 30 days",
    )


def _burn(evidence: Evidence) -> tuple[str, str]:
    """Return how fast the budget goes that goes fastest; 1 lands exactly on it."""
    if evidence.budgets is None:
        return UNKNOWN, ""
    if not evidence.budgets:
        return "none", "the team has no budget"
    rates = [row.burn_rate for row in evidence.budgets]
    known = [rate for rate in rates if rate is not None]
    if not known:
        return UNKNOWN, "burn rate; 1 uses exactly the budget"
    of_all = "" if len(known) == len(rates) else ", of those that are known"
    return f"burn rate {amount(max(known))}", f"the fastest{of_all}; 1 uses exactly the budget"


def _sum(rows: Iterable[TierUse], name: str) -> float:
    return fsum(getattr(row, f"{name}_gpu_hours") or 0.0 for row in rows)


def _denied(evidence: Evidence) -> tuple[str, str]:
    """Return the unmet fair share; where `denied_whole` is False only of the known hours."""
    of = "of 30 days"
    denied = [row.denied_gpu_hours for row in evidence.fairness or ()]
    known = [hours for hours in denied if hours is not None]
    if not known:
        return UNKNOWN, of
    least = "at least " if evidence.denied_whole is False else ""
    told = f"{of}, known hours only" if least else of
    if evidence.denied_estimated:
        told += "; estimated from series in part"
    return f"{least}{gpu_hours(fsum(known))} GPU-h", told


_USAGE = (
    *(("allocated_gpu_hours", "Allocated"), ("busy_gpu_hours", "Active")),
    *(("idle_gpu_hours", "Idle"), ("underused_gpu_hours", "Underutilized")),
    *(("not_running_gpu_hours", "Allocated, not running"), ("unmeasured_gpu_hours", "No metrics")),
)


def _usage_grid(evidence: Evidence, _zone: ZoneInfo) -> Grid:
    rows = [
        (
            row.tier,
            *(gpu_hours(getattr(row, name)) for name, _ in _USAGE),
            ratio(row.utilization_ratio),
        )
        for row in evidence.usage or ()
    ]
    head = ("Tier", *(label for _, label in _USAGE), "Utilization")
    return Grid("usage", "Allocation of 30 days, GPU-hours", head, rows)


def _money_grid(evidence: Evidence, _zone: ZoneInfo) -> Grid:
    rows = [
        (row.currency, *(money(sum_, "") for sum_ in (row.cost, row.idle, row.wasted)))
        for row in evidence.money or ()
    ]
    return Grid("money", "Cost of 30 days", ("Currency", "Cost", "Idle", "Unused"), rows)


_NOW = (
    *(("hard", "limit"), ("used", "used"), ("held", "allocated"), ("pending", "pending")),
    ("suppressed", "blocked by quota"),
)


def _quota_grid(evidence: Evidence, zone: ZoneInfo) -> Grid:
    quota = evidence.quota
    if quota is None:
        return Grid("saturation", "", (), ())
    unit = quota.unit or "units"
    rows = [
        ("Now", ", ".join(f"{label} {amount(getattr(quota, name))}" for name, label in _NOW)),
        (
            "Quota usage, 30 days",
            f"mean {ratio(quota.saturation_mean)}, "
            f"peak {ratio(quota.saturation_peak)}, "
            f"at limit {quota.full_hours:g} of {quota.hours:,} h known",
        ),
        (
            "Pending, 30 days",
            f"pending {gpu_hours(quota.pending_unit_hours)}, blocked by quota "
            f"{gpu_hours(quota.suppressed_unit_hours)} quota-hours",
        ),
    ]
    if quota.exhausted_at:
        rows.append(("Full by", _full_by(quota, zone)))
    head = ("Figure", "Value")
    return Grid("saturation", f"The quota, in {unit}", head, rows, worded=True)


def _full_by(quota: QuotaUse, zone: ZoneInfo) -> str:
    if not _is_full(quota):
        return at(quota.exhausted_at, zone)
    recent = quota.full_last_hour is False
    return "full now, not throughout the last hour" if recent else "full now"


def _is_full(quota: QuotaUse) -> bool:
    # Evidence of earlier versions does not say so; then use and limit are compared.
    if quota.full_now is not None:
        return quota.full_now
    return quota.used is not None and quota.hard is not None and quota.used >= quota.hard


_FAIR = (
    *(("entitlement_gpus", "Entitled, GPUs"), ("fair_share_gpu_hours", "Fair share")),
    *(("allocated_gpu_hours", "Allocated"), ("borrowed_gpu_hours", "Borrowed")),
    *(("lent_gpu_hours", "Lent"), ("denied_gpu_hours", "Unmet fair share")),
)


def _fairness_grid(evidence: Evidence, _zone: ZoneInfo) -> Grid:
    rows = [
        (
            row.tier,
            *(gpu_hours(getattr(row, name)) for name, _ in _FAIR),
            f"{wait(row.wait_p50_seconds)}, {wait(row.wait_p95_seconds)}",
            amount(row.waiting_now),
        )
        for row in evidence.fairness or ()
    ]
    head = ("Tier", *(label for _, label in _FAIR), "Queue time p50, p95", "Pending now")
    return Grid("fairness", "Fairness of 30 days, GPU-hours", head, rows)


def _budget_grid(evidence: Evidence, zone: ZoneInfo) -> Grid:
    rows = [
        (
            f"{'GPU-hours' if row.unit == 'gpu_hours' else row.unit} a {row.period}",
            f"{float(row.allowance):,.1f}" if row.allowance is not None else UNKNOWN,
            f"{float(row.used):,.1f}" if row.used is not None else UNKNOWN,
            amount(row.burn_rate),
            at(row.exhausted_at, zone),
        )
        for row in evidence.budgets or ()
    ]
    head = ("Budget", "Amount", "Used", "Burn rate", "Used up by")
    note = "" if rows or evidence.budgets is None else "The team has no budget."
    return Grid("budgets", "Budgets", head, rows, note)
