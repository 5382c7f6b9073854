"""The map of the fleet: groups, colours and figures, and a fleet of a thousand nodes."""

import html
import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.clusters.domain.devices.state import DeviceHolder, DeviceState
from apps.clusters.models import Cluster, Node, NodeInterval
from apps.clusters.services.devices import keep_states
from tests.factories import Portal
from tests.web.conftest import HOURLY, LOOKED
from tests.web.pages import PAGES, STANDING, records_of, text_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
MAP = f"/capacity/gpus/?{HOURLY}"
LIST = f"{MAP}&tab=table"
NODES, PER_NODE, RACKS = 1000, 8, 20
MOST_BYTES = 700_000


def groups(page: str) -> dict[str, str]:
    """Return the groups of the map by their names, as HTML."""
    found = re.findall(r'<div class="fleet-group">\s*<h3>(.*?)</h3>(.*?)</div>', page, re.DOTALL)
    return {words(name).strip(): inside for name, inside in found}


def strips(inside: str) -> list[str]:
    """Return what the nodes of a group say, in their order."""
    return [html.unescape(text) for text in re.findall(r'<a href="[^"]*" title="([^"]*)"', inside)]


def figures(page: str) -> list[str]:
    return [words(one).strip() for one in re.findall(r"<dd>(.*?)</dd>", page, re.DOTALL)]


def test_nodes_stand_by_their_tiers_what_is_unavailable_first(admin: Client) -> None:
    found = groups(text_of(admin, MAP))
    assert list(found) == ["gold 1 node", "silver 2 nodes"]
    assert strips(found["gold 1 node"]) == [
        "west-1: 1 unavailable, 1 idle, 2 underutilized, 1 active"
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("&group=node", ["west 2 nodes", "east 1 node"]),
        ("&group=rack", ["No zone or rack 3 nodes"]),
        ("&group=shelf", ["gold 1 node", "silver 2 nodes"]),
        ("&group=node&health=watch", ["west 1 node"]),
        ("&group=node&node=west-2", ["west 1 node"]),
    ],
)
def test_nodes_are_grouped_and_narrowed(admin: Client, query: str, names: list[str]) -> None:
    assert list(groups(text_of(admin, f"{MAP}{query}"))) == names


def test_racks_are_offered_where_nodes_name_them(portal: Portal, admin: Client) -> None:
    assert 'id="group-rack"' not in text_of(admin, MAP)
    _label(portal.clusters[0], "west-1", {"topology.kubernetes.io/zone": "hall-1", "rack": "r7"})
    page = text_of(admin, f"{MAP}&group=rack")
    assert 'id="group-rack"' in page
    assert list(groups(page)) == ["hall-1 / r7 1 node", "No zone or rack 2 nodes"]


def test_mig_devices_and_replicas_are_drawn_in_their_gpu(portal: Portal, admin: Client) -> None:
    page = text_of(admin, f"{MAP}&group=node&node=west-2")
    # One seventh each of the sixteen pixels of their GPU.
    assert page.count('width="2.29" height="16"') == 2
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    _label(portal.clusters[0], "west-1", labels, {"nvidia.com/gpu": 16})
    page = text_of(admin, f"{MAP}&group=node&node=west-1")
    # Two pods on one of the four GPUs, one on two; of the broken one no replica can be had.
    assert page.count('width="16" height="4.0"') == 12


@pytest.mark.parametrize(
    ("colour", "css"),
    [
        ("utilization", "of-active heat-10"),
        ("memory", "of-allocated heat-6"),
        ("health", "of-watch"),
        ("state", "of-underused"),
    ],
)
def test_a_gpu_has_the_colour_that_was_asked_for(admin: Client, colour: str, css: str) -> None:
    page = text_of(admin, f"{MAP}&colour={colour}")
    assert f'<rect class="filled {css}"' in page


def test_figures_count_gpus_and_lead_to_their_list(admin: Client) -> None:
    page = text_of(admin, MAP)
    assert figures(page)[:4] == ["7 on 3 nodes", "1 GPU", "1 of 4.1 allocated GPUs", "0 GPUs"]
    link = re.search(r'<a class="key-value" href="([^"]+)"[^>]*>1</a>', page)
    assert link
    assert "health=broken" in link[1]
    assert "GPU 3" in text_of(admin, html.unescape(link[1]))


def test_the_legend_leads_to_the_gpus_in_a_state(admin: Client) -> None:
    page = text_of(admin, MAP)
    link = re.search(r'<a href="([^"]+)">Idle</a> <b>1</b>', page)
    assert link
    (row,) = records_of(admin, f"{html.unescape(link[1])}&format=csv&table=devices")
    assert (row["gpu"], row["state"]) == ("GPU 1", "Idle")


def test_who_leads_a_team_sees_no_activity_of_nobody(portal: Portal, signed_in: SignIn) -> None:
    page = text_of(signed_in(portal.ada), MAP)
    assert "Unattributed activity" not in page
    assert figures(page)[0] == "3 on 2 nodes"


def test_a_thousand_nodes_are_few_queries_and_little_to_send(portal: Portal, admin: Client) -> None:
    _many(portal.clusters[0], LOOKED + timedelta(minutes=5))
    pages = {}
    for query in ("", "&group=node", "&group=rack", "&colour=memory", "&tab=table", "&tab=nodes"):
        with CaptureQueriesContext(connection) as asked:
            pages[query] = text_of(admin, f"{MAP}{query}")
        assert len(asked) <= (PAGES | STANDING)["/capacity/gpus/"]
        assert len(pages[query].encode()) < MOST_BYTES, query
    folded = groups(pages["&group=rack"])["rack-0 50 nodes"]
    assert strips(folded) == ["n0: 1 unavailable, 7 active"]
    link = re.search(r'href="([^"]+)"[^>]*>49 more</a>', folded)
    assert link
    opened = groups(text_of(admin, html.unescape(link[1])))
    assert len(strips(opened["rack-0 50 nodes"])) == 50
    assert len(strips(opened["rack-1 50 nodes"])) == 0


def _label(
    cluster: Cluster,
    name: str,
    labels: dict[str, str],
    capacity: dict[str, float] | None = None,
) -> None:
    NodeInterval.objects.create(
        node=Node.objects.get(cluster=cluster, name=name),
        start=LOOKED,
        ready=True,
        schedulable=True,
        capacity=capacity or {},
        allocatable=capacity or {},
        labels=labels,
    )


def _many(cluster: Cluster, at: datetime) -> None:
    """Keep a look at a thousand nodes in racks, each with eight GPUs; one is broken."""
    nodes = Node.objects.bulk_create(
        [Node(cluster=cluster, name=f"n{n}") for n in range(NODES)], batch_size=500
    )
    NodeInterval.objects.bulk_create(
        [
            NodeInterval(
                node=node,
                start=LOOKED,
                ready=True,
                schedulable=True,
                capacity={"nvidia.com/gpu": PER_NODE},
                allocatable={"nvidia.com/gpu": PER_NODE},
                labels={"topology.kubernetes.io/zone": f"rack-{n % RACKS}"},
            )
            for n, node in enumerate(nodes)
        ],
        batch_size=500,
    )
    states = [
        DeviceState(
            uuid=f"GPU-{n}-{index}",
            node=f"n{n}",
            index=str(index),
            model="NVIDIA H100 80GB HBM3",
            tenants=(DeviceHolder("vision", f"train-{n}"),),
            activity_mean=0.9,
            memory_used_mib=40_000.0,
            memory_total_mib=80_000.0,
            xid=79 if n == index == 0 else 0,
        )
        for n in range(NODES)
        for index in range(PER_NODE)
    ]
    keep_states(cluster, states, at)
