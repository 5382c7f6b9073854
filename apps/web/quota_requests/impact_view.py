"""The impact of a quota request: entitlements, borrowing, cost, workloads that start, approvals."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.quota_requests.domain.approval_policy import PolicyCheck, PolicyDecision
from apps.quota_requests.domain.limit_effects import Overcommitment
from apps.quota_requests.domain.quantities import NotAQuantity, quantity
from apps.quota_requests.domain.snapshots import ImpactPreview
from apps.web.components.figure_row import (
    NOTE_WORDS,
    FigureRow,
    KeyFigure,
    Tone,
    figure_row,
    no_data,
)
from apps.web.quota_requests.evidence_view import (
    Grid,
    Summary,
    amount,
    evidence_summary,
    money,
    ratio,
)

MOST_NAMED = 2
WORSE = 0.1
"""Of the capacity: by so much more that is promised what was promised too much is worse."""


def impact_summary(preview: ImpactPreview | None, *, before: str, unit: str = "") -> Summary:
    """Return the effects of a change; empty before it is submitted. `unit` is of the key."""
    if preview is None:
        return Summary()
    units = unit or "units"
    grids = [_entitled_grid(preview, units), _borrowing_grid(preview), _starts_grid(preview)]
    return Summary(
        facts=impact_facts(preview, units),
        grids=[grid for grid in grids if grid.rows or grid.note],
        warnings=_warnings(preview, before, units),
        notes=_notes(preview, units),
        owners=preview.owners,
        detail=preview.dry_run_detail or "",
    )


def impact_facts(preview: ImpactPreview, units: str) -> FigureRow:
    """Return the four facts that a change is decided by."""
    return figure_row(
        _unblocks(preview),
        _cost(preview),
        _entitled(preview, units),
        _dry_run(preview),
        name="Impact",
    )


def _unblocks(preview: ImpactPreview) -> KeyFigure:
    if preview.used is None:
        return no_data("Unblocks", "What is used of the quota is not known.")
    pods = sum(row.admitted for row in preview.starts)
    known = [row.free for row in preview.starts if row.free is not None]
    # A sum that lacks some pods would promise fewer free GPUs than there may be.
    free = sum(known) if len(known) == len(preview.starts) else None
    note = "" if free is None or not pods else f"GPU free for {free:g}"
    if free is not None and pods and free >= pods:
        note = "GPU free: yes"
    return KeyFigure(
        "Unblocks",
        f"{pods:g}",
        "pod" if pods == 1 else "pods",
        exact="Pods that only this quota blocks",
        note=note,
    )


def _cost(preview: ImpactPreview) -> KeyFigure:
    """Return the cost of a month, of the tiers that the key's pods really use."""
    least, most = preview.cost_per_month_least, preview.cost_per_month_most
    names = preview.cost_tiers
    on = f"on {' and '.join(names)}" if 0 < len(names) <= MOST_NAMED else ""
    if most is None:
        of = ", ".join(preview.without_price)
        return no_data("Cost at most", f"No price is known for {of or 'its tiers'}.")
    low = "" if least in (None, most) else f"{money(least, preview.currency)} – "
    return KeyFigure(
        "Cost at most",
        money(most, preview.currency),
        "a month",
        exact=f"{low}{money(most, preview.currency)} if all of it were allocated all the time",
        note=on if len(on.split()) <= NOTE_WORDS else "",
    )


def _dry_run(preview: ImpactPreview) -> KeyFigure:
    passed = preview.dry_run_passed
    word = "not run" if passed is None else "passed" if passed else "failed"
    tone = Tone.NONE if passed is None else Tone.GOOD if passed else Tone.DANGER
    return KeyFigure("Dry run", word, exact=preview.dry_run, tone=tone)


# ---------------------------------------------------------------- promised


def _together(preview: ImpactPreview) -> Overcommitment | None:
    """Return what is promised of all that the key reaches, each quota counted once.

    What was frozen before that was worked out has the sums of tiers alone; of one tier they are
    the same.
    """
    if preview.together is not None or len(preview.promised) != 1:
        return preview.together
    (only,) = preview.promised
    return replace(only, was_over=_was_over(only))


def _entitled(preview: ImpactPreview, units: str) -> KeyFigure:
    """Return Σ quota ÷ capacity after the change, and before where it is known."""
    label, together = "Quota ÷ capacity", _together(preview)
    # Sums of tiers cannot be added: a quota that reaches several counts whole in each.
    if together is None:
        known = [n for n in (row.promised_ratio for row in preview.promised) if n is not None]
        of = "Σ quota ÷ capacity, of the fullest tier"
        if not known:
            return no_data(label, "The capacity is not known.")
        return KeyFigure(label, ratio(max(known)), "after", exact=of)
    after, capacity = amount(together.after_units), together.capacity_units
    if capacity is None or together.promised_ratio is None:
        return no_data(label, f"{after} {units} of {_reached(preview)}; its capacity is not known")
    reached = _reached(preview)
    before = ratio(together.before_units / capacity)
    return KeyFigure(
        label,
        f"{before.removesuffix(' %')} → {ratio(together.promised_ratio)}",
        exact=f"Σ quota ÷ capacity: {after} of {amount(capacity)} {units} of {reached}",
        note=reached if len(reached.split()) <= NOTE_WORDS else "",
        tone=Tone.WARNING if together.over else Tone.NONE,
    )


def _reached(preview: ImpactPreview) -> str:
    names = [row.tier for row in preview.promised] or preview.tiers
    if len(names) > 2:
        return f"all {len(names)} tiers"
    return " and ".join(names) or "what it reaches"


def _entitled_grid(preview: ImpactPreview, units: str) -> Grid:
    rows = [
        (
            row.tier,
            amount(row.before_units),
            amount(row.after_units),
            amount(row.capacity_units),
            ratio(row.promised_ratio),
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


def _over(preview: ImpactPreview, units: str) -> tuple[list[str], list[str]]:
    """Return what is warned of, and what is only said: promised too much before already."""
    together = _together(preview)
    warned, said = [], []
    if together is not None and together.over:
        is_first = not together.was_over
        sentence = together.sentence or _sentence(preview, together, units)
        if is_first:
            warned.append(f"This overcommits capacity. {sentence}")
        elif _is_worse(together):
            # A little more of what was promised too much already is no news to who decides.
            warned.append(f"This overcommits capacity further. {sentence}")
        else:
            said.append(f"Already overcommitted before. {sentence}")
    if together is None or len(preview.promised) > 1:
        crossing, before = _beyond(preview, first=True), _beyond(preview, first=False)
        if crossing:
            warned.append(f"Overcommitted by this change: {crossing}.")
        if before and together is None:
            said.append(f"Overcommitted before already: {before}.")
    return warned, said


def _sentence(preview: ImpactPreview, together: Overcommitment, units: str) -> str:
    of = f"{amount(together.after_units)} of {amount(together.capacity_units)} {units}"
    before = amount(together.before_units)
    return f"{of} of {_reached(preview)} would be committed; before {before}."


def _is_worse(together: Overcommitment) -> bool:
    more = together.after_units - together.before_units
    return more >= WORSE * (together.capacity_units or 0.0)


def _beyond(preview: ImpactPreview, *, first: bool) -> str:
    """Return the tiers promised beyond what there is, by this change for the first time or not."""
    return ", ".join(
        f"{amount(row.after_units)} of {amount(row.capacity_units)} of {row.tier}"
        for row in preview.promised
        if row.over and _was_over(row) is not first
    )


def _was_over(row: Overcommitment) -> bool:
    return row.capacity_units is not None and row.before_units > row.capacity_units


# ---------------------------------------------------------------- borrowing, starting


def _borrowing_grid(preview: ImpactPreview) -> Grid:
    rooms = preview.borrowing
    # Queues that lose nothing are not named: the note counts them in.
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


def _starts_grid(preview: ImpactPreview) -> Grid:
    rows = [
        (row.name, amount(row.admitted), amount(row.free), amount(row.left))
        for row in (preview.starts if preview.used is not None else ())
    ]
    head = ("Pending workloads", "Pods let through", "Of them a GPU is free for", "Still rejected")
    return Grid("starts", "What would start at once", head, rows)


# ---------------------------------------------------------------- sentences


def _warnings(preview: ImpactPreview, before: str, units: str) -> list[str]:
    found = [*preview.conflicts, *_over(preview, units)[0]]
    live = preview.live
    if live is not None and not _is_same(live, before):
        found.append(f"The cluster shows {live} now, not {before}.")
    if preview.unreached:
        found.append(preview.unreached)
    # A dry run that was not made is a warning too: the cluster's answer is unknown.
    if preview.dry_run_passed is not True and preview.dry_run:
        found.append(preview.dry_run)
    return found


def _is_same(live: str, before: str) -> bool:
    """Compare as amounts: `8.0` is what somebody may write for 8."""
    try:
        return quantity(live) == quantity(before.strip())
    except NotAQuantity:
        return live == before


def _notes(preview: ImpactPreview, units: str) -> list[str]:
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


__all__ = ["PolicyVerdict", "Summary", "approval_summary", "evidence_summary", "impact_summary"]


class PolicyVerdict(Struct, frozen=True):
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


def approval_summary(ruling: PolicyDecision | None) -> PolicyVerdict:
    """Return the site's rules about a request; empty before it is submitted."""
    if ruling is None:
        return PolicyVerdict()
    first = _first(ruling)
    return PolicyVerdict(
        who=_who(ruling),
        why=first.sentence if first is not None else "",
        checks=[(one.holds, one.sentence) for one in ruling.checks if one is not first],
    )


def _who(ruling: PolicyDecision) -> str:
    if ruling.verdict:
        return ruling.verdict
    if ruling.by_rule:
        return "The site's rules approve this by themselves."
    if ruling.approvals_needed > 1:
        return f"{ruling.approvals_needed} people have to approve this."
    return "One other person has to approve this."


def _first(ruling: PolicyDecision) -> PolicyCheck | None:
    """Return the check that decides: that two people do, else the first that does not hold."""
    named = [one for one in ruling.checks if one.name == ruling.decides]
    two = [one for one in ruling.checks if one.name == "two people"]
    # Where the rules approve by themselves, no check speaks against it.
    against = [] if ruling.by_rule else [one for one in ruling.checks if not one.holds]
    return next(iter([*named, *two, *against]), None)
