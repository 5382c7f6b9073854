"""What the doctor finds of the account that changes quotas."""

from copy import deepcopy

import pytest

from apps.clusters.models import Cluster
from apps.clusters.ports import SourceRejected
from apps.operations.domain.observations import LIMITS, changing
from apps.operations.services import run_doctor
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.operations.doctor_portal import AskedCluster, World, deny, make_clusters, world_of
from tests.operations.doctor_worlds import NOW
from tests.worlds import shared

pytestmark = pytest.mark.django_db


_clusters = shared(make_clusters)


@pytest.fixture
def world(_clusters: tuple[Cluster, Cluster], db: None) -> World:
    return world_of(deepcopy(_clusters))


# ---------------------------------------------------------------- the account that changes quotas

PATCHES = [("patch", *limit) for limit in LIMITS]


def found_of(world: World, *codes_of: str) -> list[tuple[str, str]]:
    diagnosis = run_doctor(NOW, clients=world.clients)
    return [(f.code, f.subject) for f in diagnosis.findings if f.code.startswith(codes_of)]


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        pytest.param(None, [], id="no-writer"),
        pytest.param(AskedCluster(given=PATCHES), [], id="just-enough"),
        pytest.param(AskedCluster(), [("writer-rights-missing", "")], id="no-patch"),
        pytest.param(
            AskedCluster(given=(*PATCHES, ("delete", "", "resourcequotas"))),
            [("rights-too-many", "writer")],
            id="deletes",
        ),
        pytest.param(
            AskedCluster(given=(*PATCHES, ("get", "", "secrets"))),
            [("rights-too-many", "writer")],
            id="secrets",
        ),
    ],
)
def test_the_account_that_changes_quotas_may_do_that_and_no_more(
    writer: AskedCluster | None, expected: list[tuple[str, str]], world: World
) -> None:
    world["west"].writer = writer
    assert found_of(world, "writer-", "rights-") == expected


def test_an_account_that_is_not_known_is_said_and_hides_nothing_else(world: World) -> None:
    deny(world, ("watch", "", "pods"))
    writer = AskedCluster()
    writer.fail("may", SourceRejected("HTTP 401: Unauthorized"))
    world["west"].writer = writer
    assert sorted(found_of(world, "writer-", "rbac-")) == [
        ("rbac-missing", ""),
        ("writer-rejected", ""),
    ]


def test_a_server_that_does_not_tell_of_rights_is_not_held_against_the_account(
    world: World,
) -> None:
    world["west"].writer = FakeCluster()
    assert found_of(world, "writer-", "rights-") == []


def test_a_reader_that_may_do_everything_is_told_in_one_line(world: World) -> None:
    world["west"].api = AskedCluster(given=(("*", "*", "*"), ("create", "", "pods")))
    diagnosis = run_doctor(NOW, clients=world.clients)
    (finding,) = [f for f in diagnosis.findings if f.code == "rights-too-many"]
    assert finding.subject == "reader"
    assert "may do everything" in finding.what
    assert "rbac-reader.yaml" in finding.fix


def test_rights_to_queues_are_needed_where_the_cluster_has_them() -> None:
    served = ["/api/v1/events", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues"]
    assert {right.words for right in changing(served)} == {
        *("get resourcequotas", "patch resourcequotas"),
        *("get clusterqueues.kueue.x-k8s.io", "patch clusterqueues.kueue.x-k8s.io"),
    }
