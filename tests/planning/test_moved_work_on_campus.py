"""Work of `campus` for which a part of a GPU would do: what its move does, replayed and tried."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.costs.domain.recommendations.recommendation import (
    RecommendationKind,
    ReplayGap,
)
from apps.costs.models import Recommendation
from apps.costs.services.recommendation_run import store_recommendations
from apps.planning.domain.cluster_replay.backtest import ALL_TIERS, TierTimes, tier_times
from apps.planning.domain.cluster_replay.inputs import Packing, ReplayPolicy
from apps.planning.domain.layouts.figures import DemandWindow
from apps.planning.domain.moved_work import MoveReplay, OtherRequest
from apps.planning.domain.policy_effects import RecordedWeeks
from apps.planning.services import replay_recommendations
from simulator.scenarios.campus.pools import WHOLE
from simulator.scenarios.day_work import CLOSES, Work
from tests.costs.test_campus_slice import DAYS, LAST_MIDNIGHT, NOW, apps_nodes, collect
from tests.planning.recorded_scenario import record_scenario
from tests.planning.test_layouts_on_campus import (
    BY_MIG,
    TOLERANCE,
    Trial,
    demand_of,
    recorded_campus,
)

pytestmark = [pytest.mark.django_db, pytest.mark.long]
MOVES = (RecommendationKind.MIG_PROFILE, RecommendationKind.SHARED_TIER)
UNOFFERED = ("Deployment/embed-small", "Deployment/tts-legacy")
UNMET = ("unmet_before_gpu_hours", "unmet_after_gpu_hours")
P95 = ("p95_before_seconds", "p95_after_seconds")
EVALUATION = (
    # By day all GPUs are in use: what is asked for at eight starts when the workshop closes.
    Work("search-apps", "CronJob", "eval-sweep", "apps-01", 4, 1, 4, 20_000, ((0, 0.9),),
         at_hours=(6, 18)),
    Work("search-apps", "CronJob", "probe", "apps-04", 0, 1, 2, 20_000, ((0, 0.9),),
         at_hours=(CLOSES, 20), working_days=True, pending_seconds=9 * 3600),
)  # fmt: skip


def test_each_move_is_replayed_or_says_why_not() -> None:
    scenario = apps_nodes("mig-01", "l4-01", other=EVALUATION)
    start = LAST_MIDNIGHT - timedelta(days=DAYS)
    record_scenario(scenario, start=int(start.timestamp()), end=int(NOW.timestamp()))
    collect(scenario)
    store_recommendations(now=NOW)
    replay_recommendations(now=NOW)

    rows = Recommendation.objects.filter(kind__in=[kind.value for kind in MOVES]).order_by("pk")
    assert {row.kind for row in rows} == set(MOVES)
    # None of these profiles is offered, so there is nothing that a replay could place them on.
    gaps = {row.workload: row.replay_gap for row in rows if row.replay is None}
    assert gaps == dict.fromkeys(UNOFFERED, ReplayGap.NOT_OFFERED.value)
    pair = [row for row in rows if row.workload == "Deployment/label-tool"]
    assert len(pair) == len(MOVES)
    for row in pair:
        assert row.replay is not None
        assert row.change_values is not None
        share = row.change_values["share"]
        # Two pods hold a GPU each all day long, and move as the replay begins.
        held = 2 * 24 * row.replay["replayed_days"]
        assert row.replay["replayed_freed_gpu_hours"] == pytest.approx(held * (1 - share))
        assert row.replay["replayed_held_gpu_hours"] == pytest.approx(held * share)
        works = [row.replay[f"replayed_works{name}"] for name in ("", "_started")]
        assert works == [2, 2]
        # On their GPUs two more start at eight, who were pending until five on six working days.
        unmet, p95 = ([row.replay[f"replayed_{name}"] for name in names] for names in (UNMET, P95))
        assert unmet == [2 * 9 * 6, 0.0]
        assert p95 == [9 * 3600, 0.0]
        # They run all day long in the evidence as well, so it comes to the saving that was found.
        assert row.replay["replayed_saving_per_month"] == str(row.saving_per_month)
    check_pools()


def check_pools() -> None:
    """Check what pools do without the GPUs that were empty."""
    rows = Recommendation.objects.filter(kind=RecommendationKind.EMPTY_HOURS.value)
    tiers = rows.select_related("tier")
    found: dict[str, Any] = {row.tier.name: row.replay for row in tiers if row.tier}
    unheld = {"shared-l4": 4, "mig-1g": 2, "mig-3g": 11 * 3 / 7}
    for name, gpus in unheld.items():
        # All of them are away all the time; of the devices that are 3/7 of a GPU eleven fit in 5.
        assert found[name]["replayed_freed_gpu_hours"] == pytest.approx(gpus * 24 * 9), name
        assert found[name]["replayed_unmet_after_gpu_hours"] == 0.0
    # At night some are empty, and none of the work that is pending by day could have had them.
    assert found[WHOLE]["replayed_freed_gpu_hours"] > 100
    unmet = [found[WHOLE][f"replayed_{name}"] for name in UNMET]
    assert unmet == [2 * 9 * 6, 2 * 9 * 6]


def test_the_simulated_scheduler_measures_what_a_move_is_replayed_to_do() -> None:
    recorded = recorded_campus(4)
    demand = demand_of(recorded, BY_MIG)
    policy = ReplayPolicy(packing=Packing.FIRST)
    weeks = RecordedWeeks(
        demand.works, demand.happened, demand.cluster, demand.start, demand.end, [], {}, policy
    )
    # By the object: two works may have the same times.
    owner_of = {id(life.times): life.owner for life in recorded.lives}
    owners = [owner_of[id(one)] for one in demand.happened]
    moves = MoveReplay(weeks, owners)
    seventh = OtherRequest("mig-1g", "nvidia.com/mig-1g.10gb", 1.0, 1 / 7, {})
    small = Counter(
        owner
        for owner, work in zip(owners, demand.works, strict=True)
        if work.tier == WHOLE and work.units == 1
    )
    (owner, _), *_ = small.most_common(1)
    moved, promised = moves.moved(owner, WHOLE, seventh), moves.effects(owner, WHOLE, seventh)
    assert promised is not None
    assert promised.after.unmet_gpu_hours < promised.before.unmet_gpu_hours / 2
    then = replace(
        demand,
        works=[moved.get(number, work) for number, work in enumerate(demand.works)],
        happened=[
            was._replace(tier=seventh.tier, gpus=seventh.share) if number in moved else was
            for number, was in enumerate(demand.happened)
        ],
    )
    for window, row in ((demand, promised.before), (then, promised.after)):
        measured = tried(window)
        assert measured.unmet_gpu_hours == pytest.approx(row.unmet_gpu_hours, rel=TOLERANCE)
        assert measured.allocated_gpu_hours == pytest.approx(row.allocated_gpu_hours, rel=TOLERANCE)
        assert measured.percentiles()[1] == pytest.approx(row.p95_seconds, rel=TOLERANCE)


def tried(demand: DemandWindow) -> TierTimes:
    """Return how whole A100 and sevenths were used on the simulator, together."""
    trial = Trial(demand, demand.cluster.nodes)
    trial.run()
    own = (one for one in trial.happened(demand) if one.tier in (WHOLE, "mig-1g"))
    return tier_times(own, start=demand.start, end=demand.end)[ALL_TIERS]
