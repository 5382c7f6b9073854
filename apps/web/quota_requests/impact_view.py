"""The impact of a quota request: entitlements, borrowing, cost, workloads that start, approvals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from apps.quota_requests.domain.approval_policy import Check, Ruling
from apps.quota_requests.domain.limit_effects import Overcommitment
from apps.quota_requests.domain.quantities import NotAQuantity, quantity
from apps.quota_requests.domain.snapshots import Preview
from apps.web.quota_requests.evidence_view import (
    UNKNOWN,
    Grid,
    Summary,
    amount,
    evidence_summary,
    money,
    whole_ratio,
)

MOST_NAMED = 2
WORSE = 0.1
"""Of the capacity: by so much more that is promised what was promised too much is worse."""


def impact_summary(preview: Preview | None, *, before: str, unit: str = "") -> Summary:
    """Return the effects of a change; empty before it is submitted. `unit` is of the key."""
    if preview is None:
        return Summary()
    units = unit or "units"
    grids = [_promised_grid(preview, units), _borrowing_grid(preview), _starts_grid(preview)]
    return Summary(
        glance=[
            ("At most per month", _ceiling(preview), _priced_as(preview)),
            ("Over-commitment after", *_promised(preview, units)),
            ("Would start", _starting(preview), "that only this quota holds back"),
        ],
        grids=[grid for grid in grids if grid.rows or grid.note],
        warnings=_warnings(preview, before, units),
        notes=_notes(preview, units),
        owners=preview.owners,
        detail=preview.dry_run_detail or "",
    )


def _ceiling(preview: Preview) -> str:
    least, most = preview.cost_per_month_least, preview.cost_per_month_most
    if most is None or least == most:
        return money(most, preview.currency)
    return f"{money(least, '')} – {money(most, preview.currency)}"


def _priced_as(preview: Preview) -> str:
    """Return of which tiers the price is: those that the key's pods really use."""
    names = preview.cost_tiers
    of = f" in {' and '.join(names)}" if 0 < len(names) <= MOST_NAMED else ""
    return f"if all of it were held{of} all the time"


def _starting(preview: Preview) -> str:
    if preview.used is None:
        return UNKNOWN
    pods = sum(row.admitted for row in preview.starts)
    return f"{pods} pod{'' if pods == 1 else 's'}"


# ---------------------------------------------------------------- promised


def _together(preview: Preview) -> Overcommitment | None:
    """Return what is promised of all that the key reaches, each quota counted once.

    What was frozen before that was worked out has the sums of tiers alone; of one tier they are
    the same.
    """
    if preview.together is not None or len(preview.promised) != 1:
        return preview.together
    (only,) = preview.promised
    return replace(only, was_over=_was_over(only))


def _promised(preview: Preview, units: str) -> tuple[str, str]:
    together = _together(preview)
    if together is None:
        known = [n for n in (row.promised_ratio for row in preview.promised) if n is not None]
        return whole_ratio(max(known) if known else None), "Σ quota ÷ capacity, of the fullest tier"
    after, capacity = amount(together.after_units), together.capacity_units
    if capacity is None:
        small = f"{after} {units} of {_reached(preview)}; its capacity is not known"
    else:
        small = f"Σ quota ÷ capacity: {after} of {amount(capacity)} {units} of {_reached(preview)}"
    return whole_ratio(together.promised_ratio), small


def _reached(preview: Preview) -> str:
    names = [row.tier for row in preview.promised] or preview.tiers
    if len(names) > 2:
        return f"all {len(names)} tiers"
    return " and ".join(names) or "what it reaches"


def _promised_grid(preview: Preview, units: str) -> Grid:
    rows = [
        (
            row.tier,
            amount(row.before_units),
            amount(row.after_units),
            amount(row.capacity_units),
            whole_ratio(row.promised_ratio),
        )
        for row in preview.promised
    ]
    head = ("Tier", "Σ quota now", "Σ quota after", "Capacity", "After ÷ capacity")
    many = len(rows) > 1
    note = "A key that reaches several tiers counts whole in each." if many else ""
    title = f"Σ quota against capacity, in {units}"
    if many:
        title = f"Tier by tier: {title}"
    return Grid("promised", title, head, rows, note, folded=many)


def _over(preview: Preview, units: str) -> tuple[list[str], list[str]]:
    """Return what is warned of, and what is only said: promised too much before already."""
    together = _together(preview)
    warned, said = [], []
    if together is not None and together.over:
        is_first = not together.was_over
        sentence = together.sentence or _sentence(preview, together, units)
        if is_first:
            warned.append(f"More would be promised than there is. {sentence}")
        elif _is_worse(together):
            warned.append(f"Still more would be promised than there is. {sentence}")
        else:
            said.append(f"Already overcommitted before. {sentence}")
    if together is None or len(preview.promised) > 1:
        crossing, before = _beyond(preview, first=True), _beyond(preview, first=False)
        if crossing:
            warned.append(f"Promised for the first time beyond what there is: {crossing}.")
        if before and together is None:
            said.append(f"Promised beyond what there is before already: {before}.")
    return warned, said


def _sentence(preview: Preview, together: Overcommitment, units: str) -> str:
    of = f"{amount(together.after_units)} of {amount(together.capacity_units)} {units}"
    before = amount(together.before_units)
    return f"{of} of {_reached(preview)} would be promised; before {before}."


def _is_worse(together: Overcommitment) -> bool:
    more = together.after_units - together.before_units
    return more >= WORSE * (together.capacity_units or 0.0)


def _beyond(preview: Preview, *, first: bool) -> str:
    """Return the tiers promised beyond what there is, by this change for the first time or not."""
    return ", ".join(
        f"{amount(row.after_units)} of {amount(row.capacity_units)} of {row.tier}"
        for row in preview.promised
        if row.over and _was_over(row) is not first
    )


def _was_over(row: Overcommitment) -> bool:
    return row.capacity_units is not None and row.before_units > row.capacity_units


# ---------------------------------------------------------------- borrowing, starting


def _borrowing_grid(preview: Preview) -> Grid:
    rooms = preview.borrowing
    losing = [row for row in rooms if row.lost > 0]
    rows = [
        (
            row.name,
            f"{amount(row.idle_before)} → {amount(row.idle_after)}",
            f"{amount(row.full_before)} → {amount(row.full_after)}",
            amount(row.lost),
        )
        for row in losing
    ]
    head = ("Queue", "While this one is idle", "While it is full", "Loses")
    others = "other queue of the cohort" if losing else "queue of the cohort"
    note = f"No {others} loses anything." if len(rooms) > len(losing) else ""
    return Grid("borrowing", "What others of the cohort could borrow", head, rows, note)


def _starts_grid(preview: Preview) -> Grid:
    rows = [
        (row.name, amount(row.admitted), amount(row.free), amount(row.left))
        for row in (preview.starts if preview.used is not None else ())
    ]
    head = ("Pending workloads", "Pods let through", "Of them a GPU is free for", "Still rejected")
    return Grid("starts", "What would start at once", head, rows)


# ---------------------------------------------------------------- sentences


def _warnings(preview: Preview, before: str, units: str) -> list[str]:
    found = _over(preview, units)[0]
    live = preview.live
    if live is not None and not _is_same(live, before):
        found.append(f"The cluster shows {live} now, not {before}.")
    if preview.unreached:
        found.append(preview.unreached)
    if preview.dry_run_passed is not True and preview.dry_run:
        found.append(preview.dry_run)
    return found


def _is_same(live: str, before: str) -> bool:
    """Compare as amounts: `8.0` is what somebody may write for 8."""
    try:
        return quantity(live) == quantity(before.strip())
    except NotAQuantity:
        return live == before


def _notes(preview: Preview, units: str) -> list[str]:
    found = _over(preview, units)[1]
    if preview.dry_run_passed is True:
        found.append(preview.dry_run or "The dry run against the cluster passed.")
    if preview.without_price:
        found.append(f"No price is known for {', '.join(preview.without_price)}.")
    if preview.used is None:
        found.append("What is used of the quota is not known, nor what would start.")
    if preview.live is None:
        found.append("What the cluster shows now could not be read.")
    return found


__all__ = ["Ruled", "Summary", "approval_summary", "evidence_summary", "impact_summary"]


@dataclass(frozen=True, slots=True)
class Ruled:
    """Who decides, by what, and each rule with whether it holds (None: that is not known).

    As a sequence it is its sentences, what decides first.
    """

    who: str = ""
    why: str = ""
    checks: Sequence[tuple[bool | None, str]] = ()

    def __bool__(self) -> bool:
        return bool(self.who)

    def __iter__(self) -> Iterator[str]:
        yield from (text for text in (self.who, self.why) if text)
        yield from (sentence for _, sentence in self.checks)


def approval_summary(ruling: Ruling | None) -> Ruled:
    """Return the site's rules about a request; empty before it is submitted."""
    if ruling is None:
        return Ruled()
    first = _first(ruling)
    return Ruled(
        who=_who(ruling),
        why=first.sentence if first is not None else "",
        checks=[(one.holds, one.sentence) for one in ruling.checks if one is not first],
    )


def _who(ruling: Ruling) -> str:
    if ruling.verdict:
        return ruling.verdict
    if ruling.by_rule:
        return "The site's rules approve this by themselves."
    if ruling.approvals_needed > 1:
        return f"{ruling.approvals_needed} people have to approve this."
    return "One person has to approve this, who did not write it."


def _first(ruling: Ruling) -> Check | None:
    """Return the check that decides: that two people do, else the first that does not hold."""
    named = [one for one in ruling.checks if one.name == ruling.decides]
    two = [one for one in ruling.checks if one.name == "two people"]
    against = [] if ruling.by_rule else [one for one in ruling.checks if not one.holds]
    return next(iter([*named, *two, *against]), None)
