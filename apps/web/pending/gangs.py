"""Partially admitted jobs: some pods hold GPUs and idle, because the others cannot start."""

from collections.abc import Sequence

from apps.pending.selectors import PartialGang
from apps.web.components.formats import Format
from apps.web.components.links import figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

_COLUMNS = (
    Column("workload", "Job"),
    Column("cluster", "Cluster"),
    Column("namespace", "Namespace"),
    Column("team", "Team"),
    Column("tier", "Tier"),
    Column("holding", "Hold", Format.COUNT, "pods"),
    Column("holding_gpu_equivalents", "Allocated", Format.NUMBER, "GPUs"),
    Column("waiting", "Wait", Format.COUNT, "pods"),
    Column("waiting_gpu_equivalents", "Missing", Format.NUMBER, "GPUs"),
    Column("cause", "Cause"),
    Column("since", "Since", Format.TIME),
    Column(
        "held_gpu_hours", "GPU-hours lost", Format.GPU_HOURS, "GPU-h", "held since the others pend"
    ),
    Column(
        "utilization_ratio",
        "Utilization",
        Format.RATIO,
        "%",
        "of the pods that hold, since the others pend",
    ),
)


def gangs_table(gangs: Sequence[PartialGang], reading: QuerySession) -> Table:
    """Return a line per job, the most GPU-hours lost first."""
    return Table(
        id="gangs",
        title="Partially admitted jobs",
        columns=_COLUMNS,
        rows=[_line(one, reading) for one in gangs],
        zone=reading.choice.zone,
        empty="No job holds GPUs while pods that it needs are pending.",
        note=(
            "Their pods must run together: some hold GPUs and idle, the others are pending. Admit "
            "such jobs as a whole, with Kueue or a PodGroup."
        ),
    )


def _line(one: PartialGang, reading: QuerySession) -> TableRow:
    values = {c.key: getattr(one, c.key) for c in _COLUMNS if hasattr(one, c.key)}
    kind, _, name = one.workload.partition("/")
    link = href(
        "workload",
        reading.query,
        cluster=one.cluster,
        namespace=one.namespace,
        kind=kind,
        name=name,
    )
    return TableRow(
        {**values, "held_gpu_hours": one.held, "utilization_ratio": one.utilization},
        {
            "workload": link,
            "team": href("team", reading.query, name=one.team),
            "tier": href("tier", reading.query, name=one.tier),
        },
        explains=figure_hrefs(
            _EXPLAINS,
            reading.query,
            cluster=one.cluster,
            namespace=one.namespace,
            workload=one.workload,
        ),
    )


_EXPLAINS = {
    "held_gpu_hours": "partial_gpu_hours",
    "holding_gpu_equivalents": "partial_gpus",
    "utilization_ratio": "partial_utilization",
}
