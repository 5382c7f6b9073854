"""Layout advice: the endpoint."""

from apps.api import parameters
from apps.api.endpoints import ListRequest, listed
from apps.planning import selectors as planning
from apps.planning.selectors import LayoutRow


@listed("layouts", LayoutRow, parameters.TierParams, key=lambda row: row.name)
def layouts(of: ListRequest) -> list[LayoutRow]:
    """Unmet and unallocated GPU-hours of tiers, with today's layout and the advised.

    Recorded demand with today's layout, and with the advised one.
    """
    of.filters()
    rows = [
        row
        for one in planning.layout_reports(visibility=of.visibility)
        for row in one.rows()
        if row.cluster in of.query.get("cluster", (row.cluster,))
        and row.tier in of.query.get("tier", (row.tier,))
    ]
    return sorted(rows, key=lambda row: row.name)
