"""Policy simulations: listing, starting, reading, and making quota requests of one."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.identity import TokenScope
from apps.api.endpoints import ListRequest, ShortList, caller_of, documented
from apps.api.parameters import PageParams
from apps.api.quota_requests import (
    OF_BODIES,
    SOURCES,
    Body,
    ChangesView,
    Described,
    Flag,
    RequestRefusal,
    Text,
    located,
    refusals,
)
from apps.api.row_serializers import RowSerializer, record, records, serializer_of
from apps.planning import selectors as planning
from apps.planning import services as planning_services
from apps.planning.domain.cluster_replay.inputs import Packing, Reclaim
from apps.planning.domain.policy_change import PolicyChange, PolicyRefused, ShareChange
from apps.planning.selectors import SimulatedTeamRow, SimulationReport
from apps.planning.services import LimitInput
from apps.quota_requests import services as quota_requests
from apps.quotas.domain.keys import QuotaRef

_MOST = 1e9


class LimitBody(Body):
    """A limit of a ResourceQuota or ClusterQueue, in units of its resource."""

    source = serializers.ChoiceField(SOURCES)  # type: ignore[assignment]
    namespace = Text(max_length=253, required=False, allow_blank=True, default="")
    name = Text(max_length=253)
    key = Text(max_length=530, help_text="Of a ClusterQueue flavor/resource.")
    to = serializers.IntegerField(min_value=0, max_value=int(_MOST))


class ShareBody(Body):
    """An entitlement or weight of a team in a tier."""

    team = Text(max_length=200)
    tier = Text(max_length=200)
    gpus = serializers.FloatField(required=False, min_value=0, max_value=_MOST)
    weight = serializers.FloatField(required=False, min_value=0, max_value=_MOST)


class SimulationBody(Body):
    """What is to be otherwise; what is left out stays as it is."""

    cluster = Text(max_length=253)
    limits = LimitBody(many=True, required=False)
    shares = ShareBody(many=True, required=False, help_text="They need fair_order.")
    fair_order = Flag(required=False, help_text="Order pending work by fair share.")
    half_life_days = serializers.FloatField(
        required=False, min_value=0, max_value=_MOST, help_text="It needs fair_order."
    )
    borrowing = Flag(required=False, help_text="False: no queue borrows.")
    idle_minutes = serializers.FloatField(
        required=False, min_value=0, max_value=_MOST, help_text="Idle work is ended after so long."
    )
    strict_order = Flag(
        required=False, help_text="Work that does not fit blocks later work of its tier."
    )
    placement = serializers.ChoiceField(
        [one.value for one in Packing], required=False, help_text="How nodes are chosen."
    )
    node_preemption = Flag(
        required=False, help_text="Pending work preempts lower priority where no node has room."
    )
    fair_sharing = Flag(
        required=False, help_text="The ClusterQueue with the least share borrows first."
    )
    queue_preemption = Flag(
        required=False, help_text="Work of a ClusterQueue preempts its own of lower priority."
    )
    reclaim = serializers.ChoiceField(
        [one.value for one in Reclaim],
        required=False,
        help_text="Which work gives back borrowed quota (Kueue: reclaimWithinCohort).",
    )


class PolicyRequestsBody(Body):
    reason = Text(max_length=2000)
    team = Text(
        max_length=200, required=False, help_text="Who asks where several teams share a limit."
    )


class PolicySimulationDetailSerializer(RowSerializer):
    """A simulation with its effects on teams, sums first."""

    row = SimulationReport
    teams = serializer_of(SimulatedTeamRow)(many=True)


_described = Described(
    PolicySimulationDetailSerializer,
    {
        **OF_BODIES,
        404: "There is no such simulation, or you may not see it.",
        422: "It cannot be simulated or requested; the detail says why.",
    },
    tag="policy",
)


def _detail(found: SimulationReport, *, status: int = HTTPStatus.OK) -> Response:
    return Response({**record(found), "teams": records(found.team_rows())}, status=int(status))


def _found(request: Request, pk: int) -> SimulationReport:
    found = planning.simulation_report(pk, caller_of(request))
    if found is None:
        raise RequestRefusal(HTTPStatus.NOT_FOUND, f"There is no simulation {pk}.")
    return found


_ROWS: ShortList[SimulationReport] = ShortList(
    "policy-simulations", lambda row: str(row.pk), records
)


class PolicySimulationsView(ChangesView):
    """Simulations, and starting another."""

    scopes = {"POST": TokenScope.REQUEST}

    @documented(
        "policy-simulations",
        PageParams,
        serializer_of(SimulationReport),
        summary="Policy simulations that you may see, the latest first.",
    )
    def get(self, request: Request) -> Response:
        found = planning.simulation_reports(caller_of(request))
        return ListRequest.read(request, PageParams).page(_ROWS, found)

    @_described(
        "create_policy_simulation",
        "Replay the last two weeks with other limits or policies. Nothing is changed.",
        SimulationBody,
        status=HTTPStatus.CREATED,
    )
    def post(self, request: Request) -> Response:
        body = SimulationBody.read(request.data)
        user = caller_of(request)
        try:
            pk = planning_services.start_simulation(
                user, body["cluster"], _change(body), _limits(body), now=timezone.now()
            )
        except PolicyRefused as error:
            raise RequestRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        made = _detail(_found(request, pk), status=HTTPStatus.CREATED)
        return located(made, "api:policy-simulation", pk, request)


def _limits(body: Mapping[str, Any]) -> list[LimitInput]:
    return [
        LimitInput(QuotaRef(one["source"], one["namespace"], one["name"], one["key"]), one["to"])
        for one in body.get("limits", ())
    ]


def _change(body: Mapping[str, Any]) -> PolicyChange:
    return PolicyChange(
        shares=tuple(ShareChange(**one) for one in body.get("shares", ())),
        fair_order=body.get("fair_order", False),
        half_life_days=body.get("half_life_days"),
        # Left out means unchanged, which is that queues borrow.
        no_borrowing=not body.get("borrowing", True),
        idle_minutes=body.get("idle_minutes"),
        strict_order=body.get("strict_order", False),
        placement=None if "placement" not in body else Packing(body["placement"]),
        node_preemption=body.get("node_preemption", False),
        fair_sharing=body.get("fair_sharing", False),
        # Left out means that each queue keeps its setting.
        queue_preemption=body.get("queue_preemption"),
        reclaim=None if "reclaim" not in body else Reclaim(body["reclaim"]),
    )


class PolicySimulationView(ChangesView):
    """One simulation with its effects."""

    @_described("read_policy_simulation", "A policy simulation with its effects on teams.")
    def get(self, request: Request, pk: int) -> Response:
        return _detail(_found(request, pk))


class PolicyRequestsView(ChangesView):
    """Quota requests of a simulation."""

    scopes = {"POST": TokenScope.REQUEST}

    @_described(
        "request_policy_simulation",
        "Draft a quota request for each limit that a simulation changes.",
        PolicyRequestsBody,
        status=HTTPStatus.CREATED,
    )
    def post(self, request: Request, pk: int) -> Response:
        found = _found(request, pk)
        body = PolicyRequestsBody.read(request.data)
        with refusals():
            quota_requests.request_limits(
                found,
                reason=body["reason"],
                team=body.get("team", ""),
                by=self.actor(request),
                now=timezone.now(),
            )
        return _detail(_found(request, pk), status=HTTPStatus.CREATED)
