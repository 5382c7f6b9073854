"""Policy simulations: who may run and see them, what a worker replays, and their requests."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import Team, User
from apps.accounts.permissions import NotAllowed
from apps.clusters.models import Cluster, GpuModel, NodeInterval, Pod, Tier
from apps.planning.domain.policy_change import PolicyChange, PolicyRefused, ShareChange
from apps.planning.domain.policy_effects import ALL_TEAMS
from apps.planning.models import PolicySimulation
from apps.planning.selectors import SimulationState, simulation_report, simulation_reports
from apps.planning.services import LimitInput, simulate_policies, start_simulation
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.services import RequestRefused, request_limits
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.models import Entitlement
from apps.usage.models import PodHour
from tests.factories import make_user
from tests.planning.test_recorded_demand import GPU, HOUR, START, cluster

__all__ = ["cluster"]
NOW = START + 25 * HOUR
CQ = QuotaRef("ClusterQueue", "", "vision-cq", f"a100/{GPU}", "west")
RQ = QuotaRef("ResourceQuota", "speech", "gpus", f"requests.{GPU}", "west")
pytestmark = pytest.mark.django_db


def lead(name: str, team: str) -> User:
    return make_user(name, leads=[Team.objects.get(name=team)])


def start(user: User, change: PolicyChange, limits: Sequence[LimitInput] = ()) -> int:
    return start_simulation(user, "west", change, limits, now=NOW)


def test_a_worker_replays_what_was_asked_and_keeps_it(cluster: Cluster) -> None:
    ada = lead("ada", "vision")
    pk = start(ada, PolicyChange(), [LimitInput(CQ, 16)])
    queued = simulation_report(pk, ada)
    assert queued is not None
    assert (queued.state, queued.team_rows()) == (SimulationState.QUEUED, [])
    assert simulate_policies(now=NOW) == 1
    assert simulate_policies(now=NOW) == 0
    found = simulation_report(pk, ada)
    assert found is not None
    assert (found.state, found.works, found.end) == (SimulationState.DONE, 4, NOW)
    assert found.texts == (f"a100/{GPU} of ClusterQueue vision-cq: 4 → 16",)
    rows = {row.team: row for row in found.effects if row.tier == "whole"}
    assert rows["vision"].after != rows["vision"].before
    assert rows["speech"].after == rows["speech"].before
    assert rows[ALL_TEAMS].freed_gpu_hours == 0
    simulate_policies(now=NOW + timedelta(days=91))
    assert simulation_reports(ada) == []


def test_idle_time_is_read_until_the_end_and_never_guessed(cluster: Cluster) -> None:
    ada = lead("ada", "vision")
    pod = Pod.objects.get(uid="uid-one")  # From 01:00 to 03:00; its second hour does nothing.
    facts: dict[str, Any] = {
        "pod": pod,
        "cluster": cluster,
        "tier": pod.tier,
        "workload": pod.workload,
        "namespace": pod.workload.namespace,
        "team": Team.objects.get(name="vision"),
        "gpu_model": GpuModel.objects.get_or_create(name="A100")[0],
        "capacity_type": "on-demand",
    }
    for hours, busy, idle in ((1, 3, 0), (2, 0, 3)):
        PodHour.objects.create(
            hour=START + hours * HOUR, busy=busy * 10**9, idle=idle * 10**9,
            allocated=3 * 10**9, **facts,
        )  # fmt: skip
    pk = start(ada, PolicyChange(idle_minutes=30))
    simulate_policies(now=NOW)
    found = simulation_report(pk, ada)
    assert found is not None
    freed = {(row.team, row.tier): row.freed_gpu_hours for row in found.effects}
    assert freed["vision", "whole"] == pytest.approx(3 * 0.5)
    PodHour.objects.filter(hour=START + 2 * HOUR).update(unmeasured=1)
    pk = start(ada, PolicyChange(idle_minutes=30))
    simulate_policies(now=NOW)
    found = simulation_report(pk, ada)
    assert found is not None
    assert not any(row.freed_gpu_hours for row in found.effects)


def test_only_the_author_and_who_sees_everything_see_a_simulation(cluster: Cluster) -> None:
    pk = start(lead("ada", "vision"), PolicyChange(no_borrowing=True))
    admin = make_user("cleo", Role.ADMIN)
    assert simulation_report(pk, make_user("dan")) is None
    assert [one.pk for one in simulation_reports(admin)] == [pk]


def test_what_the_user_does_not_see_is_not_changed(cluster: Cluster) -> None:
    ada = lead("ada", "vision")
    Entitlement.objects.create(
        team=Team.objects.get(name="vision"),
        tier=Tier.objects.get(name="whole"),
        gpus=4,
        weight=4,
        valid_from=START,
    )
    with pytest.raises(PolicyRefused, match="no limit that you can change"):
        start(ada, PolicyChange(), [LimitInput(RQ, 8)])
    with pytest.raises(PolicyRefused, match="Nothing is changed"):
        start(ada, PolicyChange(), [LimitInput(CQ, 4)])
    with pytest.raises(PolicyRefused, match="no entitlement in gold"):
        start(ada, PolicyChange(fair_order=True, shares=(ShareChange("vision", "gold", 1),)))
    with pytest.raises(PolicyRefused, match="no cluster east"):
        start_simulation(ada, "east", PolicyChange(no_borrowing=True), (), now=NOW)
    for _ in range(3):
        start(ada, PolicyChange(fair_order=True, shares=(ShareChange("vision", "whole", 1),)))
    with pytest.raises(PolicyRefused, match="3 of your simulations are queued"):
        start(ada, PolicyChange(no_borrowing=True))


def test_a_cluster_without_records_is_said(cluster: Cluster) -> None:
    ada = lead("ada", "vision")
    pk = start(ada, PolicyChange(no_borrowing=True))
    NodeInterval.objects.all().delete()
    simulate_policies(now=NOW)
    found = simulation_report(pk, ada)
    assert found is not None
    assert found.state is SimulationState.FAILED
    assert found.error.startswith("No watch has seen nodes")


def requested(pk: int, user: User) -> list[int]:
    found = simulation_report(pk, user)
    assert found is not None
    by = actor_of(user, origin="test")
    return request_limits(found, reason="More room.", team="", by=by, now=NOW)


def test_each_limit_becomes_a_draft_of_who_leads_its_team(cluster: Cluster) -> None:
    cleo = make_user("cleo", Role.ADMIN)
    pk = start(cleo, PolicyChange(idle_minutes=60), [LimitInput(CQ, 6), LimitInput(RQ, 1)])
    with pytest.raises(RequestRefused, match="no result"):
        requested(pk, cleo)
    simulate_policies(now=NOW)
    made = requested(pk, cleo)
    rows = ChangeRequest.objects.filter(pk__in=made).order_by("source")
    assert [(one.ref, one.before, one.after, one.team.name, one.state) for one in rows] == [
        (CQ, "4", "6", "vision", "draft"),
        (RQ, "2", "1", "speech", "draft"),
    ]
    with pytest.raises(RequestRefused, match="already"):
        requested(pk, cleo)
    assert ChangeRequest.objects.count() == 2
    assert simulation_report(pk, cleo).requests == tuple(made)  # type: ignore[union-attr]


def test_who_may_not_request_a_change_saves_none(cluster: Cluster) -> None:
    ben = make_user("ben", teams=[Team.objects.get(name="vision")])
    pk = start(ben, PolicyChange(), [LimitInput(CQ, 6)])
    simulate_policies(now=NOW)
    with pytest.raises(NotAllowed):
        requested(pk, ben)
    assert not ChangeRequest.objects.exists()
    assert not PolicySimulation.objects.get(pk=pk).requests


def test_the_pages_lead_from_the_form_to_the_requests(cluster: Cluster, client: Client) -> None:
    client.force_login(lead("ada", "vision"))
    form = client.get("/capacity/policies/?on=west&of=whole").content.decode()
    assert "Run simulation" in form
    assert "vision-cq, a100/nvidia.com/gpu" in form
    assert "speech" not in form.partition("Limits of")[2].partition("</details>")[0]
    key = "west/ClusterQueue/-/vision-cq/a100/nvidia.com/gpu"
    typed = {"on": "west", "of": "whole", "key": key, "limit": "many"}
    refused = client.post("/capacity/policies/simulate", typed)
    assert refused.status_code == 400
    assert "“many” is not a number" in refused.content.decode()
    chosen = {"limit": "6", "idle": "30", "order": "strict", "sharing": "fair", "reclaim": "any"}
    chosen |= {"preemption": "never", "nodes": "lower-priority", "placement": "pack"}
    sent = client.post("/capacity/policies/simulate", typed | chosen)
    pk = PolicySimulation.objects.get().pk
    assert sent["Location"] == f"/capacity/policies/{pk}/"
    assert "Queued" in client.get(sent["Location"]).content.decode()
    simulate_policies(now=NOW)
    shown = client.get(sent["Location"]).content.decode()
    assert "4 → 6" in shown
    assert "Create requests" in shown
    assert (
        "Not in the quota requests: Strict order of pending work, Fair sharing of queues, "
        "Queues reclaim quota from any work, Queues preempt nothing of their own, "
        "Lower priority is preempted on nodes, Placement: work goes to the fullest node with room, "
        "Idle limit 30 minutes." in shown
    )
    assert "Only with the change: Queues admit as Kueue does with fair sharing" in shown
    again = client.post("/capacity/policies/simulate", typed | chosen | {"limit": "many"})
    assert '<option value="pack" selected>' in again.content.decode()
    client.post(f"/capacity/policies/{pk}/request", {"reason": "More room."})
    number = ChangeRequest.objects.get().pk
    assert f"Request {number}" in client.get(sent["Location"]).content.decode()
