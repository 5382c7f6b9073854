"""Jobs that hold GPUs for nothing, because the rest of their pods cannot start."""

from collections.abc import Sequence

from apps.pending.selectors.rows import PartialGang
from apps.web.formats import Format
from apps.web.links import href
from apps.web.reading import Reading
from apps.web.tables import Column, Row, Table

_COLUMNS = (
    Column("workload", "Job"),
    Column("cluster", "Cluster"),
    Column("namespace", "Namespace"),
    Column("team", "Team"),
    Column("tier", "Tier"),
    Column("holding", "Hold", Format.COUNT, "pods"),
    Column("holding_gpu_equivalents", "Held", Format.NUMBER, "GPUs"),
    Column("waiting", "Wait", Format.COUNT, "pods"),
    Column("waiting_gpu_equivalents", "Missing", Format.NUMBER, "GPUs"),
    Column("cause", "Cause"),
    Column("since", "Since", Format.TIME),
    Column("held_gpu_hours", "For nothing", Format.GPU_HOURS, "GPU-h", "held since then"),
    Column("utilization_ratio", "Utilization", Format.RATIO, "%", "of the holders since then"),
)


def gangs_table(gangs: Sequence[PartialGang], reading: Reading) -> Table:
    """Return a line per job, the most held for nothing first."""
    return Table(
        id="gangs",
        title="Jobs that hold GPUs for nothing",
        columns=_COLUMNS,
        rows=[_line(one, reading) for one in gangs],
        zone=reading.choice.zone,
        empty="No job holds GPUs while the rest of its pods wait.",
        note=(
            "Some of their pods have GPUs and idle, because the others cannot start. Queue such "
            "jobs as a whole, with Kueue or a PodGroup."
        ),
    )


def _line(one: PartialGang, reading: Reading) -> Row:
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
    return Row(
        {**values, "held_gpu_hours": one.held, "utilization_ratio": one.utilization},
        {
            "workload": link,
            "team": href("team", reading.query, name=one.team),
            "tier": href("tier", reading.query, name=one.tier),
        },
    )
