"""The backtest of replays: the last weeks replayed with nothing changed, beside what happened."""

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from django.http import HttpResponseBase

from apps.clusters.domain.resources import counted
from apps.planning.domain.cluster_replay.backtest import BacktestRow, TimesRow
from apps.planning.domain.cluster_replay.inputs import Packing
from apps.planning.domain.cluster_replay.wording import packing_text
from apps.planning.selectors import BacktestReport, backtest_reports
from apps.usage.domain.amounts import nano
from apps.web.components.formats import Format, Value, shown
from apps.web.components.tables import Column, Table, TableRow
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

_ALL = "All tiers"
_ERRORS = ("p95_change", "unmet_change", "allocated_change")
_COLUMNS = (
    Column("tier", "Tier"),
    Column("cluster", "Cluster"),
    Column("p50_seconds", "p50 queue time", Format.SECONDS),
    Column("p50_replayed_seconds", "p50 replayed", Format.SECONDS),
    Column("p95_seconds", "p95 queue time", Format.SECONDS),
    Column("p95_replayed_seconds", "p95 replayed", Format.SECONDS),
    Column("unmet_gpu_hours", "Unmet", Format.GPU_HOURS, "GPU-h"),
    Column("unmet_replayed_gpu_hours", "Unmet replayed", Format.GPU_HOURS, "GPU-h"),
    Column("delayed_gpu_hours", "Other delays", Format.GPU_HOURS, "GPU-h"),
    Column("allocated_gpu_hours", "Allocated", Format.GPU_HOURS, "GPU-h"),
    Column("allocated_replayed_gpu_hours", "Allocated replayed", Format.GPU_HOURS, "GPU-h"),
    Column("p95_change", "p95 error", Format.CHANGE),
    Column("unmet_change", "Unmet error", Format.CHANGE),
    Column("allocated_change", "Allocated error", Format.CHANGE),
)


@page
def backtest(request: PageRequest) -> HttpResponseBase:
    """Show the newest backtest of each cluster."""
    reading = query_session(request)
    found = backtest_reports(visibility=reading.visibility)
    return respond(
        request,
        reading,
        "backtest",
        tables=[_table(found, reading)],
        notes=[note for one in found for note in _notes(one, reading)],
        assumptions=_assumptions(found),
    )


def _assumptions(found: Sequence[BacktestReport]) -> list[str]:
    """Return the assumptions, each once; of some clusters alone with their names."""
    own = {one.cluster: one.assumptions for one in found if one.assumptions}
    texts = dict.fromkeys(text for assumptions in own.values() for text in assumptions)

    def named(text: str) -> str:
        clusters = [cluster for cluster, assumptions in own.items() if text in assumptions]
        return text if len(clusters) == len(own) else f"{', '.join(clusters)}: {text}"

    return [named(text) for text in texts]


def _table(found: Sequence[BacktestReport], reading: QuerySession) -> Table:
    return Table(
        id="backtest",
        title="Replayed and recorded",
        columns=list(_COLUMNS),
        rows=[
            _row(_line(one.cluster, row), reading.choice.zone) for one in found for row in one.rows
        ],
        zone=reading.choice.zone,
        empty="Not computed yet. A worker replays the last 14 days once a day, fewer where fewer "
        "are known.",
        on_phone=("tier", "unmet_change", "allocated_change"),
    )


def _row(line: dict[str, Value], zone: ZoneInfo) -> TableRow:
    # An error of nothing is no error: "no change" is said of what was the same before.
    none = {key: "0 %" for key in _ERRORS if shown(line[key], Format.CHANGE, zone) == "no change"}
    return TableRow(line, short=none)


def _line(cluster: str, row: BacktestRow) -> dict[str, Value]:
    was, now = row.happened, row.replayed
    return {
        "cluster": cluster,
        "tier": row.tier or _ALL,
        **_values(was, ""),
        **_values(now, "_replayed"),
        "delayed_gpu_hours": nano(was.delayed_gpu_hours),
        "p95_change": _change(was.p95_seconds, now.p95_seconds),
        "unmet_change": _change(was.unmet_gpu_hours, now.unmet_gpu_hours),
        "allocated_change": _change(was.allocated_gpu_hours, now.allocated_gpu_hours),
    }


def _change(was: float | None, now: float | None) -> float | None:
    # An error is a part of what happened: of nothing there is no part.
    return now / was - 1 if was and now is not None else None


def _values(row: TimesRow, suffix: str) -> dict[str, Value]:
    return {
        f"p50{suffix}_seconds": row.p50_seconds,
        f"p95{suffix}_seconds": row.p95_seconds,
        f"unmet{suffix}_gpu_hours": nano(row.unmet_gpu_hours),
        f"allocated{suffix}_gpu_hours": nano(row.allocated_gpu_hours),
    }


def _notes(one: BacktestReport, reading: QuerySession) -> Iterator[str]:
    """Yield what is to be known of a cluster's backtest, in sentences."""
    if one.error:
        yield f"{one.cluster}: {one.error}"
    # A backtest that failed has no span, and its error is all that there is to say.
    if one.start is None or one.end is None:
        return
    first, last = (shown(at, Format.TIME, reading.choice.zone) for at in (one.start, one.end))
    yield f"{one.cluster}: {counted(one.works, 'workload')} from {first} to {last}."
    if one.packing:
        yield f"{one.cluster}: {packing_text(Packing(one.packing))}."
    for reason, number in sorted(one.left_out.items()):
        yield f"{one.cluster}: {counted(number, 'pod is', 'pods are')} left out ({reason})."
