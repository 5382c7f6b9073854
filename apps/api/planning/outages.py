"""Planned outages: the endpoint."""

from apps.api import parameters
from apps.api.endpoints import ListRequest, listed
from apps.usage import selectors as usage
from apps.usage.selectors import OutageRow


@listed("planned-outages", OutageRow, parameters.ClusterParams, key=lambda row: row.number)
def planned_outages(of: ListRequest) -> list[OutageRow]:
    """Announced outages of nodes, and those of the last 92 days.

    Nodes that are or were away as announced.
    """
    clusters = of.filters().cluster
    return usage.outage_rows(now=of.now, visibility=of.visibility, clusters=clusters)
