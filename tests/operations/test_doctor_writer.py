"""What the doctor finds of the account that changes quotas."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from apps.accounts.permissions import EVERYTHING
from apps.clusters import gateways
from apps.clusters.domain.observed.objects import ClusterQueueSnapshot, ObservedKind
from apps.clusters.models import Cluster, ObservedObject
from apps.clusters.ports import Reply, SourceRejected, Unanswered
from apps.operations.domain.observations import LIMITS, changing
from apps.operations.models import DoctorCheck
from apps.operations.selectors import open_findings
from apps.operations.services import examine_writers, run_doctor
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.fakes.fake_writer import FakeWriter
from tests.operations.doctor_portal import (
    AskedCluster,
    Place,
    World,
    deny,
    make_clusters,
    see_quotas,
    world_of,
)
from tests.operations.doctor_sources import NOW
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db


_clusters = shared(make_clusters)
world = copy_of("_clusters", world_of)


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


# ---------------------------------------------------------------- the policy that limits it

REFUSED = Reply(
    422,
    {
        "kind": "Status",
        "status": "Failure",
        "message": (
            'resourcequotas "gpu" is forbidden: ValidatingAdmissionPolicy '
            "'gpuportal-quota-writer' with binding 'gpuportal-quota-writer' denied request: the "
            "portal changes amounts only, no label, annotation, finalizer or owner"
        ),
        "reason": "Invalid",
        "code": 422,
    },
)
"""As a server with the policy answers."""
FORBIDDEN = Reply(
    403,
    {
        "kind": "Status",
        "message": (
            'resourcequotas "gpu" is forbidden: User "system:serviceaccount:gpuportal:other" '
            'cannot patch resource "resourcequotas" in API group "" in the namespace "vision"'
        ),
        "reason": "Forbidden",
        "code": 403,
    },
)
UNCHECKED = "whether a policy limits the account that changes quotas"


def with_writer(world: World) -> Place:
    """Name a writer in the catalog's entry of west."""
    west = world["west"]
    west.cluster.kubernetes = {"in_cluster": True, "writer": {"in_cluster": True}}
    west.cluster.save()
    return west


def found_codes() -> list[str]:
    return [row.code for row in open_findings(visibility=EVERYTHING)]


@pytest.mark.parametrize(
    ("reply", "found", "checked"),
    [
        pytest.param(REFUSED, [], True, id="refused"),
        pytest.param(Reply(200, {"kind": "ResourceQuota"}), ["writer-unlimited"], True, id="taken"),
        pytest.param(FORBIDDEN, [], False, id="no-right"),
        pytest.param(Reply(unanswered=Unanswered.LOST), [], False, id="no-answer"),
    ],
)
def test_a_policy_must_refuse_what_the_portal_never_changes(
    reply: Reply, found: list[str], *, checked: bool, world: World
) -> None:
    asked = FakeWriter(reply)
    with_writer(world)
    world["west"].writer, world["west"].quota_writer = AskedCluster(given=PATCHES), asked
    diagnosis = run_doctor(NOW, clients=world.clients)
    assert [f.code for f in diagnosis.findings] == found
    assert (UNCHECKED in diagnosis.clusters[1].unasked) is not checked
    assert asked.asked == ["PATCH /api/v1/namespaces/vision/resourcequotas/gpu"]
    (sent,) = asked.sent
    assert sent.query["dryRun"] == "All"
    assert sent.headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(sent.body).keys() == {"metadata"}


def test_where_kueue_alone_limits_a_queue_is_asked_for_as_the_server_has_it(world: World) -> None:
    west = with_writer(world)
    see_quotas(west.cluster)
    ObservedObject.objects.create(
        cluster=west.cluster,
        kind=ObservedKind.CLUSTER_QUEUE.value,
        uid="queue",
        name="research",
        first_at=NOW,
        changed_at=NOW,
        body=to_builtins(ClusterQueueSnapshot()),
    )
    west.writer, west.quota_writer = AskedCluster(given=PATCHES), FakeWriter(REFUSED)
    run_doctor(NOW, clients=world.clients)
    assert west.quota_writer.asked == [], "the server has no Kueue any more"
    group = {"metadata": {"name": "kueue.x-k8s.io", "uid": "kueue"}}
    west.writer.put("/apis", {**group, "versions": [{"version": "v1beta2"}]})
    run_doctor(NOW, clients=world.clients)
    assert west.quota_writer.asked == ["PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"]


def test_a_process_without_the_account_says_so_and_its_worker_looks(world: World) -> None:
    west = with_writer(world)
    west.writer, west.quota_writer = AskedCluster(), FakeWriter(FORBIDDEN)
    west.elsewhere = frozenset({"writer"})
    diagnosis = run_doctor(NOW, clients=world.clients)
    assert diagnosis.findings == ()
    told = "the writer account (this process has no credentials of it)"
    assert told in diagnosis.clusters[1].unasked
    assert told not in DoctorCheck.objects.get(cluster=west.cluster).unread
    assert west.writer.calls == []
    # The worker that has it looks, whatever it holds.
    assert examine_writers(NOW, clients=world.clients) == 1
    assert found_codes() == ["writer-rights-missing"]
    assert UNCHECKED in DoctorCheck.objects.get(cluster=west.cluster).unread
    # And the other one takes nothing back of that.
    run_doctor(NOW, clients=world.clients)
    assert found_codes() == ["writer-rights-missing"]
    assert UNCHECKED in DoctorCheck.objects.get(cluster=west.cluster).unread
    west.writer, west.quota_writer = AskedCluster(given=PATCHES), FakeWriter(REFUSED)
    assert examine_writers(NOW, clients=world.clients) == 0
    assert found_codes() == []
    assert UNCHECKED not in DoctorCheck.objects.get(cluster=west.cluster).unread


def test_a_pod_of_the_writer_does_not_judge_the_reader(world: World) -> None:
    west = world["west"]
    west.api = AskedCluster(given=PATCHES)
    west.elsewhere = frozenset({"reader"})
    assert run_doctor(NOW, clients=world.clients).findings == ()
    west.elsewhere = frozenset()
    assert found_of(world, "rights-") == [("rights-too-many", "reader")]


def test_accounts_are_where_their_credentials_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "WRITER_TOKEN_FOLDER", str(tmp_path))

    def elsewhere(writer: dict[str, Any]) -> set[str]:
        entry = {"in_cluster": True, "writer": writer}
        return set(gateways.accounts_elsewhere(Cluster(kubernetes=entry)))

    config = tmp_path / "config"
    assert elsewhere({"in_cluster": True}) == {"writer"}
    assert elsewhere({"kubeconfig": str(config)}) == {"writer"}
    assert elsewhere({"api_server": "https://x", "bearer_token_env": "NO_SUCH"}) == {"writer"}
    monkeypatch.setenv("NO_SUCH", "token")
    assert elsewhere({"api_server": "https://x", "bearer_token_env": "NO_SUCH"}) == set()
    config.touch()
    assert elsewhere({"kubeconfig": str(config)}) == set()
    (tmp_path / "token").touch()
    assert elsewhere({"in_cluster": True}) == {"reader"}
