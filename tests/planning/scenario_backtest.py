"""Holds replays of recorded demand against what happened on `openb` and `campus`.

`python -m tests.planning.scenario_backtest SCENARIO [DAYS [FILE]]` writes what a watch would have
recorded of the last days, replays them with nothing changed, and prints both for each tier; into
FILE it writes the errors as a table. Of `campus-from-series` it leaves only what series would have
shown of the pods: neither queues nor causes, and limits as a watch finds them at the end. It ends
with status 1 where a sum is off by more than a tenth.
Waits of `openb` come from no lack of GPUs (its pods start late while there is room), so only its
allocation is held to that.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from apps.accounts.domain.structs import replace
from simulator.fleet import DAY
from simulator.scenarios.registry import load
from tests.simulator.truths import NOW
from tests.truths import begin

if TYPE_CHECKING:
    from apps.planning.domain.cluster_replay.backtest import Backtested, BacktestRow, RecordedSpan
    from apps.planning.domain.cluster_replay.inputs import Packing

TOLERANCE = 0.1
AS_STARTED_TOLERANCE = 0.02
HELD: Mapping[str, tuple[str, ...]] = {
    "openb": ("allocated_gpu_hours",),
    "campus": ("allocated_gpu_hours", "unmet_gpu_hours", "p50_seconds", "p95_seconds"),
    "campus-from-series": ("allocated_gpu_hours", "unmet_gpu_hours", "p50_seconds", "p95_seconds"),
}
"""What of each scenario is held to the tolerance."""
AS_STARTED = ("campus",)
"""Scenarios held closer where who is chosen next is told: see `as_started`."""
_DAYS = 14
_FROM_SERIES = "-from-series"
_MARK, _END_MARK = "<!-- backtest -->", "<!-- end of backtest -->"
_TODAY = NOW // DAY * DAY


def recorded_backtest(name: str, *, days: int) -> "Backtested":
    """Return the backtest of the last days of a scenario, from its recorded tables."""
    from apps.planning.domain.cluster_replay.backtest import backtest

    return backtest(*record(name, days=days))


def record(name: str, *, days: int) -> "tuple[RecordedSpan, Packing]":
    """Return the last days of a scenario as they are recorded, and how nodes are chosen in it.

    That is read off up to a week before.
    """
    from apps.planning.domain.cluster_replay.backtest import nearest_packing
    from apps.planning.domain.cluster_replay.inputs import Packing
    from tests.planning.recorded_scenario import record_scenario

    start, before = _TODAY - days * DAY, _TODAY - (days + min(days, 7)) * DAY
    scenario = load(name.removesuffix(_FROM_SERIES), now=NOW)
    cluster = record_scenario(scenario, start=before, end=_TODAY)
    if name.endswith(_FROM_SERIES):
        forget_watch(cluster.pk, _TODAY)
    packing = nearest_packing(_span(cluster.name, before, start)) or Packing.SPREAD
    return _span(cluster.name, start, _TODAY), packing


def as_started(span: "RecordedSpan") -> "RecordedSpan":
    """Return a span with the works in line in the order in which they started.

    Nodes that took pods while they were closed stay open then. What a replay of it has pending more
    or less than there was comes from the engine, not from who was chosen next.
    """
    times = [inf if one.started_at is None else one.started_at for one in span.happened]
    line = sorted(range(len(times)), key=times.__getitem__)
    rank = {number: place for place, number in enumerate(line)}
    works = [replace(one, priority=-rank[number]) for number, one in enumerate(span.works)]
    took = {
        (name, at) for one, at in zip(span.works, times, strict=True) for name in one.nodes
    }  # fmt: skip
    nodes = tuple(
        replace(
            node,
            closed=tuple(
                closed
                for closed in node.closed
                if not any(
                    name == node.name and closed.start <= at < closed.end for name, at in took
                )
            ),
        )
        for node in span.cluster.nodes
    )
    return replace(span, works=works, cluster=replace(span.cluster, nodes=nodes))


def forget_watch(cluster_id: int, end: int) -> None:
    """Leave of a recorded cluster what series and a watch from `end` on would have shown."""
    from apps.clusters.models import ObservedObject, Pod, WatchCoverage
    from apps.pending.models import Episode

    at = datetime.fromtimestamp(end, UTC)
    Episode.objects.filter(cluster=cluster_id).delete()
    Pod.objects.filter(cluster=cluster_id).update(
        queue="", gang="", priority=None, node_selector={}, source="metrics", observed_until=at
    )
    ObservedObject.objects.filter(cluster=cluster_id, gone_at__isnull=False).delete()
    ObservedObject.objects.filter(cluster=cluster_id).update(first_at=at, changed_at=at)
    WatchCoverage.objects.filter(cluster=cluster_id).update(start=at, end=at + timedelta(hours=1))


def _span(cluster: str, start: int, end: int) -> "RecordedSpan":
    from apps.accounts.permissions import EVERYTHING
    from apps.clusters.domain.window import Window
    from apps.planning.selectors import recorded_demand
    from apps.planning.services.backtests import recorded_span

    window = Window(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))
    return recorded_span(recorded_demand(cluster, window, visibility=EVERYTHING))


def differences(name: str, sums: "BacktestRow", tolerance: float = TOLERANCE) -> Iterator[str]:
    """Yield a line for each sum that is off."""
    for field in HELD[name]:
        was, now = getattr(sums.happened, field), getattr(sums.replayed, field)
        if was is None or now is None or abs(now - was) > tolerance * abs(was):
            yield f"{name}: {field} is {now} in the replay, it was {was}"


def error_table(found: "Backtested") -> str:
    """Return the errors of each tier as a table of Markdown."""
    lines = [
        "| tier | p50 queue time (min) | replayed (min) | p95 queue time (h) | replayed (h) "
        "| unmet GPU-h | error | allocated error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found.rows:
        was, now = row.happened, row.replayed
        p50 = (f"{(one.p50_seconds or 0.0) / 60:.0f}" for one in (was, now))
        p95 = (f"{(one.p95_seconds or 0.0) / 3600:.1f}" for one in (was, now))
        lines.append(
            f"| {row.tier or 'all tiers'} | {' | '.join((*p50, *p95))} "
            f"| {was.unmet_gpu_hours:,.0f} "
            f"| {_error(was.unmet_gpu_hours, now.unmet_gpu_hours)} "
            f"| {_error(was.allocated_gpu_hours, now.allocated_gpu_hours)} |"
        )
    return "\n".join(lines)


def _error(was: float, now: float) -> str:
    return f"{now / was - 1:+.1%}".replace("%", " %").replace("-", "−") if was else "-"


def write_table(found: "Backtested", path: Path) -> None:
    """Write the table of errors between the marks of a document."""
    head, rest = path.read_text(encoding="utf-8").split(_MARK, 1)
    _, tail = rest.split(_END_MARK, 1)
    text = f"{head}{_MARK}\n{error_table(found)}\n{_END_MARK}{tail}"
    path.write_text(text, encoding="utf-8")


def main(name: str, days: int, path: str = "") -> int:
    begin()
    from apps.planning.domain.cluster_replay.backtest import backtest

    span, packing = record(name, days=days)
    found, in_line = backtest(span, packing), backtest(as_started(span), packing)
    sys.stdout.write(f"{name}: {days} days, nodes chosen to {found.packing}\n")
    for row, other in zip(found.rows, in_line.rows, strict=True):
        sys.stdout.write(f"  {row.tier or 'all tiers':16} {row.happened}\n")
        sys.stdout.write(f"  {'replayed':>16} {row.replayed}\n")
        sys.stdout.write(f"  {'in real order':>16} {other.replayed}\n")
    if path:
        write_table(found, Path(path))
    wrong = list(differences(name, found.rows[0]))
    if name in AS_STARTED:
        wrong += differences(name, in_line.rows[0], AS_STARTED_TOLERANCE)
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else _DAYS, *sys.argv[3:]))
