"""Proposing and deciding changes of what the catalog says of a team."""

from collections.abc import Sequence
from datetime import datetime

from django.db import IntegrityError, transaction
from msgspec import Struct

from apps.accounts import services as accounts
from apps.accounts.domain.identity import ActingParty
from apps.accounts.models import Team, User
from apps.accounts.permissions import NotAllowed, check_administer, check_request
from apps.operations.domain.proposals import (
    ProposalKind,
    ProposalRefused,
    ProposalState,
    ProposalTarget,
    ProposedChange,
    ProposedValue,
    value_in,
    with_value,
)
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import CatalogError
from apps.operations.domain.timeline import CatalogDifference
from apps.operations.models import CatalogProposal
from apps.operations.selectors import PROPOSAL_SUBJECT
from apps.operations.services.catalog.exporting import catalog_of, catalog_text
from apps.operations.services.catalog.loading import (
    CatalogNotStored,
    Loaded,
    load_changed,
    loaded,
    plan_changed,
)

MOST_REASON = 2000


class ProposalPreview(Struct, frozen=True):
    """What a proposal changes, as the catalog writes it, and its rows."""

    change: ProposedChange
    difference: CatalogDifference


def preview_proposal(
    target: ProposalTarget, value: ProposedValue, *, now: datetime
) -> ProposalPreview:
    """Return what a proposal would change now; nothing is written.

    Raises ProposalRefused with all that the catalog's rules hold against it, and where it changes
    nothing.
    """
    return _previewed(target, value, loaded(), now)


def _previewed(
    target: ProposalTarget, value: ProposedValue, held: Loaded, now: datetime
) -> ProposalPreview:
    catalog = catalog_of(held, now=now)
    changed = with_value(catalog, target, value)
    try:
        # By way of the text, which is what an approval loads, with all checks of a file.
        difference = plan_changed(catalog_text(changed, now=now), held, now=now)
    except CatalogError as error:
        raise ProposalRefused(_reasons(error)) from error
    if difference.is_empty:
        raise ProposalRefused("That is what the catalog says already.")
    return ProposalPreview(
        ProposedChange(target, value_in(catalog, target), value_in(changed, target)), difference
    )


class ProposalDryRun(Struct, frozen=True):
    """Whether approving a proposal now would be stored: `changes` of the catalog, or `refusal`."""

    changes: tuple[str, ...] = ()
    refusal: str = ""


def dry_runs(proposed: Sequence[ProposedChange], *, now: datetime) -> list[ProposalDryRun]:
    """Return what approving each change now would do; nothing is written.

    Ten queries, however many there are; none for none.
    """
    # One reading for all: what is loaded takes ten queries.
    held = loaded() if proposed else None
    return [] if held is None else [_dry_run(one, held, now) for one in proposed]


def _dry_run(proposed: ProposedChange, held: Loaded, now: datetime) -> ProposalDryRun:
    try:
        _check_unchanged(proposed, catalog_of(held, now=now))
        found = _previewed(proposed.target, proposed.after, held, now)
    except ProposalRefused as refusal:
        return ProposalDryRun(refusal=str(refusal))
    return ProposalDryRun(tuple(found.difference.texts()))


def _check_unchanged(proposed: ProposedChange, catalog: Catalog) -> None:
    """Raise ProposalRefused where the catalog says something else than the author saw.

    Approved now, the proposal would undo what came between.
    """
    if value_in(catalog, proposed.target) != proposed.before:
        raise ProposalRefused(
            f"The {proposed.target} was changed after this was proposed. Reject it; its author "
            "proposes anew from what holds now."
        )


def proposal_value(target: ProposalTarget, *, now: datetime) -> ProposedValue:
    """Return what the catalog says of the target now. Raises ProposalRefused for no such team."""
    return value_in(catalog_of(loaded(), now=now), target)


@transaction.atomic
def submit_proposal(
    user: User,
    target: ProposalTarget,
    value: ProposedValue,
    *,
    reason: str,
    now: datetime,
    by: ActingParty,
) -> CatalogProposal:
    """Keep a proposal for an administrator to decide.

    Raises NotAllowed for who neither leads the team nor administers, and ProposalRefused.
    """
    team = Team.objects.filter(name=target.team, active=True, builtin=False).first()
    if team is None:
        raise ProposalRefused(f"There is no team “{target.team[:120]}” in the catalog.")
    check_request(user, team.pk)
    reason = reason.strip()[:MOST_REASON]
    if not reason:
        raise ProposalRefused("Give a reason for the approver.")
    seen = preview_proposal(target, value, now=now)
    try:
        # A savepoint: after a failed insert PostgreSQL takes nothing else in a transaction.
        with transaction.atomic():
            row = CatalogProposal.objects.create(
                team=team,
                kind=target.kind.value,
                subject=target.subject,
                before=seen.change.before,
                after=seen.change.after,
                reason=reason,
                author=user.username,
                created_at=now,
            )
    except IntegrityError as error:
        raise ProposalRefused(
            f"A proposal for the {target} is pending. Decide or cancel it first."
        ) from error
    _tell(row, "submit_proposal", by, now=now, note=reason)
    return row


def approve_proposal(
    user: User, pk: int, *, decision: str, now: datetime, by: ActingParty
) -> CatalogProposal:
    """Approve a proposal and store it in the catalog, in one transaction.

    Raises NotAllowed for who does not administer and for its author, ProposalRefused where it was
    decided already, or the catalog says something else by now than the author saw.
    """
    with transaction.atomic():
        row = _open(user, pk)
        target = target_of(row)
        catalog = catalog_of(loaded(), now=now)
        _check_unchanged(ProposedChange(target, row.before, row.after), catalog)
        changed = with_value(catalog, target, row.after)
        try:
            # A savepoint of this transaction: catalog and decision are stored together or not at
            # all.
            load_changed(catalog_text(changed, now=now), now=now)
        except CatalogError as error:
            raise ProposalRefused(_reasons(error)) from error
        except CatalogNotStored as error:
            raise ProposalRefused(f"Nothing was changed: {error}.") from error
        _decide(row, ProposalState.APPROVED, user, decision, now, by)
    return row


@transaction.atomic
def reject_proposal(
    user: User, pk: int, *, decision: str, now: datetime, by: ActingParty
) -> CatalogProposal:
    """Reject a proposal with a reason. Raises NotAllowed and ProposalRefused."""
    row = _open(user, pk)
    if not decision.strip():
        raise ProposalRefused("Give a reason: the author reads it.")
    _decide(row, ProposalState.REJECTED, user, decision, now, by)
    return row


@transaction.atomic
def cancel_proposal(user: User, pk: int, *, now: datetime, by: ActingParty) -> CatalogProposal:
    """Take a proposal back: its author alone. Raises NotAllowed and ProposalRefused."""
    row = _locked(pk)
    if row.author != user.username:
        raise NotAllowed("Only its author cancels a proposal; administrators reject it.")
    _decide(row, ProposalState.CANCELED, user, "", now, by)
    return row


def target_of(row: CatalogProposal) -> ProposalTarget:
    """Return what a proposal is about."""
    return ProposalTarget(ProposalKind(row.kind), row.team.name, row.subject)


def _reasons(error: CatalogError) -> str:
    return " ".join(f"{problem.text[:1].upper()}{problem.text[1:]}." for problem in error.problems)


def _open(user: User, pk: int) -> CatalogProposal:
    check_administer(user)
    row = _locked(pk)
    if row.author == user.username:
        raise NotAllowed("Another administrator has to decide on what you proposed.")
    return row


def _locked(pk: int) -> CatalogProposal:
    """Return an open proposal, locked: two who decide at once must not both succeed."""
    # The team is only read: a lock on its row would delay those who write to it.
    rows = CatalogProposal.objects.select_for_update(of=("self",)).select_related("team")
    row = rows.filter(pk=pk).first()
    if row is None:
        raise ProposalRefused("There is no such proposal.")
    if row.state != ProposalState.SUBMITTED.value:
        raise ProposalRefused(f"This proposal is {row.state} already.")
    return row


def _decide(
    row: CatalogProposal,
    state: ProposalState,
    user: User,
    decision: str,
    now: datetime,
    by: ActingParty,
) -> None:
    row.state, row.decision = state.value, decision.strip()[:MOST_REASON]
    row.decided_by, row.decided_at = user.username, now
    row.save(update_fields=["state", "decision", "decided_by", "decided_at"])
    _tell(row, f"{_VERBS[state]}_proposal", by, now=now, note=row.decision)


_VERBS = {
    ProposalState.APPROVED: "approve",
    ProposalState.REJECTED: "reject",
    ProposalState.CANCELED: "cancel",
}


def _tell(row: CatalogProposal, action: str, by: ActingParty, *, now: datetime, note: str) -> None:
    accounts.record(
        by,
        action,
        f"{PROPOSAL_SUBJECT}{row.pk}",
        at=now,
        before={"value": row.before},
        after={"value": row.after, "target": str(target_of(row)), "state": row.state},
        note=note,
    )
