"""A slice of `campus` through the whole chain: what is covered of its waste, within seconds."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.costs.domain.recommendations.recommendation import WasteCell, together
from apps.costs.models import Recommendation, WasteSum
from apps.costs.selectors.recommendations import RecommendationFilters, waste_covered
from apps.costs.services import price_hours
from apps.costs.services.recommendation_run import store_recommendations
from apps.operations.services import load_catalog
from apps.usage.services import collect_window, roll_days
from simulator.catalog import catalog_yaml
from simulator.epochs import Epoch
from simulator.fleet import DAY
from simulator.scenarios.base import Scenario, Team
from simulator.scenarios.campus.apps import LIMITS, WORK
from simulator.scenarios.campus.pools import PRICES, RATES, WHOLE, make_nodes, make_pools
from simulator.scenarios.day_work import DayWork, Work
from simulator.scenarios.helios import passing
from tests.served_lab import served_lab

pytestmark = [pytest.mark.django_db, pytest.mark.long]

NOW = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
LAST_MIDNIGHT = datetime(2026, 11, 20, 23, tzinfo=UTC)
DAYS = 8


class AppsNodes(Scenario):
    """The four nodes of `campus` on which work follows the day.

    Beside them are `more` of its nodes, empty, and `other` work.
    """

    name = "apps"
    title = "32 A100 of four teams"

    def __init__(self, begins: int, more: Collection[str] = (), other: Sequence[Work] = ()) -> None:
        self.seed = self.name
        self.begins = begins
        nodes = make_nodes(self.seed, begins, begins)
        self.nodes = [one for one in nodes if one.name.startswith("apps-") or one.name in more]
        self._work = DayWork(self.seed, self.nodes, begins, (*WORK, *other))
        self.namespaces = self._work.namespaces()
        self.quotas = []
        self.controllers = list(self._work.controllers())
        pools = [pool for pool in make_pools(nodes) if {one.name for one in pool.nodes} & {*more}]
        self.tiers = [pool.tier for pool in make_pools(nodes) if pool.tag == WHOLE or pool in pools]
        self.prices, self.rates = PRICES, RATES
        self.teams = [
            Team(team, (f"{team}-apps",), 0, "", entitlements={WHOLE: limit})
            for team, limit in LIMITS.items()
        ]
        self._epoch = lru_cache(maxsize=1)(self._make_epoch)

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end >= self.begins:
            yield self._epoch()

    def _make_epoch(self) -> Epoch:
        end = self.begins + 14 * DAY
        pods = list(self._work.pods(self.begins, end))
        return Epoch(self.begins, end, pods=pods, hard={}, controllers=passing(pods))


def apps_nodes(*more: str, other: Sequence[Work] = ()) -> AppsNodes:
    return AppsNodes(int(NOW.timestamp()) // DAY * DAY - 10 * DAY, more, other)


def collect(scenario: Scenario) -> None:
    with served_lab(scenario, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        for back in range(DAYS, 0, -1):
            start = LAST_MIDNIGHT - timedelta(days=back)
            collect_window("lab", Window(start, start + timedelta(days=1)), now=NOW)
    roll_days(now=NOW)
    while price_hours(now=NOW):
        pass


def test_most_of_the_waste_of_its_apps_is_covered_and_none_twice() -> None:
    collect(apps_nodes())
    store_recommendations(now=NOW)

    found = waste_covered(filters=RecommendationFilters(), visibility=EVERYTHING)
    rows = list(Recommendation.objects.all())
    assert len({row.kind for row in rows}) >= 5
    assert not any("pretrain-foundation" in row.workload for row in rows)
    assert found.ratio is not None
    assert found.ratio >= 0.5

    waste: dict[tuple[object, str], int] = defaultdict(int)
    for one in WasteSum.objects.all():
        waste[one.team_id, one.cause] += one.cost
    claims: dict[object, list[dict[WasteCell, int]]] = defaultdict(list)
    for row in rows:
        claims[row.team_id].append(
            {WasteCell(name, cause): cost for name, cause, cost in row.covers}
        )
    covered: dict[tuple[object, str], int] = defaultdict(int)
    for team, of_team in claims.items():
        for cell, cost in together(of_team).items():
            covered[team, cell.cause] += cost
    assert covered
    assert all(cost <= waste[place] for place, cost in covered.items())
