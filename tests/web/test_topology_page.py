"""The page of the topology: slots, fragmentation, gangs, and the drain plan of administrators."""

import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from apps.clusters.domain.observed.objects import ControllerSnapshot, NodeSnapshot, ObservedKind
from apps.clusters.domain.observed.places import NodeResourceTopologySnapshot, NumaZone
from apps.clusters.domain.window import Window
from apps.clusters.models import NodeInterval, Pod
from apps.planning.selectors import FragmentationRow
from apps.planning.services import store_slots
from apps.web.planning.topology_plots import fragmentation_plots
from tests.factories import H100, Portal
from tests.pending.rows import make_looked, see
from tests.planning.topology_portal import (
    GPU,
    HOUR,
    collect,
    hold,
    make_node,
    make_topology,
    place,
)
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

pytestmark = pytest.mark.django_db
PAGE = "/capacity/topology/"


def names(node: str, page: str) -> bool:
    """Return whether a page has the node as a word: its random tokens may hold any two letters."""
    return re.search(rf"\b{node}\b", page) is not None


@pytest.fixture
def portal() -> Portal:
    """Return the portal of `topology_portal`, as if it were so now."""
    portal = make_topology()
    Pod.objects.all().delete()
    for node, gpus in (("n1", 6.0), ("n2", 3.0), ("n2", 1.0), ("n4", 5.0)):
        hold(portal, node, gpus, timezone.now() - 5 * HOUR)
    return portal


def reader(portal: Portal, name: str = "dan") -> Client:
    client = Client()
    client.force_login(getattr(portal, name))
    return client


def store(portal: Portal) -> None:
    """Store the slots of the last 30 hours, of which two are not collected."""
    now = timezone.now()
    collect(portal, Window(now - 30 * HOUR, now - 8 * HOUR))
    collect(portal, Window(now - 5 * HOUR, now))
    assert store_slots(now=now)


def test_slots_and_free_parts_are_plotted_from_what_is_stored(portal: Portal) -> None:
    before = text_of(reader(portal), PAGE)
    assert "at the start of each hour" not in before
    assert [cell.text for cell in tables_of(before)["devices"].rows[1]][:4] == [
        "gold", "nvidia.com/gpu", "1", "32",
    ]  # fmt: skip
    store(portal)
    page = text_of(reader(portal), PAGE)
    assert "gold: slots of 8 GPUs per host, at the start of each hour" in page
    assert "gold: free nvidia.com/gpu, at the start of each hour" in page
    # Hours that are not stored are neither zero nor joined.
    assert "not known" in page


def test_everybody_sees_slots_by_tier_and_level(portal: Portal) -> None:
    page = text_of(reader(portal), PAGE)
    head, *lines = tables_of(page)["slots"].rows
    found = {line[1].text: [cell.text for cell in line[2:]] for line in lines}
    assert [cell.text.split()[0] for cell in head][:3] == ["Tier", "Level", "Domains"]
    assert found["host"] == ["4", "17", "17", "8", "3", "1", "too large", "too large"]
    assert found["rack"][:7] == ["2", "17", "17", "8", "3", "1", "0"]
    assert found["zone"][5:7] == ["2", "1"]
    assert "Drain plan" not in page
    assert not names("n1", page)


def test_pods_of_eight_gpus_need_whole_hosts(portal: Portal) -> None:
    lines = tables_of(text_of(reader(portal), f"{PAGE}?pods=8&level=rack"))["slots"].rows
    found = {line[1].text: [cell.text for cell in line[3:]] for line in lines[1:]}
    assert found["zone"][4:6] == ["1", "0"]


def test_the_map_has_racks_with_what_is_free_and_names_for_who_sees_all(portal: Portal) -> None:
    page = text_of(reader(portal, "cleo"), f"{PAGE}?tab=map")
    assert "hall-1 / r1 <small>3 nodes · 14 of 24 GPUs free</small>" in page
    assert "hall-1 / r2 <small>2 nodes · 3 of 16 GPUs free</small>" in page
    assert "n1: 6 allocated, 2 free (gold)" in page
    assert "n5: 8 takes no pods (gold)" in page
    others = text_of(reader(portal), f"{PAGE}?tab=map")
    assert "gold: 6 allocated, 2 free (gold)" in others
    assert not names("n1", others)


def test_the_map_has_numa_nodes_where_they_are_published(portal: Portal) -> None:
    assert "NUMA" not in text_of(reader(portal, "cleo"), f"{PAGE}?tab=map")
    zones = (
        NumaZone("node-0", {GPU: 4.0, "cpu": 32.0}, {GPU: 0.0, "cpu": 8.0}),
        NumaZone("node-1", {GPU: 4.0, "cpu": 32.0}, {GPU: 2.0, "cpu": 8.0}),
        NumaZone("node-2", {"cpu": 32.0}, {"cpu": 32.0}),
        NumaZone("node-3", {GPU: 4.0}),
    )
    body = NodeResourceTopologySnapshot("best-effort", zones)
    kind = ObservedKind.NODE_RESOURCE_TOPOLOGY
    see(portal.clusters[0], kind, "n1", body, at=timezone.now(), namespace="", name="n1")
    page = text_of(reader(portal, "cleo"), f"{PAGE}?tab=map")
    known = "node-0 0 of 4 free, node-1 2 of 4 free"
    assert f"2 free (gold); NUMA: {known}, node-3 4 GPUs (no data of free ones)" in page
    assert page.count("NUMA: ") == 1


def test_the_map_puts_each_node_by_the_narrowest_level_that_it_has_itself(portal: Portal) -> None:
    west, zone = portal.clusters[0], {"topology.kubernetes.io/zone": "hall-2"}
    make_node(west, "n6", labels=zone)
    make_node(west, "n7", labels={})
    page = text_of(reader(portal, "cleo"), f"{PAGE}?tab=map")
    assert "hall-1 / r1 <small>3 nodes" in page
    # Others of the tier have a rack: that this one has none leaves its zone known.
    assert "hall-2 <small>1 node · 8 of 8 GPUs free</small>" in page
    assert "No zone or rack <small>1 node · 8 of 8 GPUs free</small>" in page


def test_the_map_has_nvlink_domains_and_machines_where_nodes_name_them(portal: Portal) -> None:
    before = text_of(reader(portal, "cleo"), f"{PAGE}?tab=map")
    assert "NVLink" not in before
    assert "Machine" not in before
    said = {"nvidia.com/gpu.machine": "GB200-NVL72", "nvidia.com/gpu.family": "blackwell"}
    for name, domain in (("g1", "u-1.1"), ("g2", "u-1.1"), ("g3", "u-1.2")):
        labels = {**place("r9"), **said, "nvidia.com/gpu.clique": domain}
        make_node(portal.clusters[0], name, labels=labels)
    page = text_of(reader(portal, "cleo"), f"{PAGE}?tab=map")
    assert "hall-1 / r9 / NVLink domain u-1.1 <small>2 nodes · 16 of 16 GPUs free</small>" in page
    assert "hall-1 / r9 / NVLink domain u-1.2 <small>1 node" in page
    assert "g1: 8 free (gold); GB200-NVL72, blackwell" in page
    rows = records_of(reader(portal, "cleo"), f"{PAGE}?tab=map&format=csv&table=racks")
    told = {row["node"]: (row["place"], row["nvlink"], row["machine"]) for row in rows}
    assert told["g3"] == ("hall-1 / r9", "u-1.2", "GB200-NVL72, blackwell")
    assert told["n1"] == ("hall-1 / r1", "", "")


def test_fragmentation_is_told_by_tier_and_day(portal: Portal) -> None:
    empty = text_of(reader(portal), f"{PAGE}?tab=fragmentation")
    assert "fragmentation" not in tables_of(empty)
    assert "No data in this window: nodes are known since the watch began" in empty
    store(portal)
    hold(portal, "n4", 2.0, timezone.now() - HOUR)
    page = text_of(reader(portal), f"{PAGE}?tab=fragmentation")
    found = tables_of(page)
    assert "gold: fragmentation, at the start of each hour" in page
    assert "fragmentation-1" in found
    assert [line[1].text for line in found["fragmentation"].rows[1:]] == ["gold"]
    assert len(found["days"].rows) > 2


def test_fragmentation_of_both_hours_of_one_local_time_in_autumn() -> None:
    berlin, start = ZoneInfo("Europe/Berlin"), datetime(2025, 10, 25, 23, tzinfo=UTC)
    window = Window(start, start + 4 * HOUR)
    hours = [start + n * HOUR for n in range(4)]
    rows = [
        FragmentationRow(at.astimezone(berlin), "west", "gold", 1, 1, 8.0, 4.0, 1.0, n / 8)
        for n, at in enumerate(hours)
    ]
    reading: Any = SimpleNamespace(
        window=window, now=window.end, choice=SimpleNamespace(zone=berlin, label="")
    )
    (plot,) = fragmentation_plots(rows, reading)
    told = [(row.values["at"], row.values["value"]) for row in plot.table.rows]
    assert told == [(at, row.fragmentation_index) for at, row in zip(hours, rows, strict=True)]


def test_gangs_are_those_of_teams_that_the_reader_sees(portal: Portal) -> None:
    for node, gpus in (("n1", 1.0), ("n4", 1.0)):
        hold(portal, node, gpus, timezone.now() - HOUR, owner="ddp", gang="ddp")
    found = tables_of(text_of(reader(portal, "ada"), f"{PAGE}?tab=gangs"))
    (line,) = found["gangs"].rows[1:]
    told = [cell.text for cell in line]
    assert told[3:6] == ["Job/ddp", "ddp", "gold"]
    # Two racks, where one host has room for two GPUs.
    assert told[8:11] == ["rack", "2", "1"]
    assert [cell.text for cell in found["spread"].rows[1]][:2] == ["More domains than needed", "1"]
    assert "Job/ddp" not in text_of(reader(portal), f"{PAGE}?tab=gangs")


def test_administrators_see_which_pods_to_move(portal: Portal) -> None:
    west, now = portal.clusters[0], timezone.now()
    west.kubernetes = {"in_cluster": True}
    west.save()
    make_looked(west, now)
    labels = {"nvidia.com/gpu.product": H100}
    amounts = {GPU: 8.0, "cpu": 64.0, "pods": 110.0}
    for node, used in (("n1", 6.0), ("n2", 4.0), ("n4", 5.0)):
        body = NodeSnapshot(labels=labels, allocatable=amounts, used={GPU: used, "cpu": used})
        see(west, ObservedKind.NODE, node, body, at=now, namespace="", name=node)
    hold(portal, "n4", 2.0, now - HOUR, owner="serve", kind="StatefulSet", gang="g")
    job = ControllerSnapshot(created=0.0, wanted=1, pods=1, requests={GPU: 1.0, "cpu": 4.0})
    see(west, ObservedKind.JOB, "job", job, at=now, name="train")
    found = tables_of(text_of(reader(portal, "cleo"), f"{PAGE}?tab=drain"))["moves"].rows
    moves = [[cell.text for cell in line] for line in found[1:]]
    # n2 needs 4 GPUs: its pods of 3 and 1 go where 3 and 2 are free.
    assert [(row[2], row[5], row[7]) for row in moves] == [("n2", "1", "n1"), ("n2", "3", "n4")]
    assert not names("n2", text_of(reader(portal), f"{PAGE}?tab=drain"))


def test_a_portal_without_nodes_says_so(portal: Portal) -> None:
    NodeInterval.objects.all().delete()
    page = text_of(reader(portal), PAGE)
    assert "No node with whole GPUs is known" in page
