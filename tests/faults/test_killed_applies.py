"""Applying a change to a cluster that is killed at any moment: the cluster is changed once."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec import Struct
from pytest_django import DjangoDbBlocker

from apps.accounts.domain.identity import Role
from apps.accounts.models import AuditEntry
from apps.clusters.models import Cluster
from apps.operations.services import load_catalog
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.services.execution.executor import LEASE
from apps.quotas.domain.keys import QuotaRef
from tests.factories import make_user
from tests.faults.collecting import Collecting, catalog, doors
from tests.faults.facts import Facts
from tests.faults.kills import Killable, connected_to, database
from tests.faults.proxy import Proxy
from tests.faults.stages import messages, portal_at
from tests.simulator.applying import Kube
from tests.simulator.client import Client
from tests.simulator.only_faults import at_minute

pytestmark = [pytest.mark.django_db, pytest.mark.long]

GPU = "nvidia.com/gpu"
ROUNDS = 8


class Change(Struct, frozen=True):
    """A limit that is raised at a minute of the cycle; `team` asks for it."""

    minute: int
    ref: QuotaRef
    team: str
    before: str
    after: str

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(at_minute(self.minute), UTC)

    def limit(self, cluster: Client) -> str:
        """Return the limit that the API server has."""
        found = Kube(cluster).get(self.ref.source, self.ref.namespace, self.ref.name)
        if self.ref.source == "ResourceQuota":
            return str(found["spec"]["hard"][self.ref.key])
        flavor = self.ref.key.partition("/")[0]
        (amount,) = (
            resource["nominalQuota"]
            for group in found["spec"]["resourceGroups"]
            for one in group["flavors"]
            for resource in one["resources"]
            if one["name"] == flavor and resource["name"] == GPU
        )
        return str(amount)


QUOTA = Change(
    22,
    QuotaRef("ResourceQuota", "speech-lab", "gpus", f"requests.{GPU}", "lab"),
    team="speech",
    before="2",
    after="3",
)
QUEUE = Change(
    16, QuotaRef("ClusterQueue", "", "lab", f"a10/{GPU}", "lab"), "genomics", before="4", after="6"
)


def approved(portal: Collecting, change: Change) -> None:
    """Let one admin ask for a change and another approve it and start to apply it."""
    asks, decides = (actor_of(make_user(name, Role.ADMIN), origin="") for name in ("root", "cleo"))
    now = portal.now()
    asked = services.RequestInput(
        *(change.ref,),
        before=change.before,
        after=change.after,
        reason="It waits.",
        team=change.team,
        until=now + timedelta(days=1),
    )
    pk = services.create(asked, by=asks, now=now)
    version = services.submit(pk, by=asks, version=1, now=now)
    version = services.take(pk, by=decides, version=version, now=now)
    services.approve(pk, by=decides, version=version, now=now)
    request = ChangeRequest.objects.get(pk=pk)
    owners = [one["manager"] for one in request.preview["owners"]]
    services.start(pk, by=decides, version=request.version, now=now, confirmed=owners)


@contextmanager
def started(door: Proxy, folder: Path, change: Change) -> Iterator[str]:
    """Yield the name of a database in which a change is about to be carried out."""
    with database(folder) as name:
        before = change.at - timedelta(minutes=2)
        with portal_at(door, before) as portal, connected_to(name), messages():
            text = catalog(door.url).replace(
                f'{{api_server: "{door.url}"}}',
                f'{{api_server: "{door.url}", writer: {{api_server: "{door.url}"}}}}',
            )
            load_catalog(text, "catalog.yaml", now=before, dry_run=False)
            for at in (before, change.at):
                portal.move_to(at)
                assert portal.look()
            approved(portal, change)
        yield name


def carry_out(portal: Collecting) -> None:
    services.carry_out(Execution.objects.get().pk, clock=portal.now)


def carry_on(portal: Collecting) -> None:
    """Let beat look when the lease is over and later on, and workers do what it says."""
    for _ in range(ROUNDS):
        if Execution.objects.get().ended_at is not None:
            return
        portal.clock.advance(LEASE.total_seconds() + 1)
        with messages() as told:
            services.schedule_executions(now=portal.now())
        for message in told:
            services.carry_out(message["execution_id"], clock=portal.now)
    raise AssertionError(f"it does not end: {Execution.objects.get().sentence}")


def result(change: Change, portal: Collecting) -> Facts:
    """Return how the change stands in portal, audit and cluster; check that it was made once."""
    writes = [
        path for method, path in portal.door.passed if method == "PATCH" and "dryRun" not in path
    ]
    request, execution = ChangeRequest.objects.get(), Execution.objects.get()
    assert request.state == RequestState.APPLIED
    assert len(writes) == 1
    outcome = request.outcome.partition(":")[0].rstrip(".")
    assert services.verify().holds
    told = AuditEntry.objects.filter(after__contains=f'"execution":{execution.pk},')
    return {
        # Behind a colon it says how that was found out.
        "request": [(request.state, outcome, execution.end, execution.mark)],
        "audit": list(told.order_by("pk").values_list("action", "subject")),
        "cluster": [(change.limit(Client(portal.door.target)),)],
    }


@contextmanager
def applies(
    folder: Path, blocker: DjangoDbBlocker, change: Change
) -> Iterator[Killable[Collecting]]:
    with blocker.unblock(), doors() as door, started(door, folder, change) as base:
        yield Killable(
            *(door, folder, base, partial(portal_at, door, change.at)),
            act=carry_out,
            go_on=carry_on,
            look=partial(result, change),
        )


@pytest.fixture(
    scope="module", params=[pytest.param(QUOTA, id="quota"), pytest.param(QUEUE, id="queue")]
)
def apply(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Killable[Collecting]]:
    with applies(tmp_path_factory.mktemp("databases"), django_db_blocker, request.param) as made:
        yield made


def test_a_change_whose_worker_is_killed_is_made_once(apply: Killable[Collecting]) -> None:
    assert Cluster.objects.count() == 0, "what is killed works on databases of its own"
    apply.check(most=3)


@pytest.mark.exhaustive
def test_a_worker_is_killed_at_each_statement_and_request(apply: Killable[Collecting]) -> None:
    apply.check(most=200)
