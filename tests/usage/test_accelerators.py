"""Accelerators other than GPUs from the simulated exporter to the pages, as in production."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.exporter_profile import Family
from apps.clusters.domain.window import Window
from apps.clusters.services import snapshot_cluster
from apps.operations.services import load_catalog
from apps.usage.models import CollectionWindow
from apps.usage.services import collect_window, roll_days
from simulator.catalog import catalog_yaml
from simulator.fleet import GAUDI, NEURON, NEURON_CORE, Exporter, GpuSpec, Node, Pod
from simulator.machines import gpu_node
from simulator.scenarios.base import Team, Tier
from tests.factories import make_user
from tests.served_lab import served_lab
from tests.simulator.small import ORIGIN, Small, pod

pytestmark = pytest.mark.django_db

HOURS = 2
NOW = ORIGIN + HOURS * 3600 + 900
SPAN = "start=2026-10-01T00:00:00Z&end=2026-10-01T02:00:00Z"
_GPUS = {
    GAUDI: GpuSpec("HL-325L", "HL-325L", 131_072, 130_000, 200.0, 900.0, 1600, resource=GAUDI),
    NEURON: GpuSpec("Inferentia2", "inf2", 32_768, 32_000, 30.0, 190.0, 1400, resource=NEURON),
}
_LABEL = "karpenter.k8s.aws/instance-accelerator-name"


class Held(NamedTuple):
    """A pod of the scenario: what it has, and what the portal is to say of its activity."""

    name: str
    node: str
    resource: str
    units: int
    devices: tuple[int, ...]
    activity: float
    known: float | None
    gpus: float


HELD = (
    Held("gaudi-train", "hl-1", GAUDI, 2, (0, 1), 0.75, 0.75, 2),
    Held("gaudi-idle", "hl-1", GAUDI, 1, (2,), 0.0, 0.0, 1),
    # Alone on its node, with all devices of it: they can be nobody else's.
    Held("whole-node", "inf-1", NEURON, 2, (0, 1), 0.6, 0.6, 2),
    # The same by cores, of which two are a device; a process that has work for one core of each.
    Held("by-cores", "inf-2", NEURON_CORE, 4, (0, 1), 0.25, 0.25, 2),
    # Loaded, and doing nothing at all.
    Held("loaded", "inf-3", NEURON, 2, (0, 1), 0.0, 0.0, 2),
    # Two pods on one node: which device is whose, no series tells.
    Held("beside-1", "inf-4", NEURON, 1, (0,), 0.9, None, 1),
    Held("beside-2", "inf-4", NEURON, 1, (1,), 0.1, None, 1),
)


def node(name: str, position: int, resource: str, gpus: int) -> Node:
    made = gpu_node(
        seed="accelerators",
        name=name,
        position=position,
        gpu=_GPUS[resource],
        gpus=gpus,
        created=ORIGIN,
        exporters=(Exporter(metrics=()),),
    )
    return replace(made, labels={"kubernetes.io/hostname": name, _LABEL: _GPUS[resource].model})


def scenario() -> Small:
    pods: list[Pod] = [
        replace(
            pod(one.name, bound=0, devices=one.devices, activity=one.activity),
            node=one.node,
            resource=one.resource,
            units=one.units,
        )
        for one in HELD
    ]
    made = Small(pods)
    neurons = [node(f"inf-{number}", 10 + number, NEURON, 2) for number in range(1, 5)]
    made.nodes = [node("hl-1", 1, GAUDI, 8), *neurons]
    made.teams = [Team("vision", ("vision",), 4, "CC-1", entitlements={"gaudi": 8, "neuron": 8})]
    made.tiers = [
        Tier("gaudi", "exclusive", "A whole Gaudi.", (GAUDI,)),
        Tier("neuron", "exclusive", "Whole Neuron devices.", (NEURON, NEURON_CORE)),
    ]
    made.prices = {"HL-325L": "2.00", "Inferentia2": "1.00"}
    return made


@pytest.fixture
def admin() -> Client:
    """Collect two hours of the cluster as in production; an administrator looks at them."""
    made, now = scenario(), datetime.fromtimestamp(NOW, UTC)
    start = datetime.fromtimestamp(ORIGIN, UTC)
    with served_lab(made, NOW) as url:
        load_catalog(catalog_yaml(made, url=url), "catalog.yaml", now=now, dry_run=False)
        snapshot_cluster("lab", now=now)
        collect_window("lab", Window(start, start + timedelta(hours=HOURS)), now=now)
    roll_days(now=now)
    client = Client()
    client.force_login(make_user("cleo", Role.ADMIN))
    return client


def test_activity_of_accelerators_is_that_of_their_exporter(admin: Client) -> None:
    # The node on which nobody can be told apart is named as the reason, and no other.
    hours = CollectionWindow.objects.all()
    assert {(one.state, "most on inf-4" in one.error) for one in hours} == {("partial", True)}
    rows = admin.get(f"/api/v1/pods?{SPAN}").json()["results"]
    found = {row["pod"]: row for row in rows}
    for one in HELD:
        row = found[one.name]
        assert row["gpu_equivalents"] == one.gpus, one
        assert row["allocated_gpu_hours"] == pytest.approx(HOURS * one.gpus), one
        unmeasured = 0 if one.known is not None else HOURS * one.gpus
        assert row["unmeasured_gpu_hours"] == pytest.approx(unmeasured, abs=1e-6), one
        active = HOURS * one.gpus * (one.known or 0)
        assert row["busy_gpu_hours"] == pytest.approx(active, abs=1e-6), one


def test_what_no_pod_explains_is_beside_the_ledger(admin: Client) -> None:
    """The devices of two pods on one node: their activity is nobody's, and lost to nobody."""
    (row,) = admin.get(f"/api/v1/usage?{SPAN}&interval=total&tier=neuron").json()["results"]
    assert row["capacity_gpu_hours"] == pytest.approx(HOURS * 8)
    assert row["allocated_gpu_hours"] == pytest.approx(HOURS * 8)
    assert row["unattributed_gpu_hours"] == pytest.approx(HOURS * (0.9 + 0.1), abs=1e-6)


def test_pages_show_accelerators_and_what_their_exporters_cannot_tell(admin: Client) -> None:
    days = "first=2026-10-01&last=2026-10-01"
    page = admin.get(f"/workloads/?{days}").content.decode()
    assert "train" in page
    tier = admin.get(f"/capacity/tiers/gaudi/?{days}").content.decode()
    # 1.5 of three allocated devices were active.
    assert "50 %" in tier
    quality = admin.get(f"/admin/data-quality/?tab=exporters&{days}").content.decode()
    for family in (Family.NEURON, Family.GAUDI):
        assert family.value in quality
    assert "a core that no runtime has in use counts as idle" in quality
