"""A proposal to change the catalog as it is shown: in words, with the facts that decide on it."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from apps.accounts.permissions import can_administer
from apps.operations.domain.proposals import ProposalKind, ProposedChange, ProposedValue
from apps.operations.selectors import (
    BudgetImpact,
    EntitlementImpact,
    NamespacesImpact,
    ProposalImpact,
    ProposalRow,
    proposal_impacts,
)
from apps.operations.services import ProposalDryRun, dry_runs
from apps.web.components import formats
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, Value, shown, unit_words
from apps.web.components.page_query import href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

if TYPE_CHECKING:
    from apps.accounts.models import User

KINDS = {
    ProposalKind.ENTITLEMENT: "Entitlement",
    ProposalKind.NAMESPACES: "Namespaces",
    ProposalKind.BUDGET: "Budget",
}
_MOST_NAMED = 3
_NO_HOUR = "No closed hour of this tier in the last 24 hours"


class ProposalView(Struct, frozen=True):
    """A proposal with its values in words, its facts, and what the reader may do with it.

    `facts` are there while it is open; `refusal` says why it could not be approved now.
    """

    row: ProposalRow
    href: str
    before: str
    after: str
    facts: FigureRow | None = None
    changes: Sequence[str] = ()
    refusal: str = ""
    moves: Sequence[str] = ()
    may_decide: bool = False
    may_cancel: bool = False
    needs_another: bool = False

    @property
    def title(self) -> str:
        """What is to change, from what to what; of namespaces what comes and goes."""
        what, after = _sentence(self.row), self.after
        unit = f" {after.rpartition(' ')[2]}"
        # The unit once: the subject of a budget ends with it.
        before = self.before.removesuffix(unit)
        if before != self.before and what.endswith(unit):
            after = after.removesuffix(unit)
        change = f"{before} → {after}"
        if self.row.target.kind is ProposalKind.NAMESPACES:
            change = ", ".join(_patterns(self.row.change))
        return f"{what}: {change}"

    @property
    def mark(self) -> str:
        """How its state is coloured."""
        return {"submitted": "waiting", "approved": "complete", "rejected": "failed"}.get(
            self.row.state, ""
        )


def _sentence(row: ProposalRow) -> str:
    target = str(row.target)
    return f"{target[:1].upper()}{target[1:]}"


def _patterns(change: ProposedChange) -> list[str]:
    """Return the patterns that come and go, with their signs."""
    old, new = (set(value.get("patterns", ())) for value in (change.before, change.after))
    return [*(f"+ {name}" for name in sorted(new - old)), *(f"− {n}" for n in sorted(old - new))]


def proposal_views(
    rows: Sequence[ProposalRow], reading: QuerySession, user: "User"
) -> list[ProposalView]:
    """Return proposals as they are shown, open ones with impact and dry run of now."""
    changes = [row.change for row in rows if row.is_open]
    # For all at once: one by one, each would read its tier and its team again.
    impacts = proposal_impacts(changes, now=reading.now, visibility=reading.visibility)
    found = zip(impacts, dry_runs(changes, now=reading.now), strict=True)
    return [_view(row, reading, user, next(found) if row.is_open else None) for row in rows]


def _view(
    row: ProposalRow,
    reading: QuerySession,
    user: "User",
    found: tuple[ProposalImpact, ProposalDryRun] | None,
) -> ProposalView:
    address = href("proposal", reading.query, pk=str(row.id)) or ""
    before, after = words_of(row.before), words_of(row.after)
    if found is None:
        return ProposalView(row, address, before, after)
    impact, run = found
    # No user decides on a proposal of their own, an administrator neither.
    own = row.author == user.username
    is_admin = can_administer(user)
    return ProposalView(
        row,
        address,
        before,
        after,
        facts=facts_of(row.change, impact, run, reading),
        changes=run.changes,
        refusal=run.refusal,
        moves=moves_of(impact),
        may_decide=is_admin and not own,
        may_cancel=own,
        needs_another=own and is_admin,
    )


def words_of(value: ProposedValue) -> str:
    """Return a value in words; a dash where the catalog says nothing."""
    if "patterns" in value:
        return ", ".join(value["patterns"])
    if "gpus" in value:
        weight = f", weight {value['weight']}" if "weight" in value else ""
        gpus = _grouped(value["gpus"])
        return f"{gpus} {unit_words(gpus, 'GPUs')}{weight}"
    if "weight" in value:
        return f"weight {value['weight']}"
    if "amount" in value:
        return f"{_grouped(value['amount'])} {value.get('currency') or 'GPU-hours'}"
    return "–"


def _grouped(text: str) -> str:
    """Write a number of the catalog with its thousands grouped."""
    whole, point, rest = text.partition(".")
    # By its text, since the catalog keeps numbers as they were written.
    return f"{int(whole):,}{point}{rest}" if whole.isdecimal() else text


def moves_of(impact: ProposalImpact) -> list[str]:
    """Return the namespaces that move, from whom to whom; empty for other changes."""
    if not isinstance(impact, NamespacesImpact):
        return []
    return [
        f"{one.namespace}: {one.before or 'no team'} → {one.after or 'no team'}"
        for one in impact.moves
    ]


# ---------------------------------------------------------------- facts


def facts_of(
    change: ProposedChange, impact: ProposalImpact, run: ProposalDryRun, reading: QuerySession
) -> FigureRow:
    """Return the four facts that a proposal is decided by."""
    match impact:
        case EntitlementImpact():
            facts = _entitlement_facts(change, impact, reading)
        case NamespacesImpact():
            facts = _namespace_facts(change, impact)
        case BudgetImpact():
            facts = _budget_facts(change, impact, reading)
    return figure_row(*facts, _dry_run(run), name="Impact")


def _dry_run(run: ProposalDryRun) -> KeyFigure:
    if run.refusal:
        return KeyFigure("Dry run", "failed", exact=run.refusal, tone=Tone.DANGER)
    exact = "The catalog takes the change as it stands now"
    return KeyFigure("Dry run", "passed", exact=exact, tone=Tone.GOOD)


def _entitlement_facts(
    change: ProposedChange, impact: EntitlementImpact, reading: QuerySession
) -> Iterable[KeyFigure]:
    before, after = (float(value.get("gpus", 0)) for value in (change.before, change.after))
    was, will = impact.share(before), impact.share(after)
    others = _pair(*(None if share is None else 1 - share for share in (was, will)))
    share = KeyFigure(
        "Share of entitlements",
        _pair(was, will),
        exact=f"This team's part of all entitlements in {change.target.subject}",
        note=f"other teams {others}" if will is not None else "",
    )
    # A share of entitlements needs no capacity: it is told all the same.
    if impact.capacity is None:
        return no_data("Allocated", _NO_HOUR), share, no_data("Entitlements ÷ capacity", _NO_HOUR)
    zone, committed = reading.choice.zone, impact.committed(after)
    over = committed is not None and committed > 1
    return (
        KeyFigure(
            "Allocated",
            shown(impact.allocated, Format.NUMBER, zone),
            of="GPUs",
            note="average of 24 hours",
        ),
        share,
        KeyFigure(
            "Entitlements ÷ capacity",
            _pair(impact.committed(before), committed),
            exact=f"All entitlements in {change.target.subject} ÷ "
            f"{shown(impact.capacity, Format.NUMBER, zone)} GPUs",
            note="overcommitted" if over else "",
            tone=Tone.WARNING if over else Tone.NONE,
        ),
    )


def _namespace_facts(change: ProposedChange, impact: NamespacesImpact) -> Iterable[KeyFigure]:
    names = [move.namespace for move in impact.moves]
    named = ", ".join(names[:_MOST_NAMED])
    teams = {team for move in impact.moves for team in (move.before, move.after) if team}
    others = sorted(teams - {change.target.team})
    return (
        KeyFigure(
            "Namespaces that move",
            str(len(names)),
            exact="; ".join(moves_of(impact)) or "No namespace that is there changes its team",
            note=named if len(names) <= _MOST_NAMED else "",
        ),
        _moved_cost(impact),
        KeyFigure(
            "Other teams concerned",
            str(len(others)),
            exact=", ".join(others),
            note=", ".join(others) if len(others) <= _MOST_NAMED else "",
        ),
    )


def _moved_cost(impact: NamespacesImpact) -> KeyFigure:
    label = "Cost that moves"
    if not impact.moves:
        return KeyFigure(label, "0", exact="No namespace moves")
    # Namespaces may cost what the reader may not see: that is no cost of 0.
    if not impact.costs:
        return no_data(label, "No priced hour of them in the last 30 days that you may see")
    sums = (formats.money(cost, currency) for currency, cost in sorted(impact.costs.items()))
    return KeyFigure(label, " + ".join(sums), "last 30 days")


def _budget_facts(
    change: ProposedChange, impact: BudgetImpact, reading: QuerySession
) -> Iterable[KeyFigure]:
    if impact.used is None or impact.projected is None:
        reason = "No closed hour of this period has data that you may see"
        return tuple(no_data(label, reason) for label in ("Used so far", "Projected", "Burn rate"))
    was, will = (
        impact.burn_rate(float(value["amount"])) if value else None
        for value in (change.before, change.after)
    )
    over = will is not None and will > 1
    amounts = [_amount(amount, impact.unit) for amount in (impact.used, impact.projected)]
    rates = [shown(rate, Format.DECIMAL, reading.choice.zone) for rate in (was, will)]
    of = "this period" if impact.unit == "gpu_hours" else ""
    return (
        KeyFigure("Used so far", amounts[0], of=of),
        KeyFigure("Projected", amounts[1], exact="At the end of the period, at the pace so far"),
        KeyFigure(
            "Burn rate",
            f"{rates[0]} → {rates[1]}",
            exact="Against a linear pace: 1.0 uses exactly the budget by the end of the period",
            note="" if will is None else "over pace" if over else "within budget",
            tone=Tone.WARNING if over else Tone.NONE,
        ),
    )


def _amount(amount: float, unit: str) -> str:
    if unit == "gpu_hours":
        return f"{amount:,.0f} GPU-h"
    return formats.money(Decimal(amount), unit)


def _pair(before: float | None, after: float | None) -> str:
    """Write two fractions as `132 → 133 %`."""
    if after is None:
        return formats.NOTHING
    text = formats.percent(after)
    return text if before is None else f"{formats.percent(before).removesuffix(' %')} → {text}"


# ---------------------------------------------------------------- the list


def proposal_table(
    views: Sequence[ProposalView],
    reading: QuerySession,
    *,
    is_open: bool,
    next_href: str | None,
    every: Callable[[], Iterable[ProposalRow]],
) -> Table:
    """Return the list of proposals: open ones with their impact, others with the decision."""
    of_state = (
        (Column("impact", "Impact", wraps=True),)
        if is_open
        else (
            Column("state", "State"),
            Column("decided_by", "Decided by"),
            Column("decided_at", "Decided", Format.TIME),
        )
    )
    whose = "" if reading.visibility.everything else " of your teams"
    return Table(
        id="proposals",
        title="Proposals",
        columns=(
            Column("proposal", "Proposal", wraps=True),
            Column("from", "From", wraps=True),
            Column("to", "To", wraps=True),
            *of_state,
            Column("author", "Author"),
            Column("created_at", "Proposed", Format.TIME),
            Column("reason", "Reason", in_files=True),
        ),
        rows=[
            TableRow(_values(one.row, one.facts), {"proposal": one.href}, {"state": one.mark})
            for one in views
        ],
        zone=reading.choice.zone,
        empty=f"No {'open' if is_open else 'decided'} proposals{whose}.",
        next_href=next_href,
        every=lambda: (TableRow(_values(row)) for row in every()),
        ordered=True,
    )


def _values(row: ProposalRow, facts: FigureRow | None = None) -> dict[str, Value]:
    told = [f"{one.label} {one.value}" for one in facts.figures if one.value] if facts else []
    return {
        "proposal": _sentence(row),
        "from": words_of(row.before),
        "to": words_of(row.after),
        "impact": " · ".join(told),
        "state": row.state,
        "author": row.author,
        "created_at": row.created_at,
        "decided_by": row.decided_by,
        "decided_at": row.decided_at,
        "reason": row.reason,
    }
