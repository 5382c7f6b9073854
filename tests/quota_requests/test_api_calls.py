"""Under which version a queue is asked for, and what happens where that is not known."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import Struct, field

from apps.clusters.domain.observed.objects import ClusterQueueSnapshot, FlavorQuota, ObservedKind
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, QuotaWriter, Reply, Unanswered
from apps.quota_requests import services
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget
from apps.quota_requests.services.execution.api_calls import (
    DryRunResult,
    VersionUnknown,
    check,
    served_version,
)
from tests.clusters.fakes.fake_writer import FakeWriter
from tests.factories import make_cluster
from tests.quota_requests import recorded
from tests.quota_requests.portal import Portal, make_portal, make_sighting

CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
LOST = Reply(unanswered=Unanswered.LOST)


def group(*versions: str) -> Reply:
    return Reply(200, {"kind": "APIGroup", "versions": [{"version": one} for one in versions]})


@pytest.mark.parametrize(
    ("answer", "last", "version"),
    [
        pytest.param(group("v1beta1", "v1beta2"), "", "v1beta2", id="the newest of two"),
        pytest.param(group("v1beta1"), "v1beta2", "v1beta1", id="what is served now"),
        pytest.param(LOST, "v1beta1", "v1beta1", id="no answer, as it was seen last"),
        pytest.param(Reply(200), "v1beta1", "v1beta1", id="a page of a proxy"),
        pytest.param(Reply(403, {}), "v1beta1", "v1beta1", id="may not be asked"),
    ],
)
def test_a_queue_is_asked_for_in_a_version_that_is_known(
    answer: Reply, last: str, version: str
) -> None:
    assert served_version(FakeWriter(answer), CELL, last=last) == version


@pytest.mark.parametrize(
    ("answer", "lasting", "words"),
    [
        pytest.param(LOST, False, "could not be found out", id="no answer"),
        pytest.param(Reply(503, {}), False, "could not be found out", id="503"),
        pytest.param(Reply(404, {}), True, "does not have Kueue", id="no Kueue"),
        pytest.param(group("v1"), True, "does not offer Kueue as v1beta2", id="a newer one"),
    ],
)
def test_without_a_known_version_nothing_is_asked_for(
    answer: Reply, lasting: bool, words: str
) -> None:
    with pytest.raises(VersionUnknown, match=words) as unknown:
        served_version(FakeWriter(answer), CELL)
    assert unknown.value.lasting is lasting


def test_what_has_one_version_is_not_asked_about() -> None:
    server = FakeWriter(LOST)
    assert served_version(server, QuotaKeyTarget("a", "q", "requests.nvidia.com/gpu")) == ""
    assert server.asked == []


# ---------------------------------------------------------------- carried out


def started(portal: Portal) -> int:
    quotas = (FlavorQuota("a100", "nvidia.com/gpu", 6.0),)
    make_sighting(
        *(portal.cluster, ObservedKind.CLUSTER_QUEUE, "cq-a", ClusterQueueSnapshot(quotas=quotas)),
    )
    pk = portal.draft(by="ada")
    portal.of(pk)
    values: dict[str, Any] = {
        "source": "ClusterQueue",
        "namespace": "",
        "name": "cq-a",
        "key": "a100/nvidia.com/gpu",
        "state": RequestState.APPROVED.value,
    }
    type(portal.of(pk)).objects.filter(pk=pk).update(**values)
    portal.start(pk, confirmed=[])
    return pk


def carry_out(portal: Portal, pk: int, server: FakeWriter) -> str:
    def writer(_: Cluster) -> QuotaWriter:
        return server

    clients = ClusterClients(writer=writer)
    return services.carry_out(portal.execution(pk).pk, clock=portal.clock, clients=clients)


@pytest.mark.django_db
def test_a_version_that_is_not_known_is_waited_for_and_then_given_up() -> None:
    portal = make_portal(None)
    pk = started(portal)
    server = FakeWriter(LOST)
    turns = 0
    while (found := carry_out(portal, pk, server)) == "wait":
        turns += 1
        assert "nothing is written to it until" in portal.execution(pk).sentence
        portal.now = portal.execution(pk).next_at
    assert (found, turns) == ("failed", 11)
    assert set(server.asked) == {"GET /apis/kueue.x-k8s.io"}
    assert portal.of(pk).state == RequestState.FAILED


@pytest.mark.django_db
def test_a_cluster_without_kueue_fails_at_once_and_nothing_is_written() -> None:
    portal = make_portal(None)
    pk = started(portal)
    assert carry_out(portal, pk, FakeWriter(Reply(404, {}))) == "failed"
    assert portal.of(pk).outcome == "Nothing was written. The cluster does not have Kueue."


# ---------------------------------------------------------------- read where nothing is written


class Reading(Struct):
    """A server under the account that watches: objects by path, None for what is not there."""

    objects: Mapping[str, Mapping[str, Any]]
    asked: list[str] = field(default_factory=list)

    def get(self, path: str) -> Mapping[str, Any] | None:
        self.asked.append(path)
        return self.objects.get(path)

    def close(self) -> None:
        """Nothing to let go of."""


def read_by(server: Reading) -> DryRunResult:
    cluster = make_cluster("west", kubernetes={"api_server": "http://127.0.0.1:9"})
    clients = ClusterClients(kubernetes=lambda _: cast("ClusterSource", server))
    return check(cluster, CELL, before=quantity("2"), after=quantity("4"), clients=clients)


@pytest.mark.django_db
def test_the_file_for_a_queue_names_the_version_that_the_cluster_has() -> None:
    old = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/cq-a"
    groups = {"versions": [{"version": "v1beta1"}]}
    queue = recorded.cluster_queue("cq-a", "v1beta1")
    server = Reading({"/apis/kueue.x-k8s.io": groups, old: queue})
    found = read_by(server)
    assert found.patch_file is not None
    assert "version: v1beta1" in found.patch_file.how
    assert found.api_version == "kueue.x-k8s.io/v1beta1"
    assert server.asked[-1] == old


@pytest.mark.django_db
def test_where_kueue_is_not_there_no_queue_is_asked_for() -> None:
    server = Reading({})
    assert "The cluster does not have Kueue." in read_by(server).dry_run
    assert server.asked == ["/apis/kueue.x-k8s.io"]
