"""The endpoints of proposals to change the catalog: reading, proposing and deciding."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.identity import ActingParty, TokenScope
from apps.api.endpoints import (
    caller_of,
    documented,
    page_response,
    paging,
    visibility_in,
)
from apps.api.parameters import NamesField, PageParams, choices
from apps.api.problems import InvalidParameters
from apps.api.quota_requests import (
    OF_BODIES,
    Body,
    ChangesView,
    Described,
    EmptyBody,
    RequestRefusal,
    Text,
    located,
    origin_of,
)
from apps.api.row_serializers import RowSerializer, record, records, serializer_of
from apps.operations import selectors, services
from apps.operations.domain.proposals import (
    ProposalKind,
    ProposalRefused,
    ProposalState,
    ProposalTarget,
    ProposedValue,
)
from apps.operations.selectors import ProposalRow, ProposalStep

_LONGEST = 2000
_FIELDS: Mapping[ProposalKind, tuple[str, ...]] = {
    ProposalKind.ENTITLEMENT: ("gpus", "weight"),
    ProposalKind.NAMESPACES: ("patterns",),
    ProposalKind.BUDGET: ("amount", "currency"),
}


class ProposalsParams(PageParams):
    """Parameters of the list."""

    state = NamesField(child=choices([state.value for state in ProposalState]))


class ProposalBody(Body):
    """A new proposal. Fields of the change that are left out are taken out of the catalog."""

    kind = serializers.ChoiceField([kind.value for kind in ProposalKind])
    team = Text(max_length=200)
    subject = Text(
        max_length=120,
        required=False,
        allow_blank=True,
        help_text="The tier of an entitlement, or a budget's period and unit: month gpu_hours.",
    )
    gpus = Text(max_length=40, required=False, help_text="Of an entitlement.")
    weight = Text(max_length=40, required=False, help_text="Of an entitlement.")
    patterns = serializers.ListField(
        child=Text(max_length=253),
        max_length=500,
        required=False,
        help_text="Of namespaces: names and patterns.",
    )
    amount = Text(max_length=40, required=False, help_text="Of a budget.")
    currency = Text(max_length=3, required=False, help_text="Of a budget in money.")
    reason = Text(max_length=_LONGEST)


class DecisionBody(Body):
    decision = Text(max_length=_LONGEST, required=False, allow_blank=True)


class RejectionBody(Body):
    decision = Text(max_length=_LONGEST, help_text="The author reads it.")


class ProposalSerializer(RowSerializer):
    """A proposal to change what the catalog says of a team."""

    row = ProposalRow


class ProposalDetailSerializer(ProposalSerializer):
    """A proposal with its dry run of now and its steps."""

    dry_run_passed = serializers.BooleanField(
        allow_null=True, help_text="Whether approving it now would be stored; null once decided."
    )
    dry_run_detail = serializers.CharField(help_text="Why it would not.")
    catalog_changes = serializers.ListField(
        child=serializers.CharField(), help_text="What approving it now would change."
    )
    history = serializer_of(ProposalStep)(many=True)


_described = Described(
    ProposalDetailSerializer,
    {
        **OF_BODIES,
        404: "There is no such proposal, or you may not see it.",
        422: "It cannot be proposed or decided; the detail says why.",
    },
)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ProposalRefused as error:
        raise RequestRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


class ProposalsOf(ChangesView):
    """What the endpoints of proposals share."""

    def by(self, request: Request) -> ActingParty:
        """Return who acts, and from where."""
        return ActingParty(caller_of(request).username, origin_of(request))

    def proposal(self, request: Request, pk: int) -> ProposalRow:
        """Return a proposal that the caller sees. Raises RequestRefusal."""
        row = selectors.proposal_row(pk, visibility=visibility_in(request))
        if row is None:
            raise RequestRefusal(HTTPStatus.NOT_FOUND, f"There is no proposal {pk}.")
        return row

    def detail(self, request: Request, pk: int, *, status: int = HTTPStatus.OK) -> Response:
        """Answer with a proposal as it is."""
        row = self.proposal(request, pk)
        # What is decided was stored, or never will be: a dry run of it would confuse.
        (run,) = services.dry_runs([row.change], now=timezone.now()) if row.is_open else (None,)
        steps = selectors.proposal_steps(pk, visibility=visibility_in(request))
        found = {
            **record(row),
            "dry_run_passed": None if run is None else not run.refusal,
            "dry_run_detail": "" if run is None else run.refusal,
            "catalog_changes": [] if run is None else list(run.changes),
            "history": records(steps),
        }
        return Response(found, status=int(status))


class ProposalsView(ProposalsOf):
    """All proposals, and proposing another."""

    scopes = {"POST": TokenScope.REQUEST}

    @documented(
        "proposals",
        ProposalsParams,
        ProposalSerializer,
        summary="Proposals to change entitlements, namespaces and budgets, the latest first.",
    )
    def get(self, request: Request) -> Response:
        query = ProposalsParams.read(request.query_params)
        page = selectors.proposal_rows(
            visibility=visibility_in(request), states=query.get("state", ()), **paging(query)
        )
        return page_response(request, records(page.rows), page.next_cursor)

    @_described(
        "create_proposal",
        "Propose a change of the catalog. Administrators decide on it.",
        ProposalBody,
        status=HTTPStatus.CREATED,
    )
    def post(self, request: Request) -> Response:
        body = ProposalBody.read(request.data)
        target = ProposalTarget(ProposalKind(body["kind"]), body["team"], body.get("subject", ""))
        with _refusals():
            row = services.submit_proposal(
                caller_of(request),
                target,
                _value(target.kind, body),
                reason=body["reason"],
                now=timezone.now(),
                by=self.by(request),
            )
        made = self.detail(request, row.pk, status=HTTPStatus.CREATED)
        return located(made, "api:proposal", row.pk, request)


def _value(kind: ProposalKind, body: Mapping[str, Any]) -> ProposedValue:
    """Return the value of a body. Raises InvalidParameters for fields of another change."""
    own = _FIELDS[kind]
    of_others = [name for names in _FIELDS.values() for name in names if name not in own]
    # A field of another change would be dropped without a word.
    wrong = [name for name in of_others if name in body]
    if wrong:
        raise InvalidParameters({name: [f"is not of {kind.value}"] for name in wrong})
    return {name: body[name] for name in own if name in body}


class ProposalView(ProposalsOf):
    """One proposal with everything."""

    @_described("read_proposal", "A proposal with its dry run of now and its steps.")
    def get(self, request: Request, pk: int) -> Response:
        return self.detail(request, pk)


_SERVICES: Mapping[str, Callable[..., Any]] = {
    "approve": services.approve_proposal,
    "reject": services.reject_proposal,
    "cancel": services.cancel_proposal,
}


def _view(action: str, body: type[Body], scope: TokenScope, summary: str) -> type[ProposalsOf]:
    """Return the view of an action, which the OpenAPI document tells apart from the others."""
    does = _SERVICES[action]

    def post(self: ProposalsOf, request: Request, pk: int) -> Response:
        given = body.read(request.data)
        # Before the action: who may not see a proposal must not learn that it is there.
        self.proposal(request, pk)
        said = {} if body is EmptyBody else {"decision": given.get("decision", "")}
        with _refusals():
            does(request.user, pk, now=timezone.now(), by=self.by(request), **said)
        return self.detail(request, pk)

    described = _described(f"{action}_proposal", summary, body)
    members = {"scopes": {"POST": scope}, "post": described(post), "__doc__": summary}
    return type(f"{action.capitalize()}ProposalView", (ProposalsOf,), members)


ACTIONS: Mapping[str, type[ProposalsOf]] = {
    "approve": _view(
        "approve", DecisionBody, TokenScope.DECIDE, "Approve a proposal; the catalog changes."
    ),
    "reject": _view("reject", RejectionBody, TokenScope.DECIDE, "Reject a proposal with a reason."),
    "cancel": _view("cancel", EmptyBody, TokenScope.REQUEST, "Cancel your own proposal."),
}
