"""Pages on which entitlements, a team's namespaces and budgets are proposed and decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.utils import timezone

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import ActingParty
from apps.accounts.permissions import NotAllowed, can_administer, teams_led_by, visibility_of
from apps.accounts.selectors import team_names
from apps.clusters.selectors import report, tier_rows
from apps.operations import selectors
from apps.operations.domain.proposals import (
    ProposalKind,
    ProposalRefused,
    ProposalState,
    ProposalTarget,
    ProposedValue,
)
from apps.operations.domain.schema import Period
from apps.operations.selectors import ProposalRow
from apps.operations.services import (
    ProposalPreview,
    approve_proposal,
    cancel_proposal,
    preview_proposal,
    proposal_value,
    reject_proposal,
    submit_proposal,
)
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import href
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

KINDS = {
    ProposalKind.ENTITLEMENT: "Entitlement",
    ProposalKind.NAMESPACES: "Namespaces",
    ProposalKind.BUDGET: "Budget",
}
_MOST_TEXT = 5000
_NOT_THERE = "There is no such proposal that you may see."


@dataclass(frozen=True, slots=True)
class ProposalLine:
    """One proposal of the list, with its values in words."""

    row: ProposalRow
    href: str
    before: str
    after: str


@page
def proposals(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request)
    rows = selectors.proposal_rows(visibility=reading.visibility)
    return respond(
        request,
        reading,
        "proposals",
        lines=[proposal_line(row, reading) for row in rows],
        may_propose=bool(_teams(request)),
    )


@page
def new(request: PageRequest) -> HttpResponseBase:
    return _form(request, request.GET)


@change
def create(request: PageRequest) -> HttpResponseBase:
    """Preview a proposal, or submit it."""
    target = target_from(request.POST)
    if target is None or target.team not in _teams(request):
        return _form(request, request.POST, status=HTTPStatus.BAD_REQUEST)
    value = value_from(target, request.POST)
    now = timezone.now()
    try:
        if request.POST.get("then") != "submit":
            seen = preview_proposal(target, value, now=now)
            return _form(request, request.POST, preview=seen)
        row = submit_proposal(
            request.user,
            target,
            value,
            reason=request.POST.get("reason", "")[:_MOST_TEXT],
            now=now,
            by=_by(request),
        )
    except ProposalRefused as refusal:
        return _form(request, request.POST, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(href("proposal", pk=str(row.pk)) or "/")


@page
def proposal(request: PageRequest, pk: int) -> HttpResponseBase:
    return _shown(request, pk)


@change
def decide(request: PageRequest, pk: int, action: str) -> HttpResponseBase:
    """Approve, reject or cancel a proposal."""
    if selectors.proposal_row(pk, visibility=visibility_of(request.user)) is None:
        raise Http404(_NOT_THERE)
    now, by = timezone.now(), _by(request)
    decision = request.POST.get("decision", "")[:_MOST_TEXT]
    try:
        if action == "approve":
            approve_proposal(request.user, pk, decision=decision, now=now, by=by)
        elif action == "reject":
            reject_proposal(request.user, pk, decision=decision, now=now, by=by)
        elif action == "cancel":
            cancel_proposal(request.user, pk, now=now, by=by)
        else:
            raise Http404("A proposal is approved, rejected or canceled.")
    except ProposalRefused as refusal:
        return _shown(request, pk, problem=str(refusal), status=HTTPStatus.CONFLICT)
    except NotAllowed as refusal:
        return _shown(request, pk, problem=str(refusal), status=HTTPStatus.FORBIDDEN)
    return HttpResponseRedirect(href("proposal", pk=str(pk)) or "/")


def target_from(given: QueryDict) -> ProposalTarget | None:
    """Return what an address or a form is about; None where that is not said yet."""
    kind, team = given.get("kind", ""), given.get("team", "")
    if kind not in KINDS or not team:
        return None
    subject = given.get(f"subject_{kind}", "") or given.get("subject", "")
    if kind != ProposalKind.NAMESPACES and not subject:
        return None
    return ProposalTarget(
        ProposalKind(kind), team, "" if kind == ProposalKind.NAMESPACES else subject
    )


def value_from(target: ProposalTarget, given: Mapping[str, Any]) -> ProposedValue:
    """Return the value as typed; what is left empty takes it out of the catalog."""

    def typed(name: str) -> str:
        return str(given.get(name, "")).strip()[:_MOST_TEXT]

    match target.kind:
        case ProposalKind.ENTITLEMENT:
            return {key: typed(key) for key in ("gpus", "weight") if typed(key)}
        case ProposalKind.NAMESPACES:
            patterns = typed("patterns").replace(",", " ").split()
            return {"patterns": patterns} if patterns else {}
        case ProposalKind.BUDGET:
            if not typed("amount"):
                return {}
            currency = {"currency": typed("currency")} if typed("currency") else {}
            return {"amount": typed("amount"), **currency}


def words_of(value: ProposedValue) -> str:
    """Return a value in words; a dash where the catalog says nothing."""
    if "patterns" in value:
        return ", ".join(value["patterns"])
    if "gpus" in value:
        weight = f", weight {value['weight']}" if "weight" in value else ""
        return f"{value['gpus']} GPUs{weight}"
    if "weight" in value:
        return f"weight {value['weight']}"
    if "amount" in value:
        return f"{value['amount']} {value.get('currency') or 'GPU-hours'}"
    return "–"


def _by(request: PageRequest) -> ActingParty:
    return ActingParty(request.user.username, client_address(request) or "")


def proposal_line(row: ProposalRow, reading: QuerySession) -> ProposalLine:
    return ProposalLine(
        row,
        href("proposal", reading.query, pk=str(row.id)) or "",
        words_of(row.before),
        words_of(row.after),
    )


def _teams(request: PageRequest) -> list[str]:
    """Return the teams that the reader may propose for."""
    names = team_names()
    if can_administer(request.user):
        return sorted(names.values())
    led = teams_led_by(request.user)
    return sorted(name for pk, name in names.items() if pk in led)


def _form(
    request: PageRequest,
    given: QueryDict,
    *,
    preview: ProposalPreview | None = None,
    problem: str = "",
    status: int = HTTPStatus.OK,
) -> HttpResponseBase:
    reading, teams = query_session(request), _teams(request)
    target = target_from(given)
    if target is not None and target.team not in teams:
        target, problem = None, problem or "You may not propose for this team."
    before: ProposedValue = {}
    if target is not None:
        try:
            before = proposal_value(target, now=reading.now)
        except ProposalRefused as refusal:
            target, problem = None, str(refusal)
    typed: Mapping[str, Any] = given if request.method == "POST" else before
    return respond(
        request,
        reading,
        "proposal_new",
        status=status,
        teams=teams,
        kinds=KINDS.items(),
        tiers=[row.name for row in tier_rows(visibility=reading.visibility) if not row.builtin],
        budgets=_budget_subjects(),
        given=given,
        target=target,
        before=words_of(before),
        typed=_typed(typed, target),
        currency=report().currency,
        preview=preview,
        row=_impact(target, preview.before, preview.after, reading)
        if preview is not None and target is not None
        else None,
        problem=problem,
    )


def _typed(values: Mapping[str, Any], target: ProposalTarget | None) -> dict[str, str]:
    names = ("gpus", "weight", "patterns", "amount", "currency", "reason")
    found = {name: values.get(name, "") for name in names}
    if isinstance(found["patterns"], list):
        found["patterns"] = "\n".join(found["patterns"])
    return found


def _budget_subjects() -> Sequence[tuple[str, str]]:
    units = {"gpu_hours": "GPU-hours", "money": "money"}
    return [
        (f"{period} {unit}", f"per {period} in {words}")
        for period in Period
        for unit, words in units.items()
    ]


def _shown(
    request: PageRequest, pk: int, *, problem: str = "", status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    row = selectors.proposal_row(pk, visibility=reading.visibility)
    if row is None:
        raise Http404(_NOT_THERE)
    is_open = row.state == ProposalState.SUBMITTED.value
    own = row.author == request.user.username
    return respond(
        request,
        reading,
        "proposal",
        status=status,
        line=proposal_line(row, reading),
        row=_impact(row.target, row.before, row.after, reading),
        may_decide=is_open and can_administer(request.user) and not own,
        may_cancel=is_open and own,
        needs_another=is_open and own and can_administer(request.user),
        problem=problem,
    )


def _impact(
    target: ProposalTarget, before: ProposedValue, after: ProposedValue, reading: QuerySession
) -> FigureRow:
    """Return what a decision rests on, as figures."""
    change = KeyFigure(KINDS[target.kind], words_of(after), note="", of=f"was {words_of(before)}")
    match target.kind:
        case ProposalKind.ENTITLEMENT:
            return figure_row(change, *_entitlement_figures(target, before, after, reading))
        case ProposalKind.BUDGET:
            return figure_row(change, *_budget_figures(target, after, reading))
        case ProposalKind.NAMESPACES:
            old, new = (set(value.get("patterns", ())) for value in (before, after))
            return figure_row(
                KeyFigure("Added", ", ".join(sorted(new - old)) or "none"),
                KeyFigure("Removed", ", ".join(sorted(old - new)) or "none"),
            )


def _entitlement_figures(
    target: ProposalTarget, before: ProposedValue, after: ProposedValue, reading: QuerySession
) -> list[KeyFigure]:
    found = selectors.entitlement_impact(target, now=reading.now)
    zone = reading.choice.zone
    if found.capacity is None:
        reason = "No closed hour of this tier in the last 24 hours"
        return [no_data("Allocated", reason), no_data("Entitlements ÷ capacity", reason)]
    was, will = (found.committed(float(value.get("gpus", 0))) for value in (before, after))
    return [
        KeyFigure(
            "Allocated",
            shown(found.allocated, Format.NUMBER, zone),
            of="GPUs",
            note="average of 24 hours",
        ),
        KeyFigure("Tier capacity", shown(found.capacity, Format.NUMBER, zone), of="GPUs"),
        KeyFigure(
            "Entitlements ÷ capacity",
            shown(will, Format.RATIO, zone),
            of=f"was {shown(was, Format.RATIO, zone)}",
            note="overcommitted" if will is not None and will > 1 else "",
            tone=Tone.WARNING if will is not None and will > 1 else Tone.NONE,
        ),
    ]


def _budget_figures(
    target: ProposalTarget, after: ProposedValue, reading: QuerySession
) -> list[KeyFigure]:
    row = selectors.budget_impact(target, now=reading.now, visibility=reading.visibility)
    if row is None:
        return [no_data("Used so far", "No such budget runs now")]
    zone = reading.choice.zone
    amount = float(after["amount"]) if after else None
    share = None if not amount else float(row.used) / amount
    return [
        KeyFigure("Used so far", shown(float(row.used), Format.NUMBER, zone), of=row.unit),
        KeyFigure(
            "Share of it",
            shown(share, Format.RATIO, zone),
            of="of what is proposed",
            tone=Tone.WARNING if share is not None and share > 1 else Tone.NONE,
        ),
    ]
