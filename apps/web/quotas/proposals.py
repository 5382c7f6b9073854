"""Pages on which entitlements, a team's namespaces and budgets are proposed and decided."""

from collections.abc import Mapping, Sequence
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
    ProposalDryRun,
    ProposalPreview,
    approve_proposal,
    cancel_proposal,
    preview_proposal,
    proposal_value,
    reject_proposal,
    submit_proposal,
)
from apps.usage.domain.usage_query import RowPage, every_row
from apps.web.components.figure_row import FigureRow
from apps.web.components.page_query import PER_PAGE, href, next_href, path_of
from apps.web.components.tabs import TAB_KEY, Tab, tab_bar
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quotas.proposal_view import (
    KINDS,
    facts_of,
    proposal_table,
    proposal_views,
    words_of,
)

_MOST_TEXT, _PER_FILE_READ = 5000, 500
_NOT_THERE = "There is no such proposal that you may see."


TABS = (Tab("open", "Open"), Tab("decided", "Decided"))
_STATES = {
    "open": [ProposalState.SUBMITTED.value],
    "decided": [state.value for state in ProposalState if state is not ProposalState.SUBMITTED],
}


@page
def proposals(request: PageRequest) -> HttpResponseBase:
    reading, tabs = query_session(request), tab_bar(request, TABS, name="Proposals")

    def page_at(cursor: str | None, size: int) -> RowPage[ProposalRow]:
        return selectors.proposal_rows(
            visibility=reading.visibility,
            states=_STATES[tabs.chosen],
            cursor=cursor,
            page_size=size,
        )

    found = page_at(request.GET.get("cursor") or None, PER_PAGE)
    count = selectors.open_proposal_count(visibility=reading.visibility)
    query = (*reading.query, *([] if tabs.chosen == "open" else [(TAB_KEY, tabs.chosen)]))
    table = proposal_table(
        proposal_views(found.rows, reading, request.user),
        reading,
        is_open=tabs.chosen == "open",
        next_href=next_href(path_of(request), query, found.next_cursor),
        every=lambda: every_row(lambda at: page_at(at, _PER_FILE_READ)),
    )
    return respond(
        request,
        reading,
        "proposals",
        tabs=tabs.counted({"open": count}),
        tables=[table],
        may_propose=bool(_teams(request)),
    )


@page
def new(request: PageRequest) -> HttpResponseBase:
    return _form(request, request.GET)


@change
def create(request: PageRequest) -> HttpResponseBase:
    """Preview a proposal, or submit it."""
    target = target_from(request.POST)
    # The form offers only these teams; a request of another kind is answered with it.
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
    if request.POST.get("back") == "approvals" and can_administer(request.user):
        return HttpResponseRedirect(f"{href('approvals', [('proposal', str(pk))])}#decided")
    return HttpResponseRedirect(href("proposal", pk=str(pk)) or "/")


def target_from(given: QueryDict) -> ProposalTarget | None:
    """Return what an address or a form is about; None where that is not said yet."""
    kind, team = given.get("kind", ""), given.get("team", "")
    if kind not in KINDS or not team:
        return None
    subject = given.get(f"subject_{kind}", "") or given.get("subject", "")
    # Namespaces are all of the team: they alone need no subject.
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


def _by(request: PageRequest) -> ActingParty:
    return ActingParty(request.user.username, client_address(request) or "")


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
    # What was typed stays; at first the form shows what the catalog says now.
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
        row=None if preview is None else _impact(preview, reading),
        problem=problem,
    )


def _impact(preview: ProposalPreview, reading: QuerySession) -> FigureRow:
    (impact,) = selectors.proposal_impacts(
        [preview.change], now=reading.now, visibility=reading.visibility
    )
    # A preview is there only where the dry run passed.
    passed = ProposalDryRun(tuple(preview.difference.texts()))
    return facts_of(preview.change, impact, passed, reading)


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
    (one,) = proposal_views([row], reading, request.user)
    return respond(
        request,
        reading,
        "proposal",
        status=status,
        one=one,
        steps=selectors.proposal_steps(pk, visibility=reading.visibility),
        typed=request.POST.get("decision", ""),
        problem=problem,
        **_neighbors(row, reading),
    )


def _neighbors(row: ProposalRow, reading: QuerySession) -> dict[str, Any]:
    """Return where the open proposals before and after this one are, for its page and keys."""
    if not row.is_open:
        return {}
    ids = [one.id for one in selectors.open_proposals(visibility=reading.visibility, at_most=200)]
    # Decided by somebody else meanwhile, or beyond the first two hundred.
    at = ids.index(row.id) if row.id in ids else 0
    beside = {"previous_href": ids[max(at - 1, 0) : at], "next_href": ids[at + 1 : at + 2]}
    return {
        name: href("proposal", pk=str(pk)) or "" for name, found in beside.items() for pk in found
    }


def decided_proposal(given: QueryDict, reading: QuerySession) -> ProposalRow | None:
    """Return the decided proposal that an address names, for the message of the Approvals page."""
    number = given.get("proposal", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    row = selectors.proposal_row(int(number), visibility=reading.visibility)
    return row if row is not None and not row.is_open else None
