"""Worker: one hour of fairness computed, and pages of many days, what they read and whole.

python -m tests.bench.fairness TEAMS TIERS DAYS
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import connection

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.fairness.models import FairnessDay
from apps.fairness.selectors import fairness_overview, tier_detail
from apps.fairness.services import compute_hour, roll_days
from tests.bench import fairness_data, fairness_pages
from tests.bench.fairness_hour import tiers_of_an_hour, whole_hour
from tests.bench.measuring import REPETITIONS, timed, wall

_DAY = timedelta(days=1)


def measure(teams: str, tiers: str, days: str) -> dict[str, Any]:
    """Return seconds of an hour's measures alone, computed and written, of reads, of pages."""
    world = fairness_data.fill(int(teams), int(tiers))
    now, last = world.now, world.today - _DAY
    computed = [timed(partial(compute_hour, last, now=now)) for _ in range(REPETITIONS)]
    rolled = timed(partial(roll_days, now=now)).wall
    fairness_data.repeat(world, int(days))
    window = Window(world.today - (int(days) - 1) * _DAY, now)
    reads: dict[str, Callable[[], object]] = {
        "overview": partial(fairness_overview, window, visibility=EVERYTHING),
        "tier": partial(tier_detail, window, world.tier, now=now, visibility=EVERYTHING),
    }
    alone = tiers_of_an_hour(int(teams), int(tiers))
    return {
        "database": connection.vendor,
        "days": FairnessDay.objects.filter(rolled=True).count(),
        "measures_seconds": _median(partial(whole_hour, alone)),
        "compute_seconds": wall(computed),
        "roll_seconds": rolled,
        **{f"{name}_seconds": _median(read) for name, read in reads.items()},
        "pages": fairness_pages.measured(world, int(days)),
    }


def _median(run: Callable[[], object]) -> float:
    run()
    return wall([timed(run) for _ in range(REPETITIONS)])
