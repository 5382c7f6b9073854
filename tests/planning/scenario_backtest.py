"""Holds replays of recorded demand against what happened on `openb` and `campus`.

`python -m tests.planning.scenario_backtest SCENARIO [DAYS]` writes what a watch would have recorded
of the last days, replays them with nothing changed, and prints both for each tier. It ends with
status 1 where a sum is off by more than a tenth. Waits of `openb` come from no lack of GPUs (its
pods start late while there is room), so only its allocation is held to that.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from simulator.fleet import DAY
from simulator.scenarios.registry import load
from tests.simulator.truths import NOW

if TYPE_CHECKING:
    from apps.planning.domain.cluster_replay.backtest import Backtested, BacktestRow

TOLERANCE = 0.1
HELD: Mapping[str, tuple[str, ...]] = {
    "openb": ("allocated_gpu_hours",),
    # p95 is missed: 17,280 s where it was 22,140. Pods also queue for checks that neither quota nor
    # room explains.
    "campus": ("allocated_gpu_hours", "unmet_gpu_hours", "p50_seconds", "p95_seconds"),
}
"""What of each scenario is held to the tolerance."""
_DAYS = 14
_TODAY = NOW // DAY * DAY


def recorded_backtest(name: str, *, days: int) -> "Backtested":
    """Return the backtest of the last days of a scenario, from its recorded tables."""
    from apps.accounts.permissions import EVERYTHING
    from apps.clusters.domain.window import Window
    from apps.planning.domain.cluster_replay.backtest import backtest
    from apps.planning.selectors import recorded_demand
    from tests.planning.recorded_scenario import record_scenario

    start, end = _TODAY - days * DAY, _TODAY
    cluster = record_scenario(load(name, now=NOW), start=start, end=end)
    window = Window(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))
    found = recorded_demand(cluster.name, window, visibility=EVERYTHING)
    happened = [life.times for life in found.lives]
    return backtest(found.works, happened, found.cluster, start=start, end=end)


def differences(name: str, sums: "BacktestRow") -> Iterator[str]:
    """Yield a line for each sum that is off."""
    for field in HELD[name]:
        was, now = getattr(sums.happened, field), getattr(sums.replayed, field)
        if was is None or now is None or abs(now - was) > TOLERANCE * abs(was):
            yield f"{name}: {field} is {now} in the replay, it was {was}"


def main(name: str, days: int) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    found = recorded_backtest(name, days=days)
    sys.stdout.write(f"{name}: {days} days, nodes chosen to {found.packing}\n")
    for row in found.rows:
        sys.stdout.write(f"  {row.tier or 'all tiers':16} {row.happened}\n")
        sys.stdout.write(f"  {'replayed':>16} {row.replayed}\n")
    wrong = list(differences(name, found.rows[0]))
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else _DAYS))
