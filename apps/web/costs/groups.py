"""Groups of costs as pages write them: who pays, where they lead, and the causes in words."""

from collections.abc import Mapping

from apps.costs.domain.costing import Cause
from apps.costs.selectors import PLATFORM_NAME
from apps.web.components.formats import Value
from apps.web.components.ledger import CAPACITY_CLASSES, LedgerClass
from apps.web.components.links import Query, figure_href, href
from apps.web.query_session import QuerySession

PLATFORM = "(platform)"
"""The payer of what no team pays for; no team can be called so."""
PLATFORM_PAYS = "platform"
"""What an address of an explanation says of the platform as payer."""
NOBODY = "(nobody)"
"""The holder of what nobody held."""

# It is no class of the ledger, so it has the colour of what stands beside the groups.
ENERGY = LedgerClass(
    "group_other", "Energy", "what was measured, at the tariff of its price: on top of GPU-hours"
)
CAUSES: Mapping[Cause, LedgerClass] = {
    **{Cause(cls.key): cls for cls in CAPACITY_CLASSES},
    Cause.ENERGY: ENERGY,
}


def shown_groups(groups: Mapping[str, str], *, nobody: str = PLATFORM) -> dict[str, Value]:
    """Return the names of groups; a team of no name is the platform, or nobody.

    What has no workload or namespace nobody held: that is said once.
    """
    last = next((key for key in ("workload", "namespace") if key in groups), "")
    otherwise = {"team": nobody, last: NOBODY}
    return {key: name or otherwise.get(key, "") for key, name in groups.items()}


def cost_href(figure: str, groups: Mapping[str, str], query: Query, **names: str) -> str:
    """Return the address that explains a cost of a group: who pays it, where, and for what.

    Empty for what has no name to be found by: capacity that nobody held has no namespace.
    """
    of = dict(groups)
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
        links["workload"] = workload_href(
            groups["cluster"], groups["namespace"], groups["workload"], reading
        )
    return links


def workload_href(cluster: str, namespace: str, workload: str, reading: QuerySession) -> str | None:
    """Return the address of a workload's pods over the same window."""
    kind, _, name = workload.partition("/")
    found = href(
        "workload", reading.query, cluster=cluster, namespace=namespace, kind=kind, name=name
    )
    return f"{found}#pods" if found else None
