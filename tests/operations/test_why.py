"""`why NAMESPACE/NAME`: the portal's answer in a terminal."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.clusters.models import WatchIssue
from tests.factories import Portal, make_portal, make_workload
from tests.pending.rows import findings, make_episode, make_looked
from tests.shared_rows import copy_of, shared

HOUR = timedelta(hours=1)


def why(name: str, **options: str) -> str:
    out = StringIO()
    call_command("why", name, stdout=out, **options)
    return out.getvalue()


def fill() -> Portal:
    now = datetime.now(UTC)
    portal = make_portal(since=now - 48 * HOUR)
    west, east = portal.clusters
    for cluster in (west, east):
        make_looked(cluster, now)
    train = make_workload(west, "vision", "train")
    for name in ("train-8", "train-9"):
        make_episode(
            train,
            name,
            since=now - 2 * HOUR,
            tier=portal.tiers[0],
            units=4.0,
            detail="fragmented",
            message="0/7 nodes are available: 5 Insufficient nvidia.com/gpu.",
            findings=findings(
                "Requests 4 nvidia.com/gpu; the most free on one node is 3.",
                node_reasons={"Insufficient nvidia.com/gpu": 5},
                suggestions=[{"action": "free", "text": "Free 1 on node a.", "change": {}}],
                context=["pod didn't trigger scale-up: max node group size reached"],
            ),
            intervals=[(now - 2 * HOUR, "queue", "pending"), (now - HOUR, "capacity", "pending")],
        )
    make_episode(
        make_workload(west, "vision", "done"), "done-0", since=now - 9 * HOUR, until=now - 8 * HOUR
    )
    return portal


_portal = shared(fill)
portal = copy_of("_portal")


def test_it_says_why_what_fixes_and_since_when(portal: Portal) -> None:
    text = why("vision/train-9")
    for words in (
        "Pod west/vision/train-9 has been pending since",
        "requests 4 × nvidia.com/gpu, 4 GPUs, tier gold, team vision.",
        "capacity (fragmented): Requests 4 nvidia.com/gpu; the most free on one node is 3.",
        "1. Free 1 on node a.",
        "0/7 nodes are available: 5 Insufficient nvidia.com/gpu.",
        "5 nodes: Insufficient nvidia.com/gpu",
        "max node group size reached",
        ": queue, 1h 0m",
        ": capacity, 1h ",  # the world may be some minutes old by now
    ):
        assert words in text
    assert "train-8" not in text


def test_a_controllers_name_gives_all_that_wait(portal: Portal) -> None:
    text = why("vision/train")
    assert "train-8" in text
    assert "train-9" in text


def test_what_is_over_is_said_to_be_over(portal: Portal) -> None:
    text = why("vision/done-0")
    assert "started after 1h 0m." in text
    assert "How to fix" not in text


def test_a_pod_that_never_waited_runs(portal: Portal) -> None:
    running = next(pod for pod in portal.pods if pod.started_at is not None)
    name = f"{running.workload.namespace.name}/{running.name}"
    assert "is not pending: it runs since" in why(name)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("vision/nothing", {}, "knows no pod or controller vision/nothing"),
        ("vision/train-9", {"cluster": "east"}, "on east"),
        ("vision", {}, "is not NAMESPACE/NAME"),
    ],
)
def test_what_is_not_known_is_an_error_that_says_what_to_do(
    portal: Portal, name: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(CommandError, match=words):
        why(name, **options)


def test_an_unwatched_cluster_is_said_to_be_unwatched(portal: Portal) -> None:
    make_looked(portal.clusters[0], datetime.now(UTC) - 3 * HOUR)
    assert "The cluster is not watched now: this was so at" in why("vision/train-9")


def test_what_may_not_be_read_any_more_is_as_of_then(portal: Portal) -> None:
    now = datetime.now(UTC)
    west = portal.clusters[0]
    make_episode(make_workload(west, "vision", "jobs"), "jobs", since=now - 5 * HOUR, kind="Job")
    WatchIssue.objects.create(
        cluster=west, subject="waiting:jobs", text="May not be read.", since=now - 4 * HOUR
    )
    assert "The cluster is not watched now" in why("vision/jobs")
    assert "The cluster is not watched now" not in why("vision/train-9")


def test_what_users_wrote_does_not_steer_the_terminal(portal: Portal) -> None:
    west = portal.clusters[0]
    make_episode(
        make_workload(west, "vision", "esc"),
        "esc",
        since=datetime.now(UTC) - HOUR,
        findings=findings("Pulls \x1b[2J\x1b]0;title\x07the image."),
        message="\x1b[31mred\u202e",
        detail="\x9b1m",
        resource="nvidia.com/gpu\x1b[0m",
    )
    text = why("vision/esc")
    assert {char for char in text if not char.isprintable()} == {"\n"}
    assert "the image." in text


def test_typical_waits_are_of_pods_of_its_cluster(portal: Portal) -> None:
    now = datetime.now(UTC)
    west, east = portal.clusters
    for cluster, minutes in ((west, 10), (east, 100)):
        began = make_workload(cluster, "vision", "began")
        for number in range(5):
            make_episode(
                began,
                f"{cluster.name}-{number}",
                since=now - 9 * HOUR,
                until=now - 9 * HOUR + timedelta(minutes=minutes),
                tier=portal.tiers[0],
                units=4.0,
            )
    made = make_workload(west, "vision", "held")
    make_episode(made, "held", since=now - HOUR, kind="Job", tier=portal.tiers[0], units=4.0)
    assert "Queue time of 5 such requests of the last 30 days: p50 10m 0s" in why("vision/train-9")
    assert "such requests" not in why("vision/held")
