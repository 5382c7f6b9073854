"""Reliability: nodes and GPUs on which work fails too often, and interruptions by size."""

from collections.abc import Sequence

from django.http import HttpResponseBase

from apps.clusters.domain.resources import counted
from apps.goodput.selectors import (
    ClusterReport,
    GpuReliabilityRow,
    InterruptionRow,
    ReliabilityRow,
    gpu_reliability_rows,
    interruption_rows,
    reliability_reports,
    reliability_rows,
)
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import href
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

_NO_GPU = "No GPU had a failure or showed an error."
_REASONS = Column("reasons", "Reasons", wraps=True)


@page
def reliability(request: PageRequest) -> HttpResponseBase:
    """Show the nodes of all clusters as they were judged last."""
    reading = query_session(request)
    reports = reliability_reports(visibility=reading.visibility)
    rows, gpus = reliability_rows(reports), gpu_reliability_rows(reports)
    empty = _empty(reports)
    is_judged = any(one.end for one in reports)
    nodes = _nodes(rows, reading, empty)
    sizes = _sizes(interruption_rows(reports), reading, empty)
    return respond(
        request,
        reading,
        "reliability",
        tables=[nodes, _gpus(gpus, reading, _NO_GPU if is_judged else empty), sizes],
        # Before the first judgement every figure would be 0, as if all were well.
        figures=_figures(rows, gpus) if is_judged else None,
        verdicts=[text for text in (*(r.advice for r in rows), *(g.advice for g in gpus)) if text],
        notes=[_note(one, reading) for one in reports if is_judged],
    )


def _figures(rows: Sequence[ReliabilityRow], gpus: Sequence[GpuReliabilityRow]) -> FigureRow:
    bad_gpus = sum(row.is_unreliable for row in gpus)
    unreliable = [row for row in rows if row.is_unreliable]
    lost = sum(row.lost_gpu_hours for row in rows)
    return figure_row(
        KeyFigure(
            "Unreliable nodes",
            str(len(unreliable)),
            of=f"of {len(rows)}",
            tone=Tone.WARNING if unreliable else Tone.NONE,
        ),
        KeyFigure("Unreliable GPUs", str(bad_gpus), tone=Tone.WARNING if bad_gpus else Tone.NONE),
        KeyFigure("Failures", f"{sum(row.incidents for row in rows):,}", basis="at most 30 days"),
        KeyFigure("Lost to failures", f"{lost:,.0f}", of="GPU-h", basis="at most 30 days"),
    )


def _note(one: ClusterReport, reading: QuerySession) -> str:
    if not one.end:
        return f"{one.cluster}: not checked yet."
    start, end = (shown(at, Format.TIME, reading.choice.zone) for at in (one.start, one.end))
    text = f"Days of {one.cluster}: {start} to {end}."
    if not one.missing_hours:
        return text
    # The report stands, for it rests on most of its days.
    missing = counted(one.missing_hours, "hour was", "hours were")
    return f"{text} {missing} collected since and not checked yet."


def _nodes(rows: Sequence[ReliabilityRow], reading: QuerySession, empty: str) -> Table:
    return Table(
        id="nodes",
        title="Nodes",
        columns=list(declared_columns(ReliabilityRow, _REASONS)),
        rows=[_row(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=("node", "judgement", "incidents", "expected"),
    )


def _gpus(rows: Sequence[GpuReliabilityRow], reading: QuerySession, empty: str) -> Table:
    return Table(
        id="gpus",
        title="GPUs",
        columns=list(declared_columns(GpuReliabilityRow, _REASONS)),
        rows=[
            _row(row, reading, gpu=href("gpu", reading.query, cluster=row.cluster, uuid=row.uuid))
            for row in rows
        ],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=("node", "gpu", "judgement", "action", "incidents"),
    )


def _row(
    row: ReliabilityRow | GpuReliabilityRow, reading: QuerySession, **links: str | None
) -> TableRow:
    """Return a row of which the node leads to its GPUs."""
    node = (("cluster", row.cluster), ("node", row.node))
    return TableRow(
        {**declared_values(row), "reasons": _reasons(row.reasons)},
        {"node": href("gpus", (*reading.query, *node)), **links},
    )


def _reasons(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())


def _sizes(rows: Sequence[InterruptionRow], reading: QuerySession, empty: str) -> Table:
    return Table(
        id="sizes",
        title="Interruptions by size",
        columns=list(declared_columns(InterruptionRow)),
        rows=[TableRow(declared_values(row)) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=("least_gpus", "interruptions", "mean_hours"),
    )


def _empty(reports: Sequence[ClusterReport]) -> str:
    if any(one.end for one in reports):
        return "No pod ran on a GPU in these days."
    return "Not checked yet. Nodes are checked within an hour after their days are collected."
