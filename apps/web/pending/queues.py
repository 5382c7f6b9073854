"""What was pending in Kueue in hours that nobody watched, as its series show it."""

from collections.abc import Sequence

from apps.clusters.domain.tiers import NO_TEAM
from apps.pending.selectors import QueueRow
from apps.web.components.formats import Format
from apps.web.components.links import href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

NOT_EXPORTED = "not exported"
_COLUMNS = (
    Column("queue", "ClusterQueue"),
    Column("cluster", "Cluster"),
    Column("team", "Team", hint="the one team whose LocalQueues lead to it"),
    Column("workloads", "Pending workloads", Format.DECIMAL, "mean", "of all kinds and resources"),
    Column(
        "demand",
        "Blocked at admission",
        Format.GPU_HOURS,
        "GPU-h",
        "GPUs that Kueue shows as pending and that no pending pod asks for, × hours",
    ),
    Column("tier", "Tier"),
    Column("known", "GPU demand", hint="whether Kueue exports its pending resources"),
    Column("hours", "Not watched", Format.DECIMAL, "h", "hours that the series tell of"),
)


def queues_table(queues: Sequence[QueueRow], reading: QuerySession) -> Table:
    """Return a line per ClusterQueue; one whose resources are not exported has no demand."""
    return Table(
        id="queues",
        title="Pending in Kueue",
        columns=_COLUMNS,
        rows=[_line(one, reading) for one in queues],
        zone=reading.choice.zone,
        empty="Kueue's series show nothing of this window.",
        note=" ".join(filter(None, (_numbers(queues), _NOTE))),
    )


_NOTE = (
    "From Kueue's series, for the hours without a watch. Where no team is known the demand is in "
    "no team's fairness."
)


def _numbers(queues: Sequence[QueueRow]) -> str:
    """Return how many Workloads are pending of which no GPUs are known; empty without any."""
    own = [one.workloads for one in queues if one.demand is None and one.workloads is not None]
    count = round(sum(own))
    if not own:
        return ""
    noun = "workload" if count == 1 else "workloads"
    return f"On average {count} {noun} pending in Kueue, GPUs not known: not added to demand."


def _line(one: QueueRow, reading: QuerySession) -> TableRow:
    values = {
        "queue": one.queue,
        "cluster": one.cluster,
        "team": one.team,
        "workloads": one.workloads,
        "demand": None if one.demand is None else sum(one.demand.values()),
        "tier": ", ".join(sorted(one.demand or ())),
        "known": NOT_EXPORTED if one.demand is None else "known",
        "hours": one.hours,
    }
    known = one.team != NO_TEAM
    return TableRow(values, {"team": href("team", reading.query, name=one.team)} if known else {})
