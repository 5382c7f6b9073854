"""What failures on `campus` cost by the portal is what the simulator planted, team by team."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.services import snapshot_cluster
from apps.goodput.selectors import GoodputLedger, goodput_ledger
from apps.operations.services import load_catalog
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.clock import PinnedClock
from simulator.fleet import DAY
from simulator.scenarios.campus.failures import ENDS, NODE_LOST, FailingCampus, Failure, NodeLoss
from simulator.scenarios.registry import published_trace
from tests.served_lab import served_by

# Hours of a whole campus. `make check` holds every kind of loss on four GPUs: test_planted_losses.
pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive]

HOUR = 3600
ORIGIN = 1_790_812_800
START = ORIGIN + 10 * DAY + 6 * HOUR
HOURS = 4
END = START + HOURS * HOUR
LOOK_SECONDS = 280
"""Between two looks at the cluster: what is over stays in the API for five minutes."""
TOLERANCE = 0.01


@pytest.fixture(scope="module")
def campus() -> FailingCampus:
    return FailingCampus(
        seed=1,
        origin=ORIGIN,
        trace=published_trace(),
        planted=(START - HOUR, END),
        losses=(NodeLoss("a100-04", START + 3 * HOUR), NodeLoss("l4-01", START + 2 * HOUR)),
    )


@pytest.fixture
def collected(campus: FailingCampus) -> Window:
    """The window after its cluster was looked at every few minutes, and collected."""
    window = Window(*(datetime.fromtimestamp(at, UTC) for at in (START, END)))
    clock = PinnedClock((START - HOUR) * 1000)
    with served_by(campus, clock) as url:
        now = datetime.fromtimestamp(END, UTC)
        load_catalog(catalog_yaml(campus, url=url), "catalog.yaml", now=now, dry_run=False)
        while clock.now_ms() / 1000 <= END + LOOK_SECONDS:
            snapshot_cluster("lab", now=datetime.fromtimestamp(clock.now_ms() / 1000, UTC))
            clock.advance(LOOK_SECONDS)
        clock.advance(HOUR)
        collect_window("lab", window, now=datetime.fromtimestamp(clock.now_ms() / 1000, UTC))
    return window


def read(window: Window, *by: Grouping) -> GoodputLedger:
    return goodput_ledger(window, group_by=by, filters=Filters(), visibility=EVERYTHING)


def planted_by(failures: Sequence[Failure], key: str) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for one in failures:
        # A namespace is its team's name, or has a suffix after it.
        name = one.namespace.partition("-")[0] if key == "team" else getattr(one, key)
        found[name] += one.gpu_hours(START, END)
    return {name: amount for name, amount in found.items() if amount}


def test_lost_gpu_hours_are_those_that_were_planted(
    campus: FailingCampus, collected: Window
) -> None:
    planted = planted_by(campus.failures, "team")
    assert len(planted) >= 8
    total = read(collected).total
    assert total.lost / NANO == pytest.approx(sum(planted.values()), rel=TOLERANCE)
    for by in (Grouping.TEAM, Grouping.NODE, Grouping.TIER, Grouping.WORKLOAD):
        found = {
            row.groups[by]: row.amounts.lost / NANO
            for row in read(collected, by).rows
            if row.amounts.lost
        }
        assert found == pytest.approx(planted_by(campus.failures, by), rel=TOLERANCE, abs=1e-6)
    by_reason = {row.reason: row.lost_gpu_hours for row in read(collected).reasons}
    assert by_reason == pytest.approx(planted_by(campus.failures, "reason"), rel=TOLERANCE)
    assert set(by_reason) == {*ENDS, NODE_LOST}
