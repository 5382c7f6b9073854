"""Reads of proposals to change the catalog, and of what was done with them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from django.db.models import QuerySet
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.models import AuditEntry
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.operations.domain.proposals import (
    ProposalKind,
    ProposalState,
    ProposalTarget,
    ProposedChange,
)
from apps.operations.models import CatalogProposal
from apps.usage.domain.usage_query import RowPage, decode_cursor, encode_cursor

PROPOSAL_SUBJECT = "catalog-proposal/"
"""What the audit calls a proposal, before its number."""
PROPOSAL_PHRASES: Mapping[str, str] = {
    "submit_proposal": "submitted",
    "approve_proposal": "approved",
    "reject_proposal": "rejected",
    "cancel_proposal": "canceled",
}
"""The audit's actions of proposals, as they are told of."""
_CURSOR = "catalog-proposals"
_STATES = ", ".join(ProposalState)


class ProposalRow(Struct, frozen=True):
    """A proposal to change what the catalog says of a team; values as the catalog writes them."""

    id: Annotated[int, Column("Proposal")]
    team: Annotated[str, Column("Team")]
    kind: Annotated[str, Column("Change", help=f"One of {', '.join(ProposalKind)}.")]
    subject: Annotated[
        str,
        Column(
            help="The tier of an entitlement, or a budget's period and unit; empty for namespaces."
        ),
    ]
    before: Annotated[Mapping[str, Any], Column(help="As the catalog had it when proposed.")]
    after: Annotated[Mapping[str, Any], Column(help="As proposed; empty takes it out.")]
    reason: Annotated[str, Column("Reason")]
    state: Annotated[str, Column("State", help=f"One of {_STATES}.")]
    author: Annotated[str, Column("Author")]
    created_at: Annotated[datetime, Column("Proposed")]
    decided_by: Annotated[str, Column("Decided by", help="Empty until decided.")]
    decided_at: Annotated[datetime | None, Column("Decided", help="Empty until decided.")]
    decision: Annotated[str, Column(help="The reason of the decision.")]
    in_file: Annotated[
        bool, Column(help="A catalog file that was loaded since knows of the approval.")
    ]

    @property
    def target(self) -> ProposalTarget:
        """Return what is to change."""
        return ProposalTarget(ProposalKind(self.kind), self.team, self.subject)

    @property
    def change(self) -> ProposedChange:
        """Return what is to change, from what to what."""
        return ProposedChange(self.target, self.before, self.after)

    @property
    def is_open(self) -> bool:
        """Whether it needs a decision."""
        return self.state == ProposalState.SUBMITTED.value


def proposal_rows(
    *,
    visibility: Visibility,
    states: Sequence[str] = (),
    cursor: str | None = None,
    page_size: int = 25,
) -> RowPage[ProposalRow]:
    """Return the proposals of teams that the reader sees, the latest first; of `states` or all.

    One query. Raises CursorRefused.
    """
    rows = _proposals(visibility).order_by("-pk")
    if states:
        rows = rows.filter(state__in=states)
    if cursor is not None:
        (last,) = decode_cursor(_CURSOR, cursor, (int,))
        # By number: what is proposed meanwhile moves nothing to the next page.
        rows = rows.filter(pk__lt=last)
    found = list(rows[: page_size + 1])
    page = found[:page_size]
    more = encode_cursor(_CURSOR, (page[-1].pk,)) if len(found) > page_size else None
    return RowPage(rows=tuple(_proposal(row) for row in page), next_cursor=more)


def open_proposals(
    *, visibility: Visibility, decider: str = "", at_most: int = 20
) -> list[ProposalRow]:
    """Return the proposals that need a decision, the oldest first. One query.

    With `decider` without those that this user wrote: another administrator decides on them.
    """
    rows = undecided_proposals(visibility=visibility, decider=decider).order_by("created_at", "pk")
    return [_proposal(row) for row in rows[:at_most]]


def undecided_proposals(*, visibility: Visibility, decider: str = "") -> QuerySet[CatalogProposal]:
    """Return the proposals of `open_proposals` as a query, to be counted within another one."""
    rows = _proposals(visibility).filter(state=ProposalState.SUBMITTED.value)
    return rows.exclude(author=decider) if decider else rows


def proposal_row(pk: int, *, visibility: Visibility) -> ProposalRow | None:
    """Return one proposal; None where there is none that the reader may see. One query."""
    row = _proposals(visibility).filter(pk=pk).first()
    return None if row is None else _proposal(row)


def open_proposal_count(*, visibility: Visibility) -> int:
    """Return how many proposals need a decision, as `open_proposals` lists them. One query."""
    return undecided_proposals(visibility=visibility).count()


class ProposalStep(Struct, frozen=True):
    """What was done with a proposal, as the audit has it."""

    at: Annotated[datetime, Column("At")]
    actor: Annotated[str, Column("By")]
    action: Annotated[
        str, Column("Action", help="What was done: submitted, approved, rejected or canceled.")
    ]
    note: Annotated[str, Column("Note")]

    @property
    def word(self) -> str:
        """What was done, in a word."""
        return PROPOSAL_PHRASES[self.action]


def proposal_steps(pk: int, *, visibility: Visibility) -> list[ProposalStep]:
    """Return the lines of the audit of a proposal that the reader sees, in order. Two queries."""
    if proposal_row(pk, visibility=visibility) is None:
        return []
    # The audit keeps what the row does not: every step, by whom and with what note.
    rows = AuditEntry.objects.filter(subject=f"{PROPOSAL_SUBJECT}{pk}").order_by("number")
    return [
        ProposalStep(datetime.fromisoformat(row.at), row.actor, row.action, row.note)
        for row in rows
    ]


def _proposals(visibility: Visibility) -> QuerySet[CatalogProposal]:
    rows = CatalogProposal.objects.select_related("team")
    return rows if visibility.everything else rows.filter(team_id__in=visibility.team_ids)


def _proposal(row: CatalogProposal) -> ProposalRow:
    return row_from(ProposalRow, row, team=row.team.name)
