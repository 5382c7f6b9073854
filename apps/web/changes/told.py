"""What a request is decided by, in words: evidence, preview and ruling as they were frozen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import fsum
from typing import Any
from zoneinfo import ZoneInfo

from apps.changes.domain.quantities import NotAQuantity, quantity
from apps.clusters.domain.durations import duration
from apps.web.formats import Format, shown

UNKNOWN = "not known"
_UTC = ZoneInfo("UTC")
Frozen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table: its first column names the rows, the others hold figures."""

    id: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Another tool that owns the limit, and what that means for the change."""

    manager: str
    advice: str


@dataclass(frozen=True, slots=True)
class Told:
    """What one screen shows: figures at a glance, tables, and sentences of what to mind.

    `warnings` speak against going on without a thought; `notes` say what else is so, or not known.
    """

    glance: Sequence[tuple[str, str, str]] = ()
    grids: Sequence[Grid] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    owners: Sequence[Owner] = ()
    detail: str = ""


def amount(text: object) -> str:
    """Write a frozen figure, which is text; what is not known is said."""
    return UNKNOWN if text is None else shown(float(str(text)), Format.NUMBER, _UTC)


def ratio(text: object) -> str:
    return UNKNOWN if text is None else shown(float(str(text)), Format.RATIO, _UTC)


def money(text: object, currency: str) -> str:
    return UNKNOWN if text is None else f"{Decimal(str(text)):,.2f} {currency}".strip()


def _wait(text: object) -> str:
    return UNKNOWN if text is None else duration(float(str(text)))


def _at(text: object, zone: ZoneInfo) -> str:
    if not text:
        return "–"
    return shown(datetime.fromisoformat(str(text)), Format.TIME, zone)


# ---------------------------------------------------------------- evidence


def evidence_told(evidence: Frozen, zone: ZoneInfo) -> Told:
    """Return the evidence of a request; empty before it is handed in."""
    if not evidence:
        return Told()
    usage = evidence.get("usage", [])
    makers = (_usage_grid, _money_grid, _quota_grid, _fairness_grid, _budget_grid)
    grids = [make(evidence, zone) for make in makers]
    return Told(
        glance=_glance(evidence, usage),
        grids=[grid for grid in grids if grid.rows],
        notes=[
            *(grid.note for grid in grids if grid.note and not grid.rows),
            *(f"Not known: {what}." for what in evidence.get("missing", [])),
        ],
    )


def _glance(evidence: Frozen, usage: Sequence[Frozen]) -> list[tuple[str, str, str]]:
    quota = evidence.get("quota", {})
    fair = evidence.get("fairness", [])
    measured = _sum(usage, "allocated") - _sum(usage, "unmeasured") - _sum(usage, "not_running")
    used = _sum(usage, "busy") / measured if measured > 0 else None
    return [
        ("Utilization", ratio(used), "busy ÷ allocated, running and measured, of 30 days"),
        ("Idle", *_idle(usage, evidence.get("money", []))),
        ("Saturation, mean", ratio(quota.get("saturation_mean")), "used ÷ hard, of 30 days"),
        ("Pending", amount(quota.get("pending")), "waits now, in units of the key"),
        ("Refused before a pod", amount(quota.get("suppressed")), "suppressed now, in units"),
        ("Denied", _denied(fair), "of the fair share, of 30 days"),
        ("Budget", *_burn(evidence)),
    ]


def _idle(usage: Sequence[Frozen], sums: Sequence[Frozen]) -> tuple[str, str]:
    costs = " and ".join(money(row.get("idle"), row["currency"]) for row in sums)
    worth = f", worth {costs}" if costs else "; what that cost is not known"
    return (
        f"{amount(_sum(usage, 'idle'))} GPU-h" if usage else UNKNOWN,
        f"of 30 days{worth}" if usage else "of 30 days",
    )


def _burn(evidence: Frozen) -> tuple[str, str]:
    """Return how fast the budget goes that goes fastest; 1 lands exactly on it."""
    if "budgets" not in evidence:
        return UNKNOWN, ""
    rows = evidence["budgets"]
    if not rows:
        return "none", "the team has no budget to keep to"
    rates = [row.get("burn_rate") for row in rows]
    known = [float(str(rate)) for rate in rates if rate is not None]
    if not known:
        return UNKNOWN, "burn rate; 1 lands exactly on budget"
    of_all = "" if len(known) == len(rates) else ", of those that are known"
    return f"burn rate {amount(max(known))}", f"the fastest{of_all}; 1 lands exactly on budget"


def _sum(rows: Iterable[Frozen], name: str) -> float:
    return fsum(float(row.get(f"{name}_gpu_hours") or 0) for row in rows)


def _denied(rows: Sequence[Frozen]) -> str:
    known = [row["denied_gpu_hours"] for row in rows if row.get("denied_gpu_hours") is not None]
    if not known:
        return UNKNOWN
    return f"{amount(fsum(float(text) for text in known))} GPU-h"


_USAGE = (
    *(("allocated_gpu_hours", "Allocated"), ("busy_gpu_hours", "Busy")),
    *(("idle_gpu_hours", "Idle"), ("underused_gpu_hours", "Underused")),
    *(("not_running_gpu_hours", "Not running"), ("unmeasured_gpu_hours", "Unmeasured")),
)


def _usage_grid(evidence: Frozen, _zone: ZoneInfo) -> Grid:
    rows = [
        (
            row["tier"],
            *(amount(row.get(name)) for name, _ in _USAGE),
            ratio(row.get("utilization_ratio")),
        )
        for row in evidence.get("usage", [])
    ]
    head = ("Tier", *(label for _, label in _USAGE), "Utilization")
    return Grid("usage", "Held and used in 30 days, GPU-hours", head, rows)


def _money_grid(evidence: Frozen, _zone: ZoneInfo) -> Grid:
    rows = [
        (row["currency"], *(money(row.get(name), "") for name in ("cost", "idle", "wasted")))
        for row in evidence.get("money", [])
    ]
    return Grid("money", "Money of 30 days", ("Currency", "Cost", "Of it idle", "Wasted"), rows)


def _quota_grid(evidence: Frozen, zone: ZoneInfo) -> Grid:
    quota = evidence.get("quota")
    if not quota:
        return Grid("saturation", "", (), ())
    unit = quota.get("unit") or "units"
    now = ("hard", "used", "held", "pending", "suppressed")
    rows = [
        ("Now", ", ".join(f"{name} {amount(quota.get(name))}" for name in now)),
        (
            "Saturation of 30 days",
            f"mean {ratio(quota.get('saturation_mean'))}, "
            f"peak {ratio(quota.get('saturation_peak'))}, "
            f"full in {quota.get('full_hours', 0)} of {quota.get('hours', 0)} known hours",
        ),
        (
            "Waited in 30 days",
            f"pending {amount(quota.get('pending_unit_hours'))}, "
            f"suppressed {amount(quota.get('suppressed_unit_hours'))} unit-hours",
        ),
    ]
    if quota.get("exhausted_at"):
        rows.append(("Full by", _at(quota["exhausted_at"], zone)))
    return Grid("saturation", f"The quota, in {unit}", ("What", "How much"), rows)


_FAIR = (
    *(("entitlement_gpus", "Entitled, GPUs"), ("fair_share_gpu_hours", "Fair share")),
    *(("allocated_gpu_hours", "Allocated"), ("borrowed_gpu_hours", "Borrowed")),
    *(("lent_gpu_hours", "Lent"), ("denied_gpu_hours", "Denied")),
)


def _fairness_grid(evidence: Frozen, _zone: ZoneInfo) -> Grid:
    rows = [
        (
            row["tier"],
            *(amount(row.get(name)) for name, _ in _FAIR),
            f"{_wait(row.get('wait_p50_seconds'))}, {_wait(row.get('wait_p95_seconds'))}",
            amount(row.get("waiting_now")),
        )
        for row in evidence.get("fairness", [])
    ]
    head = ("Tier", *(label for _, label in _FAIR), "Wait p50, p95", "Waiting now")
    return Grid("fairness", "Fairness of 30 days, GPU-hours", head, rows)


def _budget_grid(evidence: Frozen, zone: ZoneInfo) -> Grid:
    rows = [
        (
            f"{row['unit'].replace('_', '-')} a {row['period']}",
            amount(row.get("allowance")),
            amount(row.get("used")),
            amount(row.get("burn_rate")),
            _at(row.get("exhausted_at"), zone),
        )
        for row in evidence.get("budgets", [])
    ]
    head = ("Budget", "Allowance", "Used", "Burn rate", "Used up by")
    note = "" if rows or "budgets" not in evidence else "The team has no budget."
    return Grid("budgets", "Budgets", head, rows, note)


# ---------------------------------------------------------------- preview


def preview_told(preview: Frozen, *, before: str) -> Told:
    """Return what a change would do; empty before it is handed in."""
    if not preview:
        return Told()
    grids = [_promised_grid(preview), _borrowing_grid(preview), _starts_grid(preview)]
    owners = [Owner(one["manager"], one["advice"]) for one in preview.get("owners") or []]
    return Told(
        glance=[
            ("Cost ceiling", _ceiling(preview), "a month, if all of it were held all the time"),
            ("Promised after", _promised(preview), "Σ quota ÷ capacity"),
            ("Would start", _starting(preview), "pods that only this quota holds back"),
        ],
        grids=[grid for grid in grids if grid.rows],
        warnings=_warnings(preview, before),
        notes=_notes(preview),
        owners=owners,
        detail=preview.get("dry_run_detail") or "",
    )


def _ceiling(preview: Frozen) -> str:
    least, most = preview.get("cost_per_month_least"), preview.get("cost_per_month_most")
    currency = preview.get("currency") or ""
    if most is None or least == most:
        return money(most, currency)
    return f"{money(least, '')} – {money(most, currency)}"


def _promised(preview: Frozen) -> str:
    ratios = [row.get("promised_ratio") for row in preview.get("promised", [])]
    known = [float(text) for text in ratios if text is not None]
    return ratio(max(known)) if known else UNKNOWN


def _starting(preview: Frozen) -> str:
    if preview.get("used", "") is None:
        return UNKNOWN
    pods = sum(row["admitted"] for row in preview.get("starts", []))
    return f"{pods} pod{'' if pods == 1 else 's'}"


def _promised_grid(preview: Frozen) -> Grid:
    rows = [
        (
            row["tier"],
            amount(row.get("before_units")),
            amount(row.get("after_units")),
            amount(row.get("capacity_units")),
            ratio(row.get("promised_ratio")),
        )
        for row in preview.get("promised", [])
    ]
    head = ("Tier", "Σ quota now", "Σ quota after", "Capacity", "After ÷ capacity")
    note = "A key that reaches several tiers counts whole in each." if len(rows) > 1 else ""
    return Grid("promised", "Σ quota against capacity, in units of the key", head, rows, note)


def _borrowing_grid(preview: Frozen) -> Grid:
    rows = [
        (
            row["name"],
            f"{amount(row.get('idle_before'))} → {amount(row.get('idle_after'))}",
            f"{amount(row.get('full_before'))} → {amount(row.get('full_after'))}",
            amount(row.get("lost")),
        )
        for row in preview.get("borrowing", [])
    ]
    head = ("Queue", "While this one is idle", "While it is full", "Loses")
    return Grid("borrowing", "What others of the cohort could borrow", head, rows)


def _starts_grid(preview: Frozen) -> Grid:
    rows = [
        (row["name"], amount(row["admitted"]), amount(row["free"]), amount(row["left"]))
        for row in (preview.get("starts", []) if preview.get("used", "") is not None else [])
    ]
    head = ("What waits", "Pods let through", "Of them a GPU is free for", "Still refused")
    return Grid("starts", "What would start at once", head, rows)


def _warnings(preview: Frozen, before: str) -> list[str]:
    found = []
    over = [
        f"{amount(row['after_units'])} of {amount(row['capacity_units'])} of {row['tier']}"
        for row in preview.get("promised", [])
        if row.get("over")
    ]
    if over:
        found.append(f"More would be promised than there is: {', '.join(over)}.")
    live = preview.get("live")
    if live is not None and not _is_same(live, before):
        found.append(f"The cluster shows {live} now, not {before}.")
    if preview.get("unreached"):
        found.append(preview["unreached"])
    if preview.get("dry_run_passed") is not True and preview.get("dry_run"):
        found.append(preview["dry_run"])
    return found


def _is_same(live: str, before: str) -> bool:
    """Compare as amounts: `8.0` is what somebody may write for 8."""
    try:
        return quantity(live) == quantity(before.strip())
    except NotAQuantity:
        return live == before


def _notes(preview: Frozen) -> list[str]:
    found = []
    if preview.get("dry_run_passed") is True:
        found.append(preview.get("dry_run") or "The dry run against the cluster passed.")
    if preview.get("without_price"):
        found.append(f"No price is known for {', '.join(preview['without_price'])}.")
    if preview.get("used", "") is None:
        found.append("What is used of the quota is not known, nor what would start.")
    if preview.get("live") is None:
        found.append("What the cluster shows now could not be read.")
    return found


# ---------------------------------------------------------------- ruling


def ruling_told(ruling: Frozen) -> list[str]:
    """Return what the site's rules say of a request, in sentences; none before it is handed in."""
    if not ruling:
        return []
    if ruling.get("by_rule"):
        first = "The site's rules approve this by themselves."
    elif ruling.get("approvals_needed", 1) > 1:
        first = f"{ruling['approvals_needed']} people have to approve this."
    else:
        first = "One person has to approve this, who did not write it."
    return [first, *(check["sentence"] for check in ruling.get("checks", []))]
