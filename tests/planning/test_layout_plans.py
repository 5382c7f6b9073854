"""Layout advice from recorded rows to the stored plan, the page, its files and the API."""

from datetime import timedelta

import pytest
import yaml
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.models import (
    Cluster,
    Node,
    NodeInterval,
    Pod,
    Tier,
    TierRule,
    WatchCoverage,
)
from apps.pending.models import Episode
from apps.planning.models import LayoutPlan
from apps.planning.selectors import blocking_pods, layout_reports
from apps.planning.services import advise_layouts
from apps.usage.models import PlannedOutage
from tests.factories import BEGINNING, make_pod, make_user, make_workload, note_collection
from tests.planning.test_recorded_demand import HOUR, LABELS, START, cluster

__all__ = ["cluster"]
pytestmark = pytest.mark.django_db
READER = Visibility(everything=False)
DAY = timedelta(days=1)
NOW = START + 25 * HOUR
HALF = "nvidia.com/mig-3g.40gb"


@pytest.fixture
def wanted(cluster: Cluster) -> Cluster:
    """Eight whole GPUs of which five run, a GPU cut in halves, and work for ten halves."""
    Pod.objects.filter(name="two").update(node_name="n1")
    # The queue of vision asks for more whole GPUs than there are.
    Episode.objects.all().delete()
    tier = Tier.objects.create(name="half", position=1)
    TierRule.objects.create(
        tier=tier, position=1, sharing="mig", resources=[HALF], valid_from=BEGINNING
    )
    TierRule.objects.filter(tier__name="whole").update(position=2)
    node = Node.objects.create(cluster=cluster, name="m1")
    NodeInterval.objects.create(
        node=node, start=START, ready=True, schedulable=True, labels=LABELS,
        capacity={HALF: 2.0}, allocatable={HALF: 2.0},
    )  # fmt: skip
    halves = make_workload(cluster, "vision", "halves")
    for number in range(10):
        make_pod(
            halves, f"half-{number}", created_at=START + HOUR, resource=HALF, tier=tier,
            gpu_equivalents=3 / 7,
        )  # fmt: skip
    return cluster


def test_a_cluster_is_advised_once_a_day(wanted: Cluster) -> None:
    WatchCoverage.objects.update(end=START + 3 * DAY)
    assert [advise_layouts(now=NOW + hours * HOUR) for hours in (0, 1, 24)] == [1, 0, 1]
    (found,) = layout_reports(visibility=EVERYTHING)
    assert (found.cluster, found.end, found.error) == ("west", START + 2 * DAY, "")
    assert found.advice is not None
    assert found.changed == len(found.advice.steps)


def test_advice_of_the_first_day_is_replaced_as_days_are_collected(wanted: Cluster) -> None:
    assert [advise_layouts(now=NOW), advise_layouts(now=NOW)] == [1, 0]
    for number in range(2 * 24):
        note_collection(wanted, START - (number + 1) * HOUR)
    assert [advise_layouts(now=NOW), advise_layouts(now=NOW)] == [1, 0]
    assert LayoutPlan.objects.get().start == START - 2 * DAY


def test_who_computes_holds_a_lease_and_the_last_advice_stays(wanted: Cluster) -> None:
    WatchCoverage.objects.update(end=START + 2 * DAY)
    LayoutPlan.objects.create(cluster=wanted, lease_until=NOW + HOUR)
    assert advise_layouts(now=NOW) == 0
    assert advise_layouts(now=NOW + 2 * HOUR) == 1
    NodeInterval.objects.all().delete()
    assert advise_layouts(now=NOW + DAY) == 0
    (found,) = layout_reports(visibility=READER)
    assert found.error.startswith("No watch has seen nodes")
    assert found.rows()


def test_figures_are_for_all_and_the_plan_for_who_runs_the_cluster(
    wanted: Cluster,
    admin_client: Client,
    client: Client,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    admin_client.get("/capacity/layouts/")
    assert "Not computed yet" in admin_client.get("/capacity/layouts/").content.decode()
    advise_layouts(now=NOW)
    with django_assert_num_queries(2):
        reports = layout_reports(visibility=EVERYTHING)
        pods = blocking_pods(reports, visibility=EVERYTHING)
    assert {(pod.node, pod.pod, pod.gpus) for pod in pods} == {("n1", "two", 2.0)}
    page = admin_client.get("/capacity/layouts/").content.decode()
    assert "mig-parted configuration" in page
    assert "4 GPUs: 2 × 3g.40gb; 4 GPUs: whole GPU" in page
    assert "nvidia.com/mig.config=portal-1" in page
    file = admin_client.get("/capacity/layouts/west/mig-parted.yaml")
    assert file["Content-Disposition"] == 'attachment; filename="mig-parted.yaml"'
    (config,) = yaml.safe_load(file.content)["mig-configs"].values()
    assert {"3g.40gb": 2} in [one.get("mig-devices") for one in config]
    for name in ("none.yaml", "../mig-parted.yaml"):
        assert admin_client.get(f"/capacity/layouts/west/{name}").status_code == 404
    assert admin_client.get("/capacity/layouts/east/mig-parted.yaml").status_code == 404
    rows = admin_client.get("/api/v1/layouts?tier=half").json()["results"]
    assert [(row["cluster"], row["tier"]) for row in rows] == [("west", "half")]
    assert rows[0]["unmet_after_gpu_hours"] < rows[0]["unmet_gpu_hours"]

    client.force_login(make_user("ada"))
    seen = client.get("/capacity/layouts/").content.decode()
    assert "half" in seen
    assert "n1" not in seen
    assert client.get("/capacity/layouts/west/mig-parted.yaml").status_code == 404
    assert blocking_pods(reports, visibility=READER) == []


def test_steps_that_are_to_come_are_announced_as_outages(
    wanted: Cluster, admin_client: Client, client: Client
) -> None:
    advise_layouts(now=NOW)
    plan = LayoutPlan.objects.get()
    assert plan.advice is not None
    for step in plan.advice["steps"]:
        step["starts_at"] = timezone.now().timestamp() - 3600
    plan.save()
    refused = admin_client.post("/capacity/outages/steps", {"on": "west"})
    assert (refused.status_code, PlannedOutage.objects.count()) == (400, 0)
    assert "no step is still to come" in refused.content.decode()
    for step in plan.advice["steps"]:
        step["starts_at"] += 7200
    plan.save()
    for _ in range(2):
        assert admin_client.post("/capacity/outages/steps", {"on": "west"}).status_code == 302
    outages = PlannedOutage.objects.order_by("node_name")
    nodes = [row.node_name for row in outages]
    assert nodes == sorted(step["node"] for step in plan.advice["steps"])
    assert {row.end - row.start for row in outages} == {timedelta(minutes=30)}
    # The advice of the next day has the same steps at other hours.
    for step in plan.advice["steps"]:
        step["starts_at"] += 86_400
    plan.save()
    assert admin_client.post("/capacity/outages/steps", {"on": "west"}).status_code == 302
    assert [row.node_name for row in PlannedOutage.objects.order_by("node_name")] == nodes
    client.force_login(make_user("ada"))
    assert client.post("/capacity/outages/steps", {"on": "west"}).status_code == 404
    seen = client.get("/capacity/layouts/").content.decode()
    assert "Layout change" in seen
    assert not any(f">{node}<" in seen for node in nodes), "nodes are for who runs the clusters"
