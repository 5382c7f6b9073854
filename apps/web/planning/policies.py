"""The policy simulator: a form of limits and policies, and what they do to each team."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from math import isfinite
from typing import Any

from django.http import Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from msgspec import Struct

from apps.clusters import selectors as clusters
from apps.planning import selectors as planning
from apps.planning import services as planning_services
from apps.planning.domain.cluster_replay.inputs import Packing, Reclaim
from apps.planning.domain.policy_change import PolicyChange, PolicyRefused, ShareChange, Shares
from apps.planning.selectors import SimulationReport
from apps.planning.services import LimitInput
from apps.quota_requests import services as quota_requests
from apps.quotas.selectors import QuotaRow
from apps.web.components.formats import Format
from apps.web.components.page_query import href, with_query
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import Tab, TabBar, TabLink
from apps.web.pages import change, page, respond
from apps.web.planning.policy_view import result_of
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quota_requests.request_detail import REFUSALS, actor_in, status_of
from apps.web.quota_requests.request_input import may_ask, said
from apps.web.quotas.keys import ref_in, ref_text

CLUSTER_KEY, TIER_KEY = "on", "of"
_FIELDS = (
    *("order", "half_life", "lending", "idle"),
    *("sharing", "reclaim", "preemption", "nodes", "placement"),
)
# What a form sends for these; anything else leaves them as they are.
_RECLAIM = {one.value: one for one in Reclaim}
_PLACEMENT = {one.value: one for one in Packing}
_QUEUE_PREEMPTION = {"lower-priority": True, "never": False}
_MOST = 1e9
_MOST_KEYS = 400
_NOT_THERE = "There is no such simulation that you may see."
_TABS = (("plan", Tab("plan", "Plan")), ("policies", Tab("policies", "Policies")))
_COLUMNS = (
    Column("number", "Simulation", Format.COUNT),
    Column("changes", "Changes", wraps=True),
    Column("cluster", "Cluster"),
    Column("author", "Author"),
    Column("state", "State"),
    Column("created_at", "Created", Format.TIME),
)


def plan_tabs(chosen: str, reading: QuerySession) -> TabBar:
    """Return the tabs of capacity plan and policy simulator."""
    links = [
        TabLink(tab, href(name, reading.query) or "", is_chosen=name == chosen)
        for name, tab in _TABS
    ]
    return TabBar("Capacity plan", chosen, links)


# ---------------------------------------------------------------- the form


class PolicyForm(Struct, frozen=True):
    """What the form offers and holds: amounts as typed, empty where nothing is changed."""

    cluster: str
    tier: str
    clusters: Sequence[str]
    tiers: Sequence[str]
    limits: Sequence[tuple[str, QuotaRow, str]]
    shares: Sequence[tuple[str, float, float, str, str]]
    typed: QueryDict

    @property
    def fields(self) -> dict[str, str]:
        return {key: self.typed.get(key, "") for key in _FIELDS}

    @property
    def has_limits(self) -> bool:
        return any(typed for _, _, typed in self.limits)

    @property
    def has_shares(self) -> bool:
        return any(gpus or weight for *_, gpus, weight in self.shares)


@page
def policies(request: PageRequest) -> HttpResponseBase:
    return _form_page(request, request.GET)


@change
def simulate(request: PageRequest) -> HttpResponseBase:
    """Start a simulation, and go on to its page."""
    reading = query_session(request)
    typed = request.POST
    try:
        limits = list(_limits(typed))
        changed = _change(typed, typed.get(TIER_KEY, ""))
        pk = planning_services.start_simulation(
            request.user, typed.get(CLUSTER_KEY, ""), changed, limits, now=reading.now
        )
    # The form comes back as it was typed: a table of limits must not be typed twice.
    except PolicyRefused as refusal:
        return _form_page(request, typed, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(href("policy-simulation", pk=str(pk)) or "/")


def _form_page(
    request: PageRequest, typed: QueryDict, *, problem: str = "", status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    found = planning.simulation_reports(request.user)
    return respond(
        request,
        reading,
        "policies",
        status=status,
        tabs=plan_tabs("policies", reading),
        form=_form(typed, reading),
        problem=problem,
        days=planning_services.REPLAYED_DAYS,
        tables=[_list(found, reading)] if found else [],
    )


def _form(typed: QueryDict, reading: QuerySession) -> PolicyForm:
    known = [row.name for row in clusters.cluster_rows(visibility=reading.visibility)]
    tiers = [row.name for row in clusters.tier_rows(visibility=reading.visibility)]
    shares = planning.team_shares(reading.now, visibility=reading.visibility)
    cluster = _chosen(typed.get(CLUSTER_KEY, ""), known)
    tier = _chosen(typed.get(TIER_KEY, ""), tiers)
    rows = (
        planning.limits_to_change(cluster, reading.now, visibility=reading.visibility, tier=tier)
        if cluster and tier
        else []
    )
    # A request made by hand may lack a field: what has no partner is left out.
    written = dict(zip(typed.getlist("key"), typed.getlist("limit"), strict=False))
    return PolicyForm(
        cluster,
        tier,
        known,
        tiers,
        [
            (text, row, written.get(text, ""))
            for row in rows[:_MOST_KEYS]
            for text in [ref_text(row.ref)]
        ],
        list(_share_fields(shares, tier, typed)),
        typed,
    )


def _chosen(name: str, known: Sequence[str]) -> str:
    # Something is chosen at first, or the form would begin without a limit to change.
    return name if name in known else next(iter(known), "")


def _share_fields(
    shares: Shares, tier: str, typed: QueryDict
) -> Iterator[tuple[str, float, float, str, str]]:
    written = {
        team: (gpus, weight)
        for team, gpus, weight in zip(
            *(typed.getlist(name) for name in ("team", "gpus", "weight")), strict=False
        )
    }
    for (team, of), share in sorted(shares.items()):
        if of == tier:
            yield team, share.gpus, share.weight, *written.get(team, ("", ""))


def _limits(typed: QueryDict) -> Iterator[LimitInput]:
    for text, amount in zip(typed.getlist("key"), typed.getlist("limit"), strict=False):
        after = _number(amount, "limit")
        # An empty field leaves its limit as it is.
        if after is None:
            continue
        ref = ref_in(text)
        if ref is None:
            raise PolicyRefused("The form names a limit that is not known.")
        # Limits of Kubernetes count whole GPUs; a part would be refused by the cluster.
        if after != int(after):
            raise PolicyRefused(f"The limit “{amount[:40]}” is not a whole number.")
        yield LimitInput(ref, after)


def _change(typed: QueryDict, tier: str) -> PolicyChange:
    shares = []
    names = ("team", "gpus", "weight")
    for team, gpus, weight in zip(*(typed.getlist(name) for name in names), strict=False):
        amounts = (_number(gpus, "entitlement"), _number(weight, "weight"))
        if amounts != (None, None):
            shares.append(ShareChange(team[:200], tier[:200], *amounts))
    return PolicyChange(
        shares=tuple(shares),
        fair_order=typed.get("order") in {"fair", "fair-strict"},
        strict_order=typed.get("order") in {"strict", "fair-strict"},
        half_life_days=_number(typed.get("half_life", ""), "half-life"),
        no_borrowing=typed.get("lending") == "none",
        idle_minutes=_number(typed.get("idle", ""), "idle limit"),
        fair_sharing=typed.get("sharing") == "fair",
        reclaim=_RECLAIM.get(typed.get("reclaim", "")),
        queue_preemption=_QUEUE_PREEMPTION.get(typed.get("preemption", "")),
        node_preemption=typed.get("nodes") == "lower-priority",
        placement=_PLACEMENT.get(typed.get("placement", "")),
    )


def _number(text: str, what: str) -> float | None:
    if not text.strip():
        return None
    try:
        number = float(text.strip())
    except ValueError:
        # As with infinity, which `float` reads too: neither is a number to replay with.
        number = float("nan")
    if not isfinite(number) or abs(number) > _MOST:
        raise PolicyRefused(f"The {what} “{text[:40]}” is not a number such as 4.")
    return number


def _list(found: Sequence[SimulationReport], reading: QuerySession) -> Table:
    return Table(
        id="simulations",
        title="Simulations",
        columns=_COLUMNS,
        rows=[
            TableRow(
                {
                    "number": one.pk,
                    "changes": "; ".join(one.texts),
                    "cluster": one.cluster,
                    "author": one.author,
                    "state": one.state.value,
                    "created_at": one.created_at,
                },
                {"number": href("policy-simulation", reading.query, pk=str(one.pk))},
            )
            for one in found
        ],
        zone=reading.choice.zone,
        empty="",
        on_phone=("number", "changes", "state"),
    )


# ---------------------------------------------------------------- one simulation


@page
def simulation(request: PageRequest, pk: int) -> HttpResponseBase:
    return _simulation_page(request, pk)


def _simulation_page(
    request: PageRequest, pk: int, *, problem: str = "", status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    found = planning.simulation_report(pk, request.user)
    if found is None:
        raise Http404(_NOT_THERE)
    shown: dict[str, Any] = result_of(found, reading)
    again = [(CLUSTER_KEY, found.cluster)]
    return respond(
        request,
        reading,
        "policy_simulation",
        status=status,
        one=found,
        problem=problem,
        may_request=_may_request(request, found),
        asks_team=any(not limit.team for limit in found.change.limits),
        requests=[(number, href("request", pk=str(number))) for number in found.requests],
        again_href=with_query(href("policies") or "", [*again, *reading.query]),
        proposal_href=href("new-proposal", reading.query) if found.change.shares else "",
        **shown,
    )


def _may_request(request: PageRequest, found: SimulationReport) -> bool:
    return bool(
        found.change.limits
        and found.state == planning.SimulationState.DONE
        # A second press would write the same drafts again.
        and not found.requests
        and may_ask(request.user)
    )


@change
def request_changes(request: PageRequest, pk: int) -> HttpResponseBase:
    """Write a draft of a quota request for each limit of a simulation."""
    found = planning.simulation_report(pk, request.user)
    if found is None:
        raise Http404(_NOT_THERE)
    try:
        quota_requests.request_limits(
            found,
            reason=request.POST.get("reason", ""),
            team=request.POST.get("team", "").strip()[:200],
            by=actor_in(request),
            now=query_session(request).now,
        )
    except REFUSALS as refusal:
        return _simulation_page(request, pk, problem=said(refusal), status=status_of(refusal))
    return HttpResponseRedirect(href("policy-simulation", pk=str(pk)) or "/")
