"""On the simulator's fault scenarios: the limit is changed, and what waited for it starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.domain.identity import Role
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, actor_of
from apps.quotas.domain.keys import QuotaRef
from tests.factories import make_user
from tests.pending.watched_lab import WatchedLab, watched_lab
from tests.simulator.applying import Kube
from tests.simulator.client import Served
from tests.simulator.only_faults import OnlyFaults, at_minute, faults_once
from tests.simulator.test_applying import running, soon

pytestmark = pytest.mark.django_db
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def only_faults() -> OnlyFaults:
    return faults_once()


@contextmanager
def lab_at(only_faults: OnlyFaults, minute: float) -> Iterator[WatchedLab]:
    """Serve the fault scenarios, with an account that may write; watched for the minutes before."""
    with watched_lab(only_faults, at_minute(minute - 2)) as lab:
        lab.cluster.kubernetes = {
            "api_server": lab.served.url,
            "writer": {"api_server": lab.served.url},
        }
        lab.cluster.save()
        lab.look()
        lab.served.clock.advance(120)
        lab.look()
        yield lab


class People:
    """An admin who asks and another who decides; no team leads the whole course."""

    def __init__(self) -> None:
        self.asks = self._actor("root")
        self.decides = self._actor("cleo")

    def _actor(self, name: str) -> Actor:
        return actor_of(make_user(name, Role.ADMIN), origin="127.0.0.1")


def asked(lab: WatchedLab, people: People, **values: str) -> int:
    now = lab.now()
    names = {name: values.pop(name) for name in QuotaRef._fields if name in values}
    ref = QuotaRef(**{"namespace": "", "cluster": "lab"} | names)
    given: Any = {"reason": "It waits.", "team": "everybody"} | values
    pk = services.create(
        services.RequestInput(ref, **given, until=now + timedelta(minutes=20)),
        by=people.asks,
        now=now,
    )
    version = services.submit(pk, by=people.asks, version=1, now=now)
    version = services.take(pk, by=people.decides, version=version, now=now)
    services.approve(pk, by=people.decides, version=version, now=now)
    return pk


def applied(lab: WatchedLab, people: People, pk: int) -> ChangeRequest:
    request = ChangeRequest.objects.get(pk=pk)
    confirmed = [one["manager"] for one in request.preview["owners"]]
    services.start(
        pk, by=people.decides, version=request.version, now=lab.now(), confirmed=confirmed
    )
    execution = Execution.objects.get(request=pk)
    assert services.carry_out(execution.pk, clock=lab.now) == "applied"
    return ChangeRequest.objects.get(pk=pk)


def hard_of(client: Served, namespace: str) -> str:
    quota = Kube(client).get("ResourceQuota", namespace, "gpus")
    return str(quota["spec"]["hard"][f"requests.{GPU}"])


def test_a_raised_quota_lets_the_pod_start_that_waited_for_it(only_faults: OnlyFaults) -> None:
    with lab_at(only_faults, 22) as lab:
        people, client = People(), lab.served
        assert len(running(client, "speech-lab", "voice-serve-")) < 3
        pk = asked(
            *(lab, people),
            source="ResourceQuota",
            namespace="speech-lab",
            name="gpus",
            key=f"requests.{GPU}",
            before="2",
            after="3",
        )
        preview = ChangeRequest.objects.get(pk=pk).preview
        assert preview["dry_run_passed"] is True
        (start,) = preview["starts"]
        assert start["name"].startswith("voice-serve-")
        assert (start["admitted"], start["free"], start["left"]) == (1, 1, 0)
        assert hard_of(client, "speech-lab") == "2", "a dry run changes nothing"
        assert applied(lab, people, pk).state == RequestState.APPLIED
        assert hard_of(client, "speech-lab") == "3"
        assert any(soon(client, "speech-lab", "voice-serve-", 3))
        lab.look()
        lab.served.clock.advance(60)
        lab.look()
        assert services.detect_drift(now=lab.now()) == 0
        lab.served.clock.advance(20 * 60)
        lab.look()
        assert services.revert_due(now=lab.now()) == 1
        execution = Execution.objects.filter(request=pk).latest("pk")
        services.carry_out(execution.pk, clock=lab.now)
        assert ChangeRequest.objects.get(pk=pk).state == RequestState.REVERTED
        assert hard_of(client, "speech-lab") == "2"


def test_a_raised_nominal_quota_lets_the_queued_job_start(only_faults: OnlyFaults) -> None:
    with lab_at(only_faults, 16) as lab:
        people, client = People(), lab.served
        assert running(client, "genomics-lab", "align-more") == []
        pk = asked(
            *(lab, people),
            source="ClusterQueue",
            namespace="",
            name="lab",
            key=f"a10/{GPU}",
            before="4",
            after="6",
        )
        assert applied(lab, people, pk).state == RequestState.APPLIED
        assert any(soon(client, "genomics-lab", "align-more", 1))
