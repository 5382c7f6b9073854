"""The query of a page of costs (groups, basis, policy), and names and links of cost groups."""

from collections.abc import Mapping, Sequence

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.costs.domain.costing import STATEMENTS, Basis, Cause, Policy
from apps.costs.domain.monthly_report import BASIS_STATEMENTS
from apps.costs.selectors import (
    PLATFORM_NAME,
    CostQuery,
    CostRow,
    charging,
    last_closed_month,
    month_window,
)
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.web.components import page_query
from apps.web.components.formats import Value
from apps.web.components.page_query import (
    Query,
    WindowChoice,
    days_query,
    figure_href,
    href,
    preset_choice,
    workload_href,
)
from apps.web.components.tables import WHOLE_CLASSES, LedgerClass
from apps.web.components.window_picker import WINDOW_KEYS
from apps.web.query_session import PageRequest, QuerySession, query_session

TAKES = ("tier", "team", "namespace", "gpu_model", "capacity_type")
GROUPS: Mapping[str, str] = {
    "tier": "tier",
    "team": "team",
    "gpu_model": "GPU model",
    "capacity_type": "capacity type",
    "namespace": "namespace",
    "workload": "workload",
    "cluster": "cluster",
}
NOTHING = "none"
BASES = {Basis.ALLOCATED: "allocated", Basis.USED: "used"}
POLICIES = {
    Policy.PLATFORM: "kept with the platform",
    Policy.ENTITLEMENT: "apportioned by entitlement",
    Policy.USE: "apportioned by use",
}
_WITHIN = {
    Grouping.NAMESPACE: (Grouping.CLUSTER,),
    Grouping.WORKLOAD: (Grouping.CLUSTER, Grouping.NAMESPACE),
}
_MOST_GROUPS = 3


class CostOption(Struct, frozen=True):
    value: str
    label: str
    chosen: bool


class CostPageQuery(Struct, frozen=True):
    """`by` is what the reader chose, `groups` the same with what its names stand in.

    `query` reproduces what is asked here, for links; `problem` says what makes no sense. `waste`:
    what was allocated and unused, by its holder, even if others are charged for it.
    """

    by: tuple[Grouping, ...]
    groups: tuple[Grouping, ...]
    basis: Basis
    policy: Policy
    query: Query
    problem: str
    waste: bool = False

    @property
    def row_groups(self) -> tuple[Grouping, ...]:
        """The groups of the page's rows: who pays is always told, figures need it."""
        return tuple(dict.fromkeys((*self.groups, Grouping.TEAM)))

    def key_of(self, row: CostRow) -> tuple[str, ...]:
        """Return the names of the groups that the reader chose."""
        return tuple(row.groups[group] for group in self.groups)

    @property
    def basis_statement(self) -> str:
        return BASIS_STATEMENTS[self.basis]

    @property
    def policy_statement(self) -> str:
        return STATEMENTS[self.policy]

    @property
    def group_options(self) -> list[CostOption]:
        first = self.by[0].value if self.by else NOTHING
        names = {**GROUPS, NOTHING: "nothing"}
        return [CostOption(value, label, value == first) for value, label in names.items()]

    @property
    def then_options(self) -> list[CostOption]:
        second = self.by[1].value if len(self.by) > 1 else ""
        names = {"": "no more", **GROUPS}
        return [CostOption(value, label, value == second) for value, label in names.items()]

    @property
    def basis_options(self) -> list[CostOption]:
        return [CostOption(b.value, label, b is self.basis) for b, label in BASES.items()]

    @property
    def policy_options(self) -> list[CostOption]:
        return [CostOption(p.value, label, p is self.policy) for p, label in POLICIES.items()]

    def question(self, reading: QuerySession, interval: TimeStep) -> CostQuery:
        """Return the question of the page's rows, by periods of some length."""
        return CostQuery(
            reading.window,
            interval,
            self.groups,
            reading.filters,
            self.basis,
            self.policy,
            waste=self.waste,
        )


def cost_session(request: PageRequest) -> QuerySession:
    """Return how to read for a page of costs: without a window, the last closed month.

    One query more than `query_session` where the address names no window.
    """
    reading = query_session(request, takes=TAKES)
    if any(request.GET.get(key) for key in WINDOW_KEYS):
        return reading
    month = last_closed_month(visibility=reading.visibility)
    if month is None:
        return reading
    # As the preset where it is that month: its link goes on with time.
    choice = preset_choice("last-month", reading.choice.zone, reading.now)
    if choice.first != month:
        window = month_window(month, reading.choice.zone)
        days = days_query(window, reading.choice.zone)
        choice = WindowChoice(window, reading.choice.zone, days)
    others = reading.query[len(reading.choice.query) :]
    return replace(reading, choice=choice, query=(*choice.query, *others))


def query_of(
    params: QueryDict, *, usual: Sequence[Grouping] = (Grouping.TEAM,), waste: bool = False
) -> CostPageQuery:
    """Return what an address asks; what is not understood changes nothing and is told."""
    names, unknown = page_query.names_from(params, "by", (*GROUPS, NOTHING), "group")
    chosen = tuple(Grouping(name) for name in names if name != NOTHING)[:_MOST_GROUPS]
    by = chosen if names else tuple(usual)
    bases, no_basis = page_query.names_from(params, "basis", [basis.value for basis in Basis])
    policies, no_policy = page_query.names_from(
        params, "policy", [policy.value for policy in Policy]
    )
    basis, policy = charging()
    return CostPageQuery(
        by=by,
        groups=with_places(by),
        # Waste is the holder's on any basis: it is never charged twice.
        basis=Basis.ALLOCATED if waste else Basis(bases[0]) if bases else basis,
        policy=Policy.PLATFORM if waste else Policy(policies[0]) if policies else policy,
        query=(
            *(("by", name) for name in names),
            *(("basis", name) for name in bases[:1]),
            *(("policy", name) for name in policies[:1]),
        ),
        problem=" ".join(text for text in (unknown, no_basis, no_policy) if text),
        waste=waste,
    )


def with_places(by: Sequence[Grouping]) -> tuple[Grouping, ...]:
    """Return groups with the places that their names are unique in, each before its own."""
    every = (group for own in by for group in (*_WITHIN.get(own, ()), own))
    return tuple(dict.fromkeys(every))


PLATFORM = "(platform)"
"""The payer of what no team pays for; no team can be called so."""
PLATFORM_PAYS = "platform"
"""What an address of an explanation says of the platform as payer."""
NOBODY = "(nobody)"
"""The holder of unallocated capacity."""

# It is no class of the ledger, so it has the colour of what stands beside the groups.
ENERGY = LedgerClass(
    "group_other", "Energy", "what was measured, at the tariff of its price: on top of GPU-hours"
)
CAUSES: Mapping[Cause, LedgerClass] = {
    **{Cause(cls.key): cls for cls in WHOLE_CLASSES},
    Cause.ENERGY: ENERGY,
}


def shown_groups(groups: Mapping[str, str], *, nobody: str = PLATFORM) -> dict[str, Value]:
    """Return the names of groups; a team of no name is the platform, or no team.

    A row without a workload or namespace is unallocated: that is said once.
    """
    last = next((key for key in ("workload", "namespace") if key in groups), "")
    otherwise = {"team": nobody, last: NOBODY}
    return {key: name or otherwise.get(key, "") for key, name in groups.items()}


def cost_href(figure: str, groups: Mapping[str, str], query: Query, **names: str) -> str:
    """Return the address that explains a cost of a group: who pays it, where, and for what.

    Empty for a row without a name to be found by: unallocated capacity has no namespace.
    """
    of = dict(groups)
    # An empty filter would mean all of them, and explain another figure.
    if any(not name for key, name in of.items() if key != "team"):
        return ""
    if of.get("team") == PLATFORM_NAME:
        names["payer"] = PLATFORM_PAYS
    return figure_href(figure, query, **{**of, **names})


def links_of(groups: Mapping[str, str], reading: QuerySession) -> dict[str, str | None]:
    """Return where the names of groups lead: tiers, teams, and workloads with their pods."""
    links: dict[str, str | None] = {}
    for key in ("tier", "team"):
        if groups.get(key):
            links[key] = href(key, reading.query, name=groups[key])
    if groups.get("workload"):
        links["workload"] = workload_pods_href(
            groups["cluster"], groups["namespace"], groups["workload"], reading
        )
    return links


def workload_pods_href(
    cluster: str, namespace: str, workload: str, reading: QuerySession
) -> str | None:
    """Return the address of a workload's pods over the same window."""
    return workload_href(cluster, namespace, workload, [*reading.query, ("tab", "pods")])
