"""A bad node and a bad GPU that the simulator has are those that the pages name, and no other."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.services import snapshot_cluster, store_device_states
from apps.goodput.selectors import (
    gpu_reliability_rows,
    hardware_advice,
    reliability_reports,
    reliability_rows,
)
from apps.goodput.services import judge_nodes
from apps.operations.services import load_catalog
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.fleet import FOREVER, HEALTH_METRICS, STANDARD_METRICS, Exporter, Pod
from simulator.machines import a100_node
from simulator.scenarios.base import Team
from tests.factories import make_user
from tests.served_lab import served_lab
from tests.simulator.small import ORIGIN, Small, job, pod

pytestmark = [pytest.mark.django_db, pytest.mark.long]

HOUR = 3600
DAYS = 7
NODES = ("one", "two", "three", "four", "five", "six")
BAD_NODE, BAD_GPU = "two", ("five", 2)
NOW_SECONDS = ORIGIN + DAYS * 24 * HOUR + 900
NOW = datetime.fromtimestamp(NOW_SECONDS, UTC)
FELL_OFF = 79


def pods(seed: int) -> Iterator[Pod]:
    """Yield jobs of six hours one after another on every GPU; few fail, of bad hardware most."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    for number in range(DAYS * 3):
        for node in NODES:
            for device in range(4):
                name = f"eval-{number}x{node}x{device}"
                bad = node == BAD_NODE or (node, device) == BAD_GPU
                # Bad enough to be found in a week; smaller faults are those of test_planted_faults.
                fails = chance.random() < (0.9 if bad else 0.03)
                begin = number * 8 * HOUR + chance.randrange(HOUR)
                length = chance.randrange(HOUR, 5 * HOUR) if fails else 6 * HOUR
                made = pod(
                    name,
                    owner=job(f"eval-{chance.randrange(10**9):09d}"),
                    created=begin,
                    bound=begin + 30,
                    finished=begin + length,
                    deleted=1000 * HOUR * 24,
                    devices=(device,),
                )
                yield replace(made, node=node, end_reason="Error" if fails else "")


def planted() -> Small:
    made = list(pods(5))
    scenario = Small(made, [one.owner for one in made], quota=24)
    scenario.teams = [Team("vision", ("vision",), 24, "CC-1")]
    exporter = Exporter(metrics=(*STANDARD_METRICS, *HEALTH_METRICS))
    nodes = [
        a100_node(seed="small", name=name, position=place, gpus=4, created=ORIGIN, labels={})
        for place, name in enumerate(NODES, 1)
    ]
    failed = [
        one.finished for one in made if one.end_reason and (one.node, *one.devices) == BAD_GPU
    ]
    scenario.nodes = [
        replace(
            node,
            exporters=(exporter,),
            devices=tuple(
                replace(device, xids=((failed[3], FELL_OFF),))
                if (node.name, device.index) == BAD_GPU
                else device
                for device in node.devices
            ),
        )
        for node in nodes
    ]
    assert FOREVER not in failed
    return scenario


def test_the_planted_node_and_gpu_are_named_and_no_other() -> None:
    scenario = planted()
    with served_lab(scenario, NOW_SECONDS) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        snapshot_cluster("lab", now=NOW)
        for day in range(DAYS):
            start = datetime.fromtimestamp(ORIGIN, UTC) + timedelta(days=day)
            collect_window("lab", Window(start, start + timedelta(days=1)), now=NOW)
        store_device_states(Cluster.objects.get(name="lab").pk, NOW)
    judge_nodes(now=NOW)
    nodes = reliability_rows(reliability_reports(visibility=EVERYTHING))
    gpus = gpu_reliability_rows(reliability_reports(visibility=EVERYTHING))
    assert [row.node for row in nodes if row.is_unreliable] == [BAD_NODE]
    (bad,) = (row for row in gpus if row.is_unreliable)
    (device,) = (one for node in scenario.nodes if node.name == "five" for one in node.devices[2:3])
    assert (bad.node, bad.gpu, bad.uuid) == ("five", "2", device.uuid)
    assert (bad.xids_hardware, bad.xids_application, bad.last_xid) == (1, 0, FELL_OFF)
    assert (bad.ecc_uncorrected, bad.thermal_seconds) == (0, 0)
    assert bad.known_hours >= (DAYS - 1) * 24
    bad_nodes, bad_gpus = hardware_advice("lab")
    assert list(bad_nodes) == [BAD_NODE]
    assert [(one.node, one.gpu, one.action) for one in bad_gpus] == [("five", "2", "replace")]
    admin = Client()
    admin.force_login(make_user("cleo", role=Role.ADMIN))
    page = admin.get("/capacity/reliability/").content.decode()
    assert f"Drain lab/{BAD_NODE}: " in page
    assert "Replace GPU 2 of lab/five: " in page
