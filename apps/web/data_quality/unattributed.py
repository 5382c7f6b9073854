"""Activity that no pod explains, as the pages of devices and of data health show it."""

from apps.usage.selectors import GroupingRefused, stray_devices, unattributed_by_node
from apps.web.components.tables import Table
from apps.web.devices import unattributed_table
from apps.web.query_session import QuerySession

MOST_NODES = 20


def unattributed_nodes(reading: QuerySession) -> Table | None:
    """Return the nodes with such activity in the reading's window; None where there is none.

    None, too, for who does not see everything, and where the window is longer than hourly facts
    are read for. Two queries.
    """
    try:
        rows = unattributed_by_node(
            reading.window,
            filters=reading.filters,
            visibility=reading.visibility,
            limit=MOST_NODES,
        )
    except GroupingRefused:
        return None
    if not rows:
        return None
    stray = stray_devices(
        ((row.cluster, row.node) for row in rows),
        visibility=reading.visibility,
    )
    return unattributed_table(rows, stray, reading)
