"""The pages of a workload and of a pod: lives, and what is not known."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.test import Client

from apps.accounts.models import User
from apps.clusters.models import Node, NodeInterval, Pod
from apps.usage.models import SavedStates
from tests.factories import Portal, make_pod, make_workload
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

UNCOLLECTED = "first=2025-10-21&last=2025-10-22"
NOT_STORED = "No data for these hours: too recent, not collected or no longer stored."


def test_a_pod_page_tells_its_life(admin: Client) -> None:
    page = text_of(admin, f"/pods/west/uid-train-2/?{HOURLY}")
    life = tables_of(page)["life"].rows
    assert [row[0].text for row in life[1:]] == ["pending"]
    assert "not bound" in page
    ran = tables_of(text_of(admin, f"/pods/west/uid-train-0/?{HOURLY}"))["life"].rows
    assert [row[0].text for row in ran[1:]] == ["pending", "starting", "running"]


def test_a_pod_page_tells_its_last_checkpoint_and_source(portal: Portal, admin: Client) -> None:
    address = f"/pods/west/uid-train-0/?{HOURLY}"
    assert "No checkpoint is known" in text_of(admin, address)
    saved = datetime(2025, 10, 25, 6, tzinfo=UTC)
    pod = Pod.objects.get(uid="uid-train-0")
    Pod.objects.filter(pk=pod.pk).update(checkpoints=[saved.timestamp()])
    assert "25 Oct 2025 08:00</time>, told by its annotation." in text_of(admin, address)
    SavedStates.objects.create(pod=pod, times=[saved.timestamp() + 3600])
    assert "25 Oct 2025 09:00</time>, told by a metric." in text_of(admin, address)


def test_a_pod_that_was_deleted_while_it_waited_waits_no_longer(
    portal: Portal, admin: Client
) -> None:
    created = datetime(2025, 10, 25, 6, tzinfo=UTC)
    work = make_workload(portal.clusters[0], "vision", "gave-up")
    make_pod(work, "gave-up", created_at=created, ended_at=created + timedelta(minutes=5))
    life = tables_of(text_of(admin, f"/pods/west/uid-gave-up/?{HOURLY}"))["life"].rows
    assert [cell.text for cell in life[1]][:4] == [
        "pending",
        "25 Oct 2025 08:00",
        "25 Oct 2025 08:05",
        "5m 0s",
    ]
    address = f"/workloads/west/vision/Job/gave-up/?{HOURLY}&format=csv&table=pods"
    (row,) = records_of(admin, address)
    assert (row["wait_seconds"], row["gpu_equivalents"]) == ("300", "1")
    # As a pod is whose ResourceClaims nobody saw.
    Pod.objects.filter(uid="uid-gave-up").update(resource="", units=0.0, gpu_equivalents=0.0)
    (row,) = records_of(admin, address)
    assert (row["units"], row["gpu_equivalents"]) == ("", "")
    assert "<dt>Requests</dt><dd>no data</dd>" in text_of(admin, "/pods/west/uid-gave-up/")


def test_a_pod_whose_hours_are_not_known_is_not_said_to_have_held_nothing(admin: Client) -> None:
    page = text_of(admin, f"/pods/west/uid-train-0/?{UNCOLLECTED}")
    assert NOT_STORED in page
    assert "held no GPU" not in page
    waiting = text_of(admin, f"/pods/west/uid-train-2/?{UNCOLLECTED}")
    assert "It held no GPU in this window" in waiting
    assert NOT_STORED not in waiting


def test_what_pods_held_in_hours_not_known_is_a_dash_and_an_empty_cell(admin: Client) -> None:
    address = f"/workloads/west/vision/Job/train/?tab=pods&{UNCOLLECTED}"
    assert NOT_STORED in text_of(admin, address.replace("tab=pods&", ""))
    page = text_of(admin, address)
    assert "This workload held no GPU" not in page
    head, *rows = tables_of(page)["pods"].rows
    place = next(n for n, cell in enumerate(head) if cell.text.startswith("Allocated"))
    assert {row[0].text: row[place].text for row in rows} == {
        "train-0": "–",
        "train-1": "–",
        "train-2": "0.0",
    }
    held = {
        row["pod"]: (row["allocated_gpu_hours"], row["busy_gpu_hours"], row["coverage_ratio"])
        for row in records_of(admin, f"{address}&format=csv&table=pods")
    }
    assert held == {"train-0": ("", "", ""), "train-1": ("", "", ""), "train-2": ("0", "0", "")}


def test_a_pod_says_the_most_memory_it_took_where_that_is_known(admin: Client) -> None:
    said = "Peak GPU memory on one device:"
    assert f"{said} 100 MiB." in text_of(admin, f"/pods/west/uid-train-0/?{HOURLY}")
    early = "/pods/west/uid-train-0/?first=2025-09-01&last=2025-09-02"
    assert said not in text_of(admin, early)


def make_shared(portal: Portal, units: int) -> None:
    """Say that the GPUs of west-1 are cut into four shares each."""
    NodeInterval.objects.create(
        node=Node.objects.get(cluster=portal.clusters[0], name="west-1"),
        start=datetime(2025, 10, 20, tzinfo=UTC),
        ready=True,
        schedulable=True,
        capacity={"nvidia.com/gpu": units},
        allocatable={"nvidia.com/gpu": units},
        labels={"nvidia.com/gpu.replicas": "4"},
    )


def test_a_pod_on_gpus_of_its_own_has_nobody_beside_it(admin: Client) -> None:
    assert 'id="beside"' not in text_of(admin, f"/pods/west/uid-train-0/?{HOURLY}")


def test_a_pod_on_shared_gpus_names_who_may_have_been_beside_it(
    portal: Portal, admin: Client
) -> None:
    make_shared(portal, units=32)
    page = text_of(admin, f"/pods/west/uid-train-0/?{HOURLY}")
    _, *rows = tables_of(page)["beside"].rows
    assert [[cell.text for cell in row][:3] for row in rows] == [
        ["notes-0", "speech", "speech"],
        ["serve-abc", "vision-prod", "vision"],
    ]
    assert "The node has 8 such devices" in page
    assert "may have shared a GPU with this pod" in page


def test_pods_of_other_teams_beside_a_pod_are_only_counted(
    portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    make_shared(portal, units=4)
    page = text_of(signed_in(portal.ada), f"/pods/west/uid-train-0/?{HOURLY}")
    assert "serve-abc" in page
    assert "notes-0" not in page
    assert "And 1 pod of other teams held shares at the same time." in page
    assert "so these pods were on the same one" in page
