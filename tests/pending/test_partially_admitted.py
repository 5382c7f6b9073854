"""Jobs of which a queue admitted a part."""

import pytest

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.observed.objects import (
    Body,
    ControllerSnapshot,
    ObservedKind,
    PodGroupSnapshot,
    PodSet,
    PodSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.models import GpuModel, Pod
from apps.pending.selectors import partial_gangs
from apps.pending.selectors.explain import explain_partial
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, evaluate
from apps.usage.models import PodHour
from tests.factories import Portal, make_pod, make_workload
from tests.pending.pending_portal import HOUR, NOW, at_most, make_waiting_portal, of
from tests.pending.rows import make_episode, see
from tests.shared_rows import copy_of, shared

_waiting = shared(make_waiting_portal)
portal = copy_of("_waiting")


def make_halved(portal: Portal, kind: str, name: str = "gang") -> None:
    """Make a workload of which one pod holds 2 GPUs for three hours and one waits for two."""
    gang = make_workload(portal.clusters[0], "vision", name, kind)
    make_pod(gang, f"{name}-0", created_at=NOW - 3 * HOUR, node_gpus=portal.node_gpus[0], units=2.0)
    make_pod(gang, f"{name}-1", created_at=NOW - 2 * HOUR, units=2.0)
    make_episode(gang, f"{name}-1", since=NOW - 2 * HOUR, units=2.0)


def partial_names(visibility: Visibility = EVERYTHING) -> list[str]:
    return [gang.workload for gang in partial_gangs(NOW, visibility=visibility)]


def test_partially_admitted_jobs_are_shown_to_their_team(portal: Portal) -> None:
    make_halved(portal, "PyTorchJob")
    with at_most(13):
        found = partial_gangs(NOW, visibility=of(portal.vision))
    one = next(gang for gang in found if gang.workload == "PyTorchJob/gang")
    assert (one.holding, one.waiting, one.held, one.cause) == (1, 1, 4 * NANO, "capacity")
    assert (one.pods, one.holding_gpu_equivalents) == (("gang-0",), 2.0)
    assert partial_gangs(NOW, visibility=of(portal.speech)) == []
    for figure, value in {"partial_gpu_hours": 4.0, "partial_gpus": 2.0}.items():
        explained = explain_job(figure, of(portal.vision))
        assert explained is not None
        assert explained.value == evaluate(explained) == value
        assert explain_job(figure, of(portal.speech)) is None


def explain_job(figure: str, visibility: Visibility) -> Explained | None:
    names = {"cluster": "west", "namespace": "vision", "workload": "PyTorchJob/gang"}
    return explain_partial(figure, NOW, **names, visibility=visibility)


@pytest.mark.parametrize(
    "kind", ["Deployment", "CronJob", "Job", "StatefulSet", "ReplicaSet", "DaemonSet", "RayJob"]
)
def test_pods_that_need_not_run_together_are_no_partially_admitted_job(
    portal: Portal, kind: str
) -> None:
    make_halved(portal, kind)
    assert partial_names() == []


def waiting_pod(group: str, kind: str) -> PodSnapshot:
    return PodSnapshot(1.0, owner_kind=kind, owner="gang", group=group)


TWO_SETS = (PodSet("head", 1), PodSet("workers", 4))


@pytest.mark.parametrize(
    ("kind", "objects", "partial"),
    [
        pytest.param(
            "Job",
            [(ObservedKind.JOB, "gang", ControllerSnapshot(1.0, 2, 2, together=True))],
            True,
            id="indexed Job",
        ),
        pytest.param(
            "Job",
            [(ObservedKind.JOB, "gang", ControllerSnapshot(1.0, 2, 2))],
            False,
            id="Job of a work queue",
        ),
        pytest.param(
            "CronJob",
            [
                (
                    ObservedKind.JOB,
                    "gang-1",
                    ControllerSnapshot(
                        1.0, 2, 2, owner_kind="CronJob", owner="gang", together=True
                    ),
                )
            ],
            False,
            id="runs of a CronJob",
        ),
        pytest.param(
            "Job",
            [
                (ObservedKind.POD, "gang-1", waiting_pod("g", "Job")),
                (ObservedKind.VOLCANO_POD_GROUP, "g", PodGroupSnapshot(1.0, min_member=2)),
            ],
            True,
            id="PodGroup that lacks pods",
        ),
        pytest.param(
            "Deployment",
            [
                (ObservedKind.POD, "gang-1", waiting_pod("g", "Deployment")),
                (ObservedKind.VOLCANO_POD_GROUP, "g", PodGroupSnapshot(1.0, min_member=1)),
            ],
            False,
            id="PodGroup that has all it needs",
        ),
        pytest.param(
            "PyTorchJob",
            [
                (ObservedKind.POD, "gang-1", waiting_pod("g", "PyTorchJob")),
                (ObservedKind.COSCHEDULING_POD_GROUP, "g", PodGroupSnapshot(1.0, min_member=1)),
            ],
            False,
            id="elastic job",
        ),
        pytest.param(
            "Job",
            [(ObservedKind.POD, "gang-1", waiting_pod("g", "Job"))],
            True,
            id="group of pods of Kueue",
        ),
        pytest.param(
            "RayCluster",
            [
                (
                    ObservedKind.KUEUE_WORKLOAD,
                    "wl",
                    WorkloadSnapshot(1.0, owner_kind="RayCluster", owner="gang", pod_sets=TWO_SETS),
                )
            ],
            True,
            id="Workload with several pod sets",
        ),
        pytest.param(
            "Job",
            [
                (
                    ObservedKind.KUEUE_WORKLOAD,
                    "wl",
                    WorkloadSnapshot(1.0, owner_kind="Job", owner="gang", pod_sets=TWO_SETS[1:]),
                )
            ],
            False,
            id="Workload with one pod set",
        ),
    ],
)
def test_the_api_tells_which_pods_must_run_together(
    portal: Portal, kind: str, objects: list[tuple[ObservedKind, str, Body]], partial: bool
) -> None:
    make_halved(portal, kind)
    for of_kind, name, body in objects:
        see(portal.clusters[0], of_kind, f"uid-{name}", body, at=NOW, name=name)
    assert partial_names() == ([f"{kind}/gang"] if partial else [])


def test_a_job_that_is_busy_does_not_wait_for_its_other_pods(portal: Portal) -> None:
    serve = make_workload(portal.clusters[0], "vision", "serve", "MPIJob")
    make_pod(serve, "serve-0", created_at=NOW - 3 * HOUR, node_gpus=portal.node_gpus[0], units=2.0)
    make_pod(serve, "serve-1", created_at=NOW - 2 * HOUR, units=2.0)
    make_episode(serve, "serve-1", since=NOW - 2 * HOUR, units=2.0)
    PodHour.objects.create(
        cluster=portal.clusters[0],
        hour=NOW - HOUR,
        pod=Pod.objects.get(name="serve-0"),
        workload=serve,
        namespace=serve.namespace,
        team=portal.vision,
        tier=portal.tiers[0],
        gpu_model=GpuModel.objects.create(name="a model"),
        allocated=2 * NANO,
        busy=NANO,
    )
    assert partial_names() == []
