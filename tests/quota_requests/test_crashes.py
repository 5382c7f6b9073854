"""A worker that is killed at any step: nothing is lost, done twice or half done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from msgspec import Struct

from apps.accounts.models import AuditEntry
from apps.clusters.gateways import ClusterClients
from apps.clusters.ports import Reply
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.services.execution.executor import LEASE
from tests.quota_requests import recorded
from tests.quota_requests.portal import KEY, Portal, clients_through, served_portal

pytestmark = [pytest.mark.django_db, pytest.mark.long]
WRITES = ("INSERT", "UPDATE", "DELETE")


class Killed(BaseException):
    """The worker died: nothing that it would have done after this is done."""


class Fuse(Struct):
    """Counts the steps of a worker, and kills it at one of them; `then` happens at its death."""

    at: int = 0
    steps: int = 0
    then: Callable[[], None] | None = None

    def tick(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            if self.then is not None:
                self.then()
            raise Killed

    def statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Step before and after each write to the database, as it is on its way."""
        writes = sql.lstrip().upper().startswith(WRITES)
        if writes:
            self.tick()
        found = execute(sql, params, many, context)
        if writes:
            self.tick()
        return found

    def clients(self) -> ClusterClients:
        """Step before and after each request to the API server."""

        def fused(send: Callable[..., Reply], *args: Any, **kwargs: Any) -> Reply:
            self.tick()
            reply = send(*args, **kwargs)
            self.tick()
            return reply

        return clients_through(fused)


def work(portal: Portal, pk: int, fuse: Fuse) -> bool:
    """Let a worker carry on until it ends or is killed; say whether it was killed."""
    try:
        with connection.execute_wrapper(fuse.statement):
            services.carry_out(portal.execution(pk).pk, clock=portal.clock, clients=fuse.clients())
    except Killed:
        return True
    return False


@contextmanager
def run_of(prepare: Callable[[Portal], int]) -> Iterator["Run"]:
    """Prepare a change once; each step then starts from there."""
    with served_portal() as portal:
        yield Run(portal, prepare(portal))


class Run(Struct):
    """A change that is about to be carried out, again and again from the same start."""

    portal: Portal
    pk: int

    def steps(self) -> range:
        """Return the steps of an undisturbed run."""
        fuse = Fuse()
        with self.afresh():
            assert not work(self.portal, self.pk, fuse)
            assert self.portal.execution(self.pk).ended_at is not None
        return range(1, fuse.steps + 1)

    @contextmanager
    def afresh(self) -> Iterator[Portal]:
        """Begin where it was prepared, and forget afterwards what was done."""
        portal = self.portal
        before = (portal.now, portal.api.live, portal.api.writes)
        with transaction.atomic():
            yield portal
            transaction.set_rollback(True)
        portal.now, portal.api.live, portal.api.writes = before

    @contextmanager
    def killed_at(
        self, step: int, then: Callable[[Portal], None] | None = None
    ) -> Iterator[Portal]:
        """Kill a worker at a step, and let others carry on after its lease."""
        with self.afresh() as portal:
            fuse = Fuse(at=step, then=(lambda: then(portal)) if then else None)
            assert work(portal, self.pk, fuse)
            left = portal.execution(self.pk)
            if left.lease_until is not None and left.ended_at is None:
                assert portal.carry_out(self.pk) == "", "its lease keeps others out"
            portal.wait(seconds=LEASE.total_seconds() + 1)
            if left.ended_at is None:
                portal.carry_through(self.pk)
            check_whole(portal, self.pk)
            yield portal


def check_whole(portal: Portal, pk: int) -> None:
    """The record and the request have their end, and the audit tells it once."""
    execution = portal.execution(pk)
    assert execution.ended_at is not None
    assert portal.of(pk).state not in {RequestState.APPLYING, RequestState.REVERTING}
    assert AuditEntry.objects.filter(after__contains=f'"execution":{execution.pk},').count() == 2
    assert services.verify().holds


def reverting(portal: Portal) -> int:
    pk = portal.applied()
    services.revert(pk, by=portal.actor("cleo"), now=portal.now)
    return pk


@pytest.mark.parametrize(
    ("prepare", "state", "shown", "writes"),
    [
        pytest.param(Portal.started, RequestState.APPLIED, "8", 1, id="apply"),
        pytest.param(reverting, RequestState.REVERTED, "6", 2, id="revert"),
    ],
)
def test_a_worker_killed_at_any_step_leaves_the_change_to_be_made_exactly_once(
    prepare: Callable[[Portal], int], state: RequestState, shown: str, writes: int
) -> None:
    with run_of(prepare) as run:
        steps = run.steps()
        assert len(steps) > 20
        for step in steps:
            with run.killed_at(step) as portal:
                assert (portal.of(run.pk).state, portal.live()) == (state, shown), step
                assert portal.api.writes == writes, step


@pytest.mark.parametrize(
    "hard",
    [
        pytest.param({KEY: "7"}, id="changed"),
        pytest.param({"pods": "1"}, id="key removed"),
        pytest.param(None, id="deleted"),
    ],
)
def test_a_worker_killed_while_others_change_the_quota_never_overwrites_them(
    hard: dict[str, str] | None,
) -> None:
    live = None if hard is None else recorded.quota("gpu") | {"spec": {"hard": hard}}

    def change(portal: Portal) -> None:
        if portal.live() == "8":
            # Watch has seen ours before it went.
            portal.wait(seconds=1)
            portal.see(8)
        portal.api.live = live

    with run_of(Portal.started) as run:
        for step in run.steps():
            with run.killed_at(step, change) as portal:
                assert portal.api.live == live, step
                applied = portal.of(run.pk).state == RequestState.APPLIED
                assert applied == (portal.api.writes == 1), step
                assert portal.api.writes <= 1


def test_beat_finds_what_a_killed_worker_left() -> None:
    with run_of(Portal.started) as run, run.afresh() as portal:
        assert work(portal, run.pk, Fuse(at=16))
        assert portal.execution(run.pk).lease_until is not None
        assert services.schedule_executions(now=portal.now) == 0
        portal.wait(seconds=LEASE.total_seconds() + 1)
        assert services.schedule_executions(now=portal.now) == 1
