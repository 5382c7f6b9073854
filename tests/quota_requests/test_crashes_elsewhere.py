"""What is killed beside the writing itself: the start, the date of a raise, GitOps, a queue."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from msgspec import Struct

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    LocalQueueSnapshot,
    ObservedKind,
)
from apps.quota_requests import services
from apps.quota_requests.domain.execution.kube_requests import object_path
from apps.quota_requests.domain.execution.patches import live_amount
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.domain.targets import QueueCell
from apps.quota_requests.models import Execution
from apps.quota_requests.services.execution.api_calls import KUEUE_GROUP
from tests.quota_requests import recorded
from tests.quota_requests.portal import NOW, Portal, make_portal, make_sighting, served_portal
from tests.quota_requests.quota_api import serving
from tests.quota_requests.test_apply_blockers import carry_with
from tests.quota_requests.test_crashes import Fuse, Killed, Run, check_whole
from tests.quota_requests.test_timing import DAY

pytestmark = pytest.mark.django_db
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
Act = Callable[[], object]


def killed(fuse: Fuse, act: Act) -> bool:
    """Do something until it ends or is killed at a statement; say whether it was killed."""
    try:
        with connection.execute_wrapper(fuse.statement):
            act()
    except Killed:
        return True
    return False


def steps_of(portal: Portal, act: Act) -> range:
    """Return the statements of an undisturbed run that write, and forget what it did."""
    fuse = Fuse()
    with transaction.atomic():
        assert not killed(fuse, act)
        transaction.set_rollback(True)
    assert fuse.steps > 4
    return range(1, fuse.steps + 1)


class Case(Struct):
    """A moment of a request, what the portal does then, and how it has to end."""

    prepare: Callable[[Portal], int]
    act: Callable[[Portal, int], object]
    state: RequestState
    shown: str
    writes: int


def due(portal: Portal) -> int:
    pk = portal.applied(until=NOW + DAY)
    portal.now = NOW + DAY
    return pk


def committed(portal: Portal) -> int:
    pk = portal.approved()
    portal.start(pk, gitops=True)
    portal.wait(minutes=5)
    portal.see(8)
    return pk


def begin(portal: Portal, pk: int) -> None:
    if portal.of(pk).state == RequestState.APPROVED:
        portal.start(pk)


CASES = [
    pytest.param(
        Case(Portal.approved, begin, RequestState.APPLIED, "8", 1),
        id="the start",
    ),
    pytest.param(
        Case(due, lambda p, _: services.revert_due(now=p.now), RequestState.REVERTED, "6", 2),
        id="the date of a raise",
    ),
    pytest.param(
        Case(
            committed, lambda p, _: services.watch_gitops(now=p.now), RequestState.APPLIED, "6", 0
        ),
        id="a commit that is seen",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_what_is_killed_at_any_statement_is_done_once_by_who_comes_next(case: Case) -> None:
    with served_portal() as portal:
        pk = case.prepare(portal)
        api = portal.api
        assert api is not None
        for step in steps_of(portal, lambda: case.act(portal, pk)):
            before = (portal.now, api.live, api.writes)
            with transaction.atomic():
                fuse = Fuse(at=step)
                assert killed(fuse, lambda: case.act(portal, pk))
                case.act(portal, pk)
                if portal.execution(pk).mode == Execution.DIRECT:
                    portal.carry_through(pk)
                found = (portal.of(pk).state, portal.live(), api.writes)
                assert found == (case.state, case.shown, case.writes), step
                check_whole(portal, pk)
                transaction.set_rollback(True)
            portal.now, api.live, api.writes = before


# ---------------------------------------------------------------- a queue of Kueue


@contextmanager
def served_queue(version: str = "v1beta2") -> Iterator[Portal]:
    """Serve the recorded ClusterQueue of 2 A100s, which only vision uses."""
    with serving(object_path(CELL, version), recorded.cluster_queue("cq-a", version)) as api:
        api.others[KUEUE_GROUP] = {"versions": [{"version": version}]}
        portal = make_portal(f"http://127.0.0.1:{api.port}")
        portal.api = api
        queue = ClusterQueueSnapshot(quotas=(FlavorQuota("a100", "nvidia.com/gpu", 2.0),))
        make_sighting(portal.cluster, ObservedKind.CLUSTER_QUEUE, "cq-a", queue)
        local = LocalQueueSnapshot(cluster_queue="cq-a")
        make_sighting(
            portal.cluster, ObservedKind.LOCAL_QUEUE, "default", local, namespace="team-vision"
        )
        yield portal


def asked(portal: Portal, **values: Any) -> int:
    of = {"source": "ClusterQueue", "namespace": "", "name": "cq-a", "key": CELL.key}
    return portal.started(**{**of, "before": "2", "after": "4", "team": "vision", **values})


def shown(portal: Portal) -> str:
    return str(live_amount(CELL, portal.api.live))


def others_of(live: Any) -> Any:
    """Return all of the queue that is not the cell, in any order."""
    return sorted(
        (flavor["name"], resource["name"], resource["nominalQuota"])
        for group in live["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if flavor["name"] != CELL.flavor
    )


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_a_queue_is_changed_and_taken_back_under_the_version_that_is_served(version: str) -> None:
    with served_queue(version) as portal:
        pk = asked(portal, until=NOW + DAY)
        assert portal.carry_out(pk) == "applied"
        assert shown(portal) == "4"
        portal.now = NOW + DAY
        assert services.revert_due(now=portal.now) == 1
        assert portal.carry_out(pk) == "applied"
        assert (portal.of(pk).state, shown(portal)) == (RequestState.REVERTED, "2")
        assert portal.api.live == recorded.cluster_queue("cq-a", version)


def test_a_worker_killed_at_any_step_changes_a_queue_exactly_once() -> None:
    with served_queue() as portal:
        run = Run(portal, asked(portal))
        for step in run.steps():
            with run.killed_at(step):
                assert (portal.of(run.pk).state, shown(portal)) == (RequestState.APPLIED, "4"), step
                assert portal.api.writes == 1, step


@pytest.mark.parametrize("groups_too", [False, True], ids=["flavors", "groups"])
def test_lists_put_in_another_order_before_the_write_do_not_lead_it_astray(
    groups_too: bool,
) -> None:
    with served_queue() as portal:
        pk = asked(portal)

        def reordered() -> None:
            assert portal.api.live is not None
            groups = portal.api.live["spec"]["resourceGroups"]
            groups = [{**one, "flavors": one["flavors"][::-1]} for one in groups]
            spec = {
                **portal.api.live["spec"],
                "resourceGroups": groups[::-1] if groups_too else groups,
            }
            if portal.api.writes == 0 and not done:
                done.append(True)
                portal.api.live = {**portal.api.live, "spec": spec}

        done: list[bool] = []
        carry_with(portal, pk, before_the_write=reordered)
        portal.wait(minutes=1)
        if portal.execution(pk).ended_at is None:
            portal.carry_through(pk)
        assert (portal.of(pk).state, shown(portal)) == (RequestState.APPLIED, "4")
        assert others_of(portal.api.live) == others_of(recorded.cluster_queue("cq-a"))


def test_a_queue_whose_other_cell_somebody_set_still_goes_back_on_its_date() -> None:
    """To the API server the groups of a queue are one field: who sets one cell owns them all."""
    with served_queue() as portal:
        pk = asked(portal, until=NOW + DAY)
        assert portal.carry_out(pk) == "applied"
        assert portal.api.live is not None
        fields: dict[str, Any] = {"f:spec": {"f:resourceGroups": {}}}
        entry = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": fields}
        metadata = {**portal.api.live["metadata"], "managedFields": [entry]}
        portal.api.live = {**portal.api.live, "metadata": metadata}
        portal.now = NOW + DAY
        assert services.revert_due(now=portal.now) == 1
        assert portal.carry_out(pk) == "applied"
        assert (portal.of(pk).state, shown(portal)) == (RequestState.REVERTED, "2")


def test_a_cell_that_is_there_twice_is_not_said_to_be_gone() -> None:
    with served_queue() as portal:
        pk = asked(portal)
        assert portal.api.live is not None
        groups = portal.api.live["spec"]["resourceGroups"]
        spec = {**portal.api.live["spec"], "resourceGroups": [groups[0], groups[0]]}
        portal.api.live = {**portal.api.live, "spec": spec}
        assert portal.carry_out(pk) == "failed"
        assert "is there 2 times: which one is not certain." in portal.of(pk).outcome
        assert "gone" not in portal.of(pk).outcome


def test_a_file_that_takes_a_queue_back_is_made_of_the_queue_as_it_is_now() -> None:
    with served_queue() as portal:
        pk = asked(portal)
        assert portal.carry_out(pk) == "applied"
        assert portal.api.live is not None
        groups = portal.api.live["spec"]["resourceGroups"]
        spec = {**portal.api.live["spec"], "resourceGroups": groups[::-1]}
        portal.api.live = {**portal.api.live, "spec": spec}
        services.revert(pk, by=portal.actor("cleo"), now=portal.now, gitops=True)
        assert "/spec/resourceGroups/1/flavors/1/" in portal.execution(pk).patch_file["text"]
