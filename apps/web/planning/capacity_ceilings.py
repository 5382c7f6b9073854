"""What autoscalers may add: node groups, requested capacity, and what is not known of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import floor

from msgspec.structs import asdict

from apps.planning.domain.capacity_cases import CapacityCase, NodeGroupLimit, room_of_groups
from apps.planning.selectors import CeilingGap, Ceilings, ProvisioningRow
from apps.web.components.formats import Format, gpus_words
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.query_session import QuerySession

_GROUP_COLUMNS = (
    Column("name", "Node group"),
    Column("cluster", "Cluster"),
    Column("tier", "Tier"),
    Column("least_nodes", "Minimum", Format.NUMBER, "nodes"),
    Column("most_nodes", "Maximum", Format.NUMBER, "nodes"),
    Column("ready_nodes", "Ready", Format.NUMBER, "nodes"),
    Column("gpus_per_node", "GPUs per node", Format.NUMBER, "", "of a node that it has now"),
    Column("room_gpus", "Room", Format.NUMBER, "GPUs", "what it may still add"),
)


def group_table(groups: Iterable[NodeGroupLimit], reading: QuerySession) -> Table:
    """Return node groups of cluster-autoscaler; what their nodes do not tell is *no data*."""
    return Table(
        id="groups",
        title="Node groups",
        columns=_GROUP_COLUMNS,
        rows=[
            TableRow({**asdict(one), "room_gpus": one.room_gpus}, short=_unknown(one))
            for one in groups
        ],
        zone=reading.choice.zone,
        # Shown where there are groups alone.
        empty="",
    )


def _unknown(one: NodeGroupLimit) -> dict[str, str]:
    values = {**asdict(one), "room_gpus": one.room_gpus}
    return {key: "no data" for key, value in values.items() if value is None or value == ""}


def request_table(found: Ceilings, reading: QuerySession) -> Table:
    """Return the ProvisioningRequests of namespaces that the reader sees into."""
    return Table(
        id="provisioning",
        title="Provisioning requests",
        columns=declared_columns(ProvisioningRow),
        rows=[
            TableRow(
                declared_values(row), short={} if row.gpus is not None else {"gpus": "no data"}
            )
            for row in found.requests
        ],
        zone=reading.choice.zone,
        empty="All are of namespaces of other teams." if found.hidden else "",
    )


def groups_text(groups: Sequence[NodeGroupLimit], cases: Iterable[CapacityCase]) -> str:
    """Return what node groups of a tier may add, and what `cases` that buy would run into.

    Empty without groups.
    """
    if not groups:
        return ""
    room = room_of_groups(groups)
    if room is None:
        return "No data of the maximum of a node group."
    text = (
        f"Node groups of cluster-autoscaler may add {gpus_words(floor(room))} up to their maxima."
    )
    wanted = sum(case.gpus for case in cases)
    if wanted > room:
        names = ", ".join(dict.fromkeys(group.name for group in groups))
        text += f" For {gpus_words(wanted)} more, raise the maximum of {names} first."
    return text


def gap_texts(gaps: Iterable[CeilingGap]) -> list[str]:
    """Return of which clusters autoscalers are not known, a sentence for each reason."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in gaps:
        names[one.source, one.gap.value].append(one.cluster)
    return [f"{source}: {gap} in {', '.join(own)}." for (source, gap), own in names.items()]
