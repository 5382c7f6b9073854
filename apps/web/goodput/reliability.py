"""Reliability: nodes and GPUs on which work fails too often, and interruptions by size."""

from collections.abc import Sequence

from django.http import HttpResponseBase

from apps.goodput.domain.reliability import excess_text, gpu_advice
from apps.goodput.selectors import (
    GpuReliabilityRow,
    InterruptionRow,
    ReliabilityRow,
    ReliabilityState,
    gpu_reliability_rows,
    interruption_rows,
    reliability_rows,
    reliability_states,
)
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import Format, shown
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
    rows = reliability_rows(visibility=reading.visibility)
    states = reliability_states(visibility=reading.visibility)
    empty = _empty(states, reading)
    is_judged = any(one.end for one in states)
    gpus = gpu_reliability_rows(visibility=reading.visibility)
    nodes = _nodes(rows, reading, empty)
    sizes = _sizes(interruption_rows(visibility=reading.visibility), reading, empty)
    return respond(
        request,
        reading,
        "reliability",
        tables=[nodes, _gpus(gpus, reading, _NO_GPU if is_judged else empty), sizes],
        # Before the first judgement every figure would be 0, as if all were well.
        figures=_figures(rows, gpus) if is_judged else None,
        verdicts=[
            *(_verdict(row) for row in rows if row.is_unreliable),
            *(_gpu_verdict(row) for row in gpus if row.is_unreliable),
        ],
        notes=[_note(one, reading) for one in states if one.end],
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
        KeyFigure("Failures", f"{sum(row.incidents for row in rows):,}", basis="30 days at most"),
        KeyFigure("Failed runs", f"{lost:,.0f}", of="GPU-h", basis="30 days at most"),
    )


def _verdict(row: ReliabilityRow) -> str:
    return f"Drain {row.cluster}/{row.node}: {_excess(row)}."


def _gpu_verdict(row: GpuReliabilityRow) -> str:
    name = f"GPU {row.gpu or row.uuid} of {row.cluster}/{row.node}"
    return gpu_advice(row.action, name, _excess(row))


def _excess(row: ReliabilityRow | GpuReliabilityRow) -> str:
    return excess_text(row.ratio, row.ratio_low, row.ratio_high, row.lost_gpu_hours)


def _note(one: ReliabilityState, reading: QuerySession) -> str:
    start, end = (shown(at, Format.TIME, reading.choice.zone) for at in (one.start, one.end))
    return f"{one.cluster}: {start} to {end}, once a day."


def _nodes(rows: Sequence[ReliabilityRow], reading: QuerySession, empty: str) -> Table:
    return Table(
        id="nodes",
        title="Nodes",
        columns=list(declared_columns(ReliabilityRow, _REASONS)),
        rows=[TableRow({**declared_values(row), "reasons": _reasons(row.reasons)}) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=("node", "incidents", "expected", "is_unreliable"),
    )


def _gpus(rows: Sequence[GpuReliabilityRow], reading: QuerySession, empty: str) -> Table:
    return Table(
        id="gpus",
        title="GPUs",
        columns=list(declared_columns(GpuReliabilityRow, _REASONS)),
        rows=[TableRow({**declared_values(row), "reasons": _reasons(row.reasons)}) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=("node", "gpu", "incidents", "expected", "is_unreliable"),
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


def _empty(states: Sequence[ReliabilityState], reading: QuerySession) -> str:
    # First of all: for who may not see nodes, it says nothing that none are listed.
    if not reading.visibility.everything:
        return "Shown to those who see all teams."
    if any(one.end for one in states):
        return "No pod ran on a GPU in these days."
    return "Not computed yet. A worker judges the nodes once a day."
