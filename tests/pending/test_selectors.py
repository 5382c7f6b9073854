"""What readers get of waiting: who sees what, in which order, with how many queries."""

from collections import Counter
from datetime import timedelta

import pytest

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.observed.objects import (
    Body,
    ObservedKind,
    PodGroupSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import Window
from apps.clusters.models import NamespaceTeam, WatchIssue
from apps.pending.models import Episode
from apps.pending.selectors import (
    NamespaceContext,
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
    blocking_teams,
    episodes_of,
    eviction_sums,
    find_pending,
    freshness,
    pending_history,
    pending_now,
    pending_sums,
    refresh_rows,
    time_to_start,
    typical_queue_time,
)
from apps.pending.selectors.scope import PendingScope
from apps.usage.domain.amounts import NANO
from apps.usage.models import CollectionWindow
from apps.usage.selectors import CursorRefused
from tests.factories import Portal, make_workload
from tests.pending.pending_portal import HOUR, NOW, at_most, make_waiting_portal, of
from tests.pending.rows import make_episode, make_eviction, make_looked, make_many_waiting, see
from tests.shared_rows import copy_of, shared

DAY = Window(NOW - 24 * HOUR, NOW)
OUTSIDER = Visibility(everything=False)

_waiting = shared(make_waiting_portal)
portal = copy_of("_waiting")


def test_pending_work_is_told_longest_first(portal: Portal) -> None:
    with at_most(6):
        page = pending_now(NOW, visibility=EVERYTHING)
    assert [row.name for row in page.rows] == ["notes-2", "train-2", "late"]
    row = page.rows[1]
    assert (row.cluster, row.namespace, row.team, row.kind) == ("west", "vision", "vision", "Pod")
    assert (row.tier, row.workload, row.wait_seconds) == ("gold", "Job/train", 7200.0)
    assert (row.suggestion, row.stale) == ("Free 4 GPUs.", False)
    assert page.rows[0].tier == "undetermined"


HELD = ["speech/notes-0", "vision/train-0"]
BOTH = "Free 4 GPUs on west-1, held by speech/notes-0 and vision/train-0."
MINE = "Free 4 GPUs on west-1, held in part by vision/train-0."


@pytest.mark.parametrize(
    ("holders", "everything", "told", "named"),
    [
        pytest.param(HELD, True, BOTH, HELD, id="who sees everything"),
        pytest.param(HELD, False, MINE, HELD[1:], id="another team's beside one's own"),
        pytest.param(HELD[:1], False, "Free 4 GPUs on west-1.", None, id="another team's"),
        pytest.param(
            HELD[1:], False, "Free 4 GPUs on west-1, held by vision/train-0.", HELD[1:], id="own"
        ),
    ],
)
def test_suggestions_name_pods_of_teams_that_the_reader_sees(
    portal: Portal,
    holders: list[str],
    everything: bool,
    told: str,
    named: list[str] | None,
) -> None:
    change = {"resource": "GPUs", "amount": 4.0, "nodes": ["west-1"], "holders": holders}
    Episode.objects.filter(name="train-2").update(
        findings={"suggestions": [{"action": "free", "change": change}]}
    )
    reader = EVERYTHING if everything else of(portal.vision)
    (row,) = [r for r in pending_now(NOW, visibility=reader).rows if r.name == "train-2"]
    (found,) = episodes_of("west", row.uid, at=NOW, visibility=reader)
    for one in (row, found.row):
        assert (one.suggestion, one.suggestions[0].text) == (told, told)
        assert one.suggestions[0].change.get("holders") == named
        assert one.suggestions[0].change["amount"] == 4


def test_a_namespace_is_seen_where_it_is_ones_own_and_not_by_its_name_elsewhere(
    portal: Portal,
) -> None:
    scope = PendingScope(NOW, PendingFilters(), of(portal.vision))
    assert ("west", "vision") in scope.seen_names
    assert not {name for _, name in scope.seen_names} & {"speech", "stray"}


def test_what_may_not_be_read_any_more_is_stale_since_then(portal: Portal) -> None:
    since = NOW - HOUR
    for cluster, subject in (("west", "events"), ("east", "statefulsets")):
        WatchIssue.objects.create(
            cluster=next(one for one in portal.clusters if one.name == cluster),
            subject=f"waiting:{subject}",
            text="May not be read.",
            since=since,
        )
    with at_most(6):
        rows = pending_now(NOW, visibility=EVERYTHING).rows
    assert {row.name: (row.stale, row.as_of) for row in rows} == {
        "notes-2": (True, since),
        "train-2": (False, NOW),
        "late": (False, NOW),
    }
    assert [row.cluster for row in refresh_rows(freshness(NOW), visibility=EVERYTHING)] == [
        "east",
        "west",
    ]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        pytest.param(PendingFilters(team=("vision",)), ["train-2", "late"], id="team"),
        pytest.param(PendingFilters(cause=("quota",)), ["notes-2"], id="cause"),
        pytest.param(
            PendingFilters(tier=("gold", "undetermined")), ["notes-2", "train-2"], id="tier"
        ),
        pytest.param(PendingFilters(cluster=("east",)), ["notes-2"], id="cluster"),
        pytest.param(PendingFilters(kind=("Pod",)), ["train-2", "late"], id="kind"),
        pytest.param(PendingFilters(namespace=("vision",)), ["train-2", "late"], id="namespace"),
        pytest.param(PendingFilters(namespace=("nobody",)), [], id="unknown namespace"),
    ],
)  # fmt: skip
def test_filters_narrow_pending_work(
    portal: Portal, filters: PendingFilters, names: list[str]
) -> None:
    page = pending_now(NOW, filters=filters, visibility=EVERYTHING)
    assert [row.name for row in page.rows] == names


def test_others_see_no_things_of_a_team(portal: Portal) -> None:
    assert pending_now(NOW, visibility=OUTSIDER).rows == ()
    seen = pending_now(NOW, visibility=of(portal.speech)).rows
    assert [row.team for row in seen] == ["speech"]
    named = PendingFilters(team=("vision",))
    assert pending_now(NOW, filters=named, visibility=of(portal.speech)).rows == ()


@pytest.mark.parametrize("order", list(PendingOrder))
def test_pages_follow_each_other_without_gap_or_repeat(portal: Portal, order: PendingOrder) -> None:
    workload = make_workload(portal.clusters[0], "vision", "many")
    make_many_waiting([workload], 7, since=NOW - HOUR, step=timedelta(0))
    whole = pending_now(NOW, visibility=EVERYTHING, page=PendingPage(order=order))
    found: list[PendingRow] = []
    cursor = None
    while True:
        page = pending_now(NOW, visibility=EVERYTHING, page=PendingPage(cursor, 3, order))
        found += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == list(whole.rows)
    assert len({row.id for row in found}) == 10
    if order is PendingOrder.MOST:
        assert [row.gpu_equivalents for row in found] == sorted(
            (row.gpu_equivalents for row in found), reverse=True
        )


@pytest.mark.parametrize("cursor", ["", "x", "WyJwb2RzIiwgIngiXQ"])
def test_a_strange_cursor_is_refused(portal: Portal, cursor: str) -> None:
    with pytest.raises(CursorRefused):
        pending_now(NOW, visibility=EVERYTHING, page=PendingPage(cursor))


@pytest.mark.parametrize(
    ("by", "found"),
    [
        pytest.param(PendingGrouping.CAUSE, [], id="causes are those of what one may see"),
        pytest.param(PendingGrouping.TEAM, [("vision", 5.0, 0.0), ("speech", 0.0, 2.0)], id="team"),
        pytest.param(
            PendingGrouping.TIER,
            [("gold", 4.0, 0.0), ("undetermined", 0.0, 2.0), ("silver", 1.0, 0.0)],
            id="tier",
        ),
        pytest.param(PendingGrouping.NAMESPACE, [], id="namespaces are not for outsiders"),
    ],
)
def test_sums_of_gpus_are_for_everybody(
    portal: Portal, by: PendingGrouping, found: list[tuple[str, float, float]]
) -> None:
    with at_most(4):
        sums = pending_sums(NOW, by=by, visibility=OUTSIDER)
    assert [(one.name, one.pending, one.suppressed) for one in sums] == found


@pytest.mark.parametrize(
    ("filters", "of_vision"),
    [
        pytest.param(PendingFilters(), True, id="all that a lead sees"),
        pytest.param(PendingFilters(kind=("Pod",)), True, id="kind"),
        pytest.param(PendingFilters(tier=("gold",)), True, id="tier"),
        pytest.param(PendingFilters(team=("speech",)), True, id="team of others"),
        pytest.param(PendingFilters(), False, id="everything"),
    ],
)
def test_sums_by_cause_count_what_is_listed(
    portal: Portal, filters: PendingFilters, of_vision: bool
) -> None:
    visibility = of(portal.vision) if of_vision else EVERYTHING
    rows = pending_now(NOW, filters=filters, visibility=visibility).rows
    sums = pending_sums(NOW, by=PendingGrouping.CAUSE, filters=filters, visibility=visibility)
    assert {one.name: one.items for one in sums} == Counter(row.cause for row in rows)


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        pytest.param("Workload", ["pod-a"], id="Workload and its pod"),
        pytest.param("PodGroup", ["pod-a"], id="PodGroup and its pod"),
        pytest.param("ResourceClaim", ["pod-a"], id="claim and its pod"),
        pytest.param("ReplicaSet", ["pod-a"], id="controller and its pod"),
    ],
)
def test_pod_workload_and_controller_are_one_row(
    portal: Portal, kind: str, listed: list[str]
) -> None:
    Episode.objects.all().delete()
    job = make_workload(portal.clusters[0], "vision", "queued")
    make_episode(job, "pod-a", since=NOW - HOUR, cause="queue")
    make_episode(
        job, "whole", since=NOW - HOUR, kind=kind, cause="queue", counts="nothing", counted=0.0
    )
    assert [row.name for row in pending_now(NOW, visibility=EVERYTHING).rows] == listed
    (found,) = pending_sums(NOW, by=PendingGrouping.CAUSE, visibility=EVERYTHING)
    assert (found.items, found.pending) == (1, 1.0)
    only = PendingFilters(kind=(kind,))
    rows = pending_now(NOW, filters=only, visibility=EVERYTHING).rows
    assert [row.name for row in rows] == ["whole"]


def test_what_counts_nothing_and_stands_alone_is_listed(portal: Portal) -> None:
    Episode.objects.all().delete()
    job = make_workload(portal.clusters[0], "vision", "refused", "Deployment")
    make_episode(job, "turned-away", since=NOW, kind="ReplicaSet", counts="nothing", counted=0.0)
    assert [row.name for row in pending_now(NOW, visibility=EVERYTHING).rows] == ["turned-away"]


def test_what_nobody_watches_is_stale(portal: Portal) -> None:
    later = NOW + timedelta(minutes=5)
    rows = pending_now(later, visibility=EVERYTHING).rows
    assert {(row.stale, row.as_of) for row in rows if row.cluster == "west"} == {(True, NOW)}
    with at_most(3):
        told = refresh_rows(freshness(NOW), visibility=OUTSIDER)
    assert [(one.cluster, one.stale, one.error) for one in told] == [
        ("east", False, ""),
        ("west", False, ""),
    ]


def test_a_cluster_of_metrics_alone_is_known_until_its_last_collected_hour(portal: Portal) -> None:
    at = NOW + 2 * HOUR
    make_looked(portal.clusters[1], at)
    east, _ = refresh_rows(freshness(at), visibility=EVERYTHING)
    assert (east.cluster, east.as_of, east.stale) == ("east", NOW, False)
    CollectionWindow.objects.all().delete()
    east, _ = refresh_rows(freshness(at), visibility=EVERYTHING)
    assert (east.as_of, east.stale) == (None, True)


def test_a_failed_look_shows_and_its_text_to_who_runs_the_portal(portal: Portal) -> None:
    make_looked(portal.clusters[0], NOW, error="RuntimeError: no")
    assert [
        (one.stale, one.error) for one in refresh_rows(freshness(NOW), visibility=EVERYTHING)
    ] == [
        (False, ""),
        (True, "RuntimeError: no"),
    ]
    assert {one.error for one in refresh_rows(freshness(NOW), visibility=OUTSIDER)} == {""}


def test_every_episode_of_a_thing_is_told_with_its_causes(portal: Portal) -> None:
    train = make_workload(portal.clusters[0], "vision", "train")
    make_episode(
        train,
        "again",
        since=NOW - 9 * HOUR,
        until=NOW - 8 * HOUR,
        intervals=[
            (NOW - 9 * HOUR, "taint", "pending"),
            (NOW - 8.5 * HOUR, "starting", "starting"),
        ],
    )
    make_episode(train, "again", since=NOW - HOUR, again=True)
    with at_most(7):
        found = episodes_of("west", "uid-again", at=NOW, visibility=of(portal.vision))
    assert [(one.row.again, [interval.cause for interval in one.intervals]) for one in found] == [
        (True, ["capacity"]),
        (False, ["taint", "starting"]),
    ]
    assert found[1].row.wait_seconds == 3600.0
    assert episodes_of("west", "uid-again", at=NOW, visibility=of(portal.speech)) == []


def test_a_thing_is_found_by_its_name_or_its_controllers(portal: Portal) -> None:
    with at_most(7):
        found = find_pending("vision", "train", at=NOW, visibility=EVERYTHING)
    assert [one.row.name for one in found] == ["late", "train-2", "over"]
    (one,) = find_pending("vision", "train-2", at=NOW, visibility=EVERYTHING)
    assert one.row.uid == "uid-train-2"
    assert find_pending("vision", "train-2", at=NOW, visibility=EVERYTHING, cluster="east") == []
    assert find_pending("vision", "train-2", at=NOW, visibility=OUTSIDER) == []


def test_who_is_in_front_is_told_by_team_with_idle_holders_first(portal: Portal) -> None:
    portal.collect(Window(NOW - 6 * HOUR, NOW))
    row = pending_now(NOW, visibility=EVERYTHING).rows[1]
    with at_most(7):
        teams = blocking_teams(row, NOW, visibility=of(portal.vision))
    assert {team.team: (team.pods, team.gpu_equivalents) for team in teams} == {
        "vision": (2, 5.0),
        "speech": (1, 1.0),
    }
    known = [team.utilization for team in teams]
    assert None not in known
    assert known == sorted(known, key=lambda one: one or 0.0)
    listed = {team.team: [pod.pod for pod in team.listed] for team in teams}
    assert listed["speech"] == []
    assert sorted(listed["vision"]) == ["serve-abc", "train-0"]
    of_vision = next(team for team in teams if team.team == "vision")
    used = [pod.utilization or 0.0 for pod in of_vision.listed]
    assert used == sorted(used)


@pytest.mark.parametrize(
    ("queue", "kind", "body"),
    [
        pytest.param(
            "cluster_queue:all",
            ObservedKind.KUEUE_WORKLOAD,
            WorkloadSnapshot(0.0, cluster_queue="all", owner_kind="Deployment", owner="serve"),
            id="of Kueue",
        ),
        pytest.param(
            "cluster_queue:all",
            ObservedKind.KUEUE_WORKLOAD,
            WorkloadSnapshot(
                0.0, cluster_queue="all", owner_kind="Pod", owner="serve-abc", pods=("serve-abc",)
            ),
            id="of Kueue, a plain pod that a Deployment made",
        ),
        pytest.param(
            "volcano_queue:all",
            ObservedKind.VOLCANO_POD_GROUP,
            PodGroupSnapshot(0.0, queue="all", owner_kind="Deployment", owner="serve"),
            id="of Volcano",
        ),
    ],
)
def test_pending_work_in_a_queue_waits_for_what_that_admitted(
    portal: Portal, queue: str, kind: ObservedKind, body: Body
) -> None:
    west = portal.clusters[0]
    job = make_workload(west, "vision", "job")
    make_episode(
        job, "w", since=NOW - HOUR, kind="Workload", findings={"blockers": [queue]}, resource=""
    )
    see(west, kind, "uid-serve", body, at=NOW, namespace="vision-prod")
    row = find_pending("vision", "w", at=NOW, visibility=EVERYTHING)[0].row
    with at_most(8):
        (team,) = blocking_teams(row, NOW, visibility=EVERYTHING)
    assert [pod.pod for pod in team.listed] == ["serve-abc"]
    nobody = replace(row, blockers=(f"{queue}-other",))
    assert blocking_teams(nobody, NOW, visibility=EVERYTHING) == []


def test_nobody_is_in_front_of_what_names_nobody(portal: Portal) -> None:
    row = pending_now(NOW, visibility=EVERYTHING).rows[2]
    assert blocking_teams(row, NOW, visibility=EVERYTHING) == []


def test_the_typical_wait_is_that_of_the_same_requests(portal: Portal) -> None:
    train = make_workload(portal.clusters[0], "vision", "train")
    for minutes in (1, 2, 3, 4, 60):
        since = NOW - 10 * HOUR
        make_episode(
            train,
            f"done-{minutes}",
            since=since,
            until=since + timedelta(minutes=minutes),
            tier=portal.tiers[0],
        )
    with at_most(1):
        found = typical_queue_time("gold", "nvidia.com/gpu", 1.0, NOW)
    assert found is not None
    assert (found.p50_seconds, found.p95_seconds, found.count) == (180.0, 3600.0, 5)
    assert typical_queue_time("gold", "nvidia.com/gpu", 2.0, NOW) is None


def test_times_to_start_are_told_by_team_and_tier(portal: Portal) -> None:
    with at_most(4):
        by_team = time_to_start(DAY, by=PendingGrouping.TEAM, visibility=OUTSIDER)
    assert [(one.name, one.count, one.p50_seconds) for one in by_team] == [("vision", 1, 3600.0)]
    by_tier = time_to_start(DAY, by=PendingGrouping.TIER, visibility=OUTSIDER)
    assert [one.name for one in by_tier] == ["undetermined"]
    with pytest.raises(ValueError, match="cannot be had"):
        time_to_start(DAY, by=PendingGrouping.DAY, visibility=OUTSIDER)


def test_a_context_is_read_once_for_all_reads_of_a_page(portal: Portal) -> None:
    with at_most(3):
        context = NamespaceContext.over(DAY, now=NOW)
    reader = of(portal.vision)
    with at_most(2):
        page = pending_now(NOW, visibility=reader, context=context)
    with at_most(1):
        found = pending_sums(NOW, by=PendingGrouping.TEAM, visibility=reader, context=context)
    with at_most(1):
        time_to_start(DAY, by=PendingGrouping.TEAM, visibility=reader, context=context)
    with at_most(2):
        eviction_sums(DAY, by=PendingGrouping.TEAM, visibility=reader, context=context)
    with at_most(8):
        past = pending_history(DAY, now=NOW, visibility=reader, context=context)
    assert page == pending_now(NOW, visibility=reader)
    assert found == pending_sums(NOW, by=PendingGrouping.TEAM, visibility=reader)
    assert past == pending_history(DAY, now=NOW, visibility=reader)


def test_a_context_knows_whose_a_namespace_was_at_each_moment(portal: Portal) -> None:
    NamespaceTeam.objects.filter(pattern="vision").update(valid_to=NOW - 6 * HOUR)
    NamespaceTeam.objects.create(
        team=portal.speech, pattern="vision", position=1, valid_from=NOW - 6 * HOUR
    )
    context = NamespaceContext.over(DAY, now=NOW)
    for at, team in ((NOW - 7 * HOUR, "vision"), (NOW - 6 * HOUR, "speech"), (NOW, "speech")):
        owned = {(one.cluster, one.name): one.team for one in context.owned(at).values()}
        assert owned["west", "vision"] == team
    with pytest.raises(ValueError, match="is not within"):
        context.owned(NOW + HOUR)


def test_what_still_waits_is_found_before_any_number_that_is_over(portal: Portal) -> None:
    train = make_workload(portal.clusters[0], "vision", "train")
    for n in range(60):
        make_episode(train, f"gone-{n}", since=NOW - HOUR / 2, until=NOW - HOUR / 4)
    with at_most(6):
        found = find_pending("vision", "train", at=NOW, visibility=EVERYTHING)
    assert [one.row.name for one in found[:3]] == ["late", "train-2", "gone-0"]
    assert len(found) == 50
    with at_most(1):
        assert find_pending("vision", "nobody", at=NOW, visibility=EVERYTHING) == []


def test_evictions_are_summed_and_rated(portal: Portal) -> None:
    portal.collect(Window(NOW - 2 * HOUR, NOW))
    train = make_workload(portal.clusters[0], "vision", "train")
    gold = portal.tiers[0]
    make_eviction(train, "uid-1", at=NOW - HOUR, held=3 * NANO, tier=gold, by="speech/notes-0")
    make_eviction(train, "uid-2", at=NOW - 2 * HOUR, held=NANO, tier=gold, reclaimed=True)
    make_eviction(train, "uid-3", at=NOW - 30 * HOUR, held=NANO, tier=gold)
    with at_most(5):
        (found,) = eviction_sums(DAY, by=PendingGrouping.TIER, visibility=OUTSIDER)
    assert (found.name, found.pods, found.preempted, found.reclaimed) == ("gold", 2, 3 * NANO, NANO)
    assert found.rate == pytest.approx(4 / 12)
    (team,) = eviction_sums(DAY, by=PendingGrouping.TEAM, visibility=OUTSIDER)
    assert team.name == "vision"
    assert team.rate == pytest.approx(4 / 14)
    # Allocated hours are not kept by namespace.
    of_one = PendingFilters(namespace=("vision",))
    (part,) = eviction_sums(DAY, by=PendingGrouping.TIER, visibility=EVERYTHING, filters=of_one)
    assert (part.preempted, part.rate) == (3 * NANO, None)


def test_many_things_take_no_more_queries(portal: Portal) -> None:
    workloads = [make_workload(portal.clusters[0], f"vision-{n}", "w") for n in range(10)]
    make_many_waiting(workloads, 500, since=NOW - HOUR)
    with at_most(6):
        page = pending_now(NOW, visibility=of(portal.vision), page=PendingPage(size=50))
    assert len(page.rows) == 50
    with at_most(4):
        pending_sums(NOW, by=PendingGrouping.TEAM, visibility=OUTSIDER)
