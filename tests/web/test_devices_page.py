"""The pages of GPUs: the map, who is on which GPU, how healthy it is, and who may see that."""

import html
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.devices.state import DeviceHolder, DeviceState, Health
from apps.clusters.models import Cluster, Device, Node, NodeInterval
from apps.clusters.services.devices import keep_states
from apps.usage.models import NodeHour
from apps.usage.selectors import DeviceFilters, device_rows
from apps.web.components.formats import percent
from tests.factories import Portal
from tests.web.conftest import HOURLY, LOOKED
from tests.web.devices import FIRST_UUID, uuid_of
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

SignIn = Callable[[User], Client]
MAP = f"/capacity/gpus/?{HOURLY}"
LIST = f"{MAP}&tab=table"


def words(page: str) -> str:
    """Return a page as its text alone."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def lines(client: Client, query: str = "") -> dict[str, str]:
    """Return the lines of the list by the name of the device, as text."""
    page = text_of(client, f"{LIST}{query}")
    found = re.findall(r'<tr role="row">(<td.*?)</tr>', page, re.DOTALL)
    told = [words(line).strip() for line in found]
    return {line.split(" NVIDIA")[0]: line for line in told}


def test_every_device_is_there_what_is_wrong_first(admin: Client) -> None:
    assert list(lines(admin)) == [
        *("GPU 3", "GPU 0", "GPU 1", "GPU 5"),
        *("GPU 6", "GPU 2", "GPU 4 · 1g.10gb 7", "GPU 4 · 1g.10gb 8"),
    ]


def test_a_line_tells_tenants_load_and_health(admin: Client) -> None:
    shown = lines(admin)
    assert "watch since 27 Oct 2025 23:55" in shown["GPU 0"]
    assert "temperature 92 °C, over 88 °C" in shown["GPU 0"]
    assert "vision/train-0 vision" in shown["GPU 0"]
    assert "97 now 97" in shown["GPU 0"]
    assert "52 41.0 GiB of 78.6 GiB" in shown["GPU 0"]
    assert "2 memory rows replaced after uncorrectable errors" in shown["GPU 1"]
    assert "vision-prod/serve-abc" in shown["GPU 2"]
    assert "speech/notes-0" in shown["GPU 2"]
    assert "Unavailable" in shown["GPU 3"]
    assert "79 hardware" in shown["GPU 3"]


def test_what_is_not_known_is_a_dash_and_never_a_zero(admin: Client) -> None:
    unseen = lines(admin)["GPU 5"]
    assert "unseen since 26 Oct 2025 23:55; no exporter shows it any more" in unseen
    assert "No metrics" in unseen
    assert unseen.count("–") == 6
    (row,) = [r for r in records_of(admin, f"{LIST}&format=csv&table=devices") if r["xid"] == "79"]
    assert (row["temperature_celsius"], row["row_remap_failure"]) == ("54", "0")
    gone = next(r for r in records_of(admin, f"{LIST}&format=csv&table=devices&uuid=6"))
    assert (gone["temperature_celsius"], gone["activity_ratio"], gone["xid"]) == ("", "", "")


def test_the_list_and_its_file_say_the_same(admin: Client) -> None:
    shown = list(lines(admin).values())
    rows = records_of(admin, f"{LIST}&format=csv&table=devices")
    assert len(shown) == len(rows)
    for line, row in zip(shown, rows, strict=True):
        assert line.startswith(row["gpu"])
        for name in ("gpu_model", "health", "state", "node", "temperature_celsius"):
            assert row[name] in line
        assert all(reason in line for reason in row["reasons"].split("; "))
        if row["activity_ratio"]:
            assert percent(float(row["activity_ratio"])).removesuffix(" %") in line


def test_hours_that_lack_are_told_for_what_is_of_the_window(admin: Client) -> None:
    page = text_of(admin, LIST)
    assert "1 hour of this window could not be collected:" in page
    assert "1 hour of this window is missing:" in page


def test_a_tenant_leads_to_its_pod(admin: Client) -> None:
    page = text_of(admin, LIST)
    assert 'href="/pods/west/uid-train-0/?first=2025-10-25&amp;last=2025-10-27"' in page


def test_old_looks_are_told_as_an_outage(admin: Client, portal: Portal) -> None:
    page = words(text_of(admin, LIST))
    assert "GPUs of west were last read" in page
    now = timezone.now()
    keep_states(portal.clusters[0], [DeviceState(uuid="GPU-x", node="west-1")], now)
    page = words(text_of(admin, LIST))
    assert "GPUs of west were" not in page
    assert "GPUs of east were last read" in page
    Device.objects.filter(cluster=portal.clusters[1]).delete()
    assert "GPUs of east were never read" in words(text_of(admin, LIST))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("&health=broken", ["GPU 3"]),
        ("&health=broken&health=unseen", ["GPU 3", "GPU 5"]),
        ("&state=idle", ["GPU 1"]),
        ("&state=idle&state=free", ["GPU 1", "GPU 4 · 1g.10gb 8"]),
        ("&team=speech", ["GPU 1", "GPU 2"]),
        ("&tier=gold", ["GPU 3", "GPU 0", "GPU 1", "GPU 2"]),
        ("&node=west-2", ["GPU 5", "GPU 4 · 1g.10gb 7", "GPU 4 · 1g.10gb 8"]),
        ("&node=nowhere", []),
        ("&cluster=east", ["GPU 6"]),
        ("&gpu_model=NVIDIA-H100-80GB-HBM3", ["GPU 3", "GPU 0", "GPU 1", "GPU 2"]),
        ("&uuid=000003", ["GPU 2"]),
        ("&uuid=%00000003", ["GPU 2"]),
        ("&uuid=%25", []),
        ("&node=west-1&health=watch", ["GPU 0", "GPU 1"]),
    ],
)
def test_the_list_can_be_narrowed(admin: Client, query: str, names: list[str]) -> None:
    assert list(lines(admin, query)) == names


def test_an_unknown_health_or_state_is_told(admin: Client) -> None:
    assert "There is no health “poorly”" in words(text_of(admin, f"{LIST}&health=poorly"))
    assert "There is no state “asleep”" in words(text_of(admin, f"{LIST}&state=asleep"))


def test_a_health_to_filter_by_says_how_many_devices_have_it(admin: Client) -> None:
    nav = re.search(r'aria-label="Health to list">(.*?)</nav>', text_of(admin, LIST), re.DOTALL)
    assert nav
    assert words(nav[1]).strip() == "all 8 broken 1 watch 2 ok 4 unseen 1"


def test_what_narrows_can_be_taken_off_and_is_kept_in_other_links(admin: Client) -> None:
    page = html.unescape(text_of(admin, f"{LIST}&node=west-1&uuid=0003"))
    assert re.search(
        r'href="/capacity/gpus/\?[^"]*uuid=0003"[^>]*aria-label="Remove the filter Node', page
    )
    assert re.search(r'href="[^"]*node=west-1&[^"]*health=broken"', page)
    assert "node=west-1&uuid=0003&format=csv&table=devices" in page


def test_sorting_is_by_any_column(admin: Client) -> None:
    found = list(lines(admin, "&devices.sort=-temperature_celsius"))
    assert found[0] == "GPU 0"
    assert found[-1] == "GPU 5"


def test_pages_follow_each_other_without_a_gap_and_a_file_carries_all(
    portal: Portal, admin: Client
) -> None:
    more = [DeviceState(uuid=f"GPU-{n}", node="west-3", index=str(n)) for n in range(220)]
    keep_states(portal.clusters[1], more, LOOKED)
    seen: list[str] = []
    address, pages = LIST, 0
    while address:
        page = text_of(admin, address)
        pages += 1
        seen += re.findall(r'<td role="cell"><a href="/capacity/gpus/[^/"]+/([^/"]+)/', page)
        following = re.search(r'href="([^"#]+)#devices" rel="next"', page)
        address = html.unescape(following[1]) if following else ""
    rows = records_of(admin, f"{LIST}&format=csv&table=devices")
    assert seen == [row["uuid"] for row in rows]
    assert len(rows) == 228
    assert seen[7:10] == ["GPU-0", "GPU-1", "GPU-2"]


def test_a_file_carries_every_column(admin: Client) -> None:
    rows = records_of(admin, f"{LIST}&format=csv&table=devices")
    first = next(row for row in rows if row["uuid"] == FIRST_UUID)
    assert first["tenants"] == "vision/train-0"
    assert first["pci_bus_id"] == "00000000:01:00.0"
    assert first["first_seen"] == "2025-10-26T22:55:00Z"


def test_more_devices_need_no_more_queries(portal: Portal, admin: Client) -> None:
    with CaptureQueriesContext(connection) as before:
        text_of(admin, LIST)
    with CaptureQueriesContext(connection) as of_map:
        text_of(admin, MAP)
    tenants = (DeviceHolder("vision", "train-0"), DeviceHolder("speech", "notes-0"))
    more = [
        DeviceState(uuid=f"GPU-{n}", node=f"node-{n}", tenants=tenants, xid=79) for n in range(40)
    ]
    keep_states(portal.clusters[0], more, LOOKED + timedelta(minutes=5))
    with CaptureQueriesContext(connection) as after:
        text_of(admin, LIST)
    assert len(after) == len(before)
    with CaptureQueriesContext(connection) as after:
        text_of(admin, MAP)
    assert len(after) == len(of_map)


# ---------------------------------------------------------------- nodes


def test_nodes_tell_readiness_and_the_software_on_them(portal: Portal, admin: Client) -> None:
    node = Node.objects.get(cluster=portal.clusters[0], name="west-2")
    NodeInterval.objects.create(
        node=node,
        start=LOOKED,
        ready=False,
        schedulable=True,
        capacity={"nvidia.com/mig-1g.10gb": 7},
        allocatable={"nvidia.com/mig-1g.10gb": 6},
        labels={
            "nvidia.com/cuda.driver-version.full": "580.1",
            "nvidia.com/cuda.runtime.major": "13",
            "nvidia.com/cuda.runtime.minor": "0",
            "nvidia.com/mig.config": "all-1g.10gb",
            "nvidia.com/mig.config.state": "failed",
        },
    )
    rows = records_of(admin, f"{LIST}&node=west-2&format=csv&table=nodes")
    (row,) = rows
    assert row["readiness"] == "not ready"
    assert row["allocatable"] == "6 of 7 mig-1g.10gb"
    assert (row["driver"], row["cuda"]) == ("580.1", "13.0")
    assert row["mig"] == "all-1g.10gb, failed"


def test_without_labels_the_driver_is_that_of_the_devices(admin: Client) -> None:
    (row,) = records_of(admin, f"{LIST}&node=west-1&format=csv&table=nodes")
    assert (row["driver"], row["cuda"], row["readiness"]) == ("580.95.05", "", "")
    assert row["worst_health"] == "broken"


# ---------------------------------------------------------------- unattributed


UNATTRIBUTED = [
    f"/capacity/gpus/?{HOURLY}&tab=nodes",
    f"/admin/data-quality/?{HOURLY}&tab=exporters",
]


@pytest.mark.parametrize("address", UNATTRIBUTED)
def test_nodes_with_unattributed_activity_are_shown_largest_first(
    address: str, portal: Portal, admin: Client
) -> None:
    assert "Unattributed GPU activity" not in text_of(admin, address)
    NodeHour.objects.filter(node__name="west-1").update(unattributed=500_000_000)
    NodeHour.objects.filter(node__name="east-1").update(unattributed=600_000_000)
    table = tables_of(text_of(admin, address))["unattributed"]
    assert [row[0].text for row in table.rows[1:]] == ["east-1", "west-1"]
    assert table.rows[2][-1].text == "GPU 3 (60 %)"


def test_unattributed_activity_is_for_who_sees_everything(
    portal: Portal, signed_in: SignIn
) -> None:
    NodeHour.objects.filter(node__name="west-1").update(unattributed=500_000_000)
    for address in UNATTRIBUTED:
        assert "Unattributed GPU activity" in text_of(signed_in(portal.finn), address)
        assert "Unattributed GPU activity" not in text_of(signed_in(portal.ada), address)


# ---------------------------------------------------------------- who sees what


def test_a_team_sees_the_devices_that_its_pods_are_on_and_counts_the_others_on_them(
    portal: Portal, signed_in: SignIn
) -> None:
    shown = lines(signed_in(portal.ada))
    assert list(shown) == ["GPU 0", "GPU 2", "GPU 4 · 1g.10gb 7"]
    assert "1 pod of other teams" in shown["GPU 2"]
    assert "notes-0" not in text_of(signed_in(portal.ada), LIST)
    assert list(lines(signed_in(portal.dan))) == ["GPU 1", "GPU 2"]


def test_counts_and_files_are_of_what_is_seen(portal: Portal, signed_in: SignIn) -> None:
    client = signed_in(portal.ada)
    nav = re.search(r'aria-label="Health to list">(.*?)</nav>', text_of(client, LIST), re.DOTALL)
    assert nav
    assert words(nav[1]).strip() == "all 3 broken 0 watch 1 ok 2 unseen 0"
    rows = records_of(client, f"{LIST}&format=csv&table=devices")
    assert [row["uuid"] for row in rows] == [uuid_of(1), uuid_of(3), uuid_of(5)]
    assert [row["other_tenants"] for row in rows] == ["0", "1", "0"]


def test_who_is_on_no_team_sees_no_device(db: None, portal: Portal) -> None:
    nobody = Visibility(everything=False)
    assert device_rows(DeviceFilters(), visibility=nobody, now=LOOKED) == []


def test_a_team_sees_its_devices_alone(portal: Portal, db: None) -> None:
    visibility = Visibility(everything=False, team_ids=frozenset({portal.vision.pk}))
    rows = device_rows(DeviceFilters(), visibility=visibility, now=LOOKED)
    assert [row.uuid for row in rows] == [uuid_of(1), uuid_of(3), uuid_of(5)]
    assert len(device_rows(DeviceFilters(), visibility=EVERYTHING, now=LOOKED)) == 8


def test_a_team_needs_few_queries(
    portal: Portal,
    signed_in: SignIn,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    client = signed_in(portal.ada)
    with django_assert_max_num_queries(20):
        text_of(client, LIST)


@pytest.mark.parametrize(("number", "status"), [(1, 200), (2, 404), (3, 200), (4, 404), (99, 404)])
def test_a_device_of_others_looks_like_none(
    number: int, status: int, portal: Portal, signed_in: SignIn
) -> None:
    address = f"/capacity/gpus/west/{uuid_of(number)}/"
    assert signed_in(portal.ada).get(address).status_code == status


# ---------------------------------------------------------------- one device


def test_a_device_explains_its_error_and_who_was_on_its_node(admin: Client) -> None:
    page = words(text_of(admin, f"/capacity/gpus/west/{uuid_of(4)}/"))
    assert "Unavailable since 27 Oct 2025 23:55: XID 79 (hardware)" in page
    assert "XID 79: the GPU no longer answers on its bus" in page
    assert "It mostly comes from the hardware. The exporter says: GPU has fallen off" in page
    assert "It stays after the error." in page
    assert "kubectl describe node west-1" in page


@pytest.mark.parametrize(
    ("tab", "title"), [("", "Co-located pods, last 24h"), ("?tab=pods", "Pods, last 24h")]
)
def test_the_pods_of_its_node_are_drawn_and_listed(tab: str, title: str, admin: Client) -> None:
    page = words(text_of(admin, f"/capacity/gpus/west/{uuid_of(4)}/{tab}"))
    assert title in page
    assert "train-0" in page


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (1, "97 % active over 30 minutes, allocated to vision/train-0. To watch: temperature"),
        (2, "Idle: 5 % active over 30 minutes, allocated to speech/notes-0. To watch: 2 memory"),
        (3, "Underutilized: 40 % active over 30 minutes, allocated to vision-prod/serve-abc and"),
        (4, "Unavailable since 27 Oct 2025 23:55: XID 79 (hardware)"),
        (5, "2 MIG devices: 1 underutilized, 1 unallocated. GPU 4 · 1g.10gb 7: Underutilized"),
        (6, "No metrics since 26 Oct 2025 23:55: no exporter shows it any more."),
    ],
)
def test_a_device_leads_with_its_verdict(admin: Client, number: int, verdict: str) -> None:
    page = text_of(admin, f"/capacity/gpus/west/{uuid_of(number)}/")
    found = re.search(r'<h2 id="verdict-title">(.*?)</h2>', page)
    assert found
    assert html.unescape(found[1]).startswith(verdict)


def test_pods_of_other_teams_are_counted_in_the_verdict(portal: Portal, signed_in: SignIn) -> None:
    page = text_of(signed_in(portal.ada), f"/capacity/gpus/west/{uuid_of(3)}/")
    assert "allocated to vision-prod/serve-abc and 1 more pod." in page


def test_all_instances_of_a_gpu_are_on_its_page(admin: Client) -> None:
    page = text_of(admin, f"/capacity/gpus/west/{uuid_of(5)}/")
    table = page[page.index('<section class="table-block" id="devices"') :]
    assert words(table).count("GPU 4 · 1g.10gb") == 2
    assert "MIG devices" in page


def test_pods_of_other_teams_on_the_node_are_not_named(portal: Portal, signed_in: SignIn) -> None:
    page = text_of(signed_in(portal.ada), f"/capacity/gpus/west/{uuid_of(3)}/")
    assert "serve-abc" in page
    assert "notes-0" not in page


def test_a_name_with_a_slash_and_hostile_labels_are_text(portal: Portal, admin: Client) -> None:
    hostile = "<script>alert(1)</script>"
    state = DeviceState(
        uuid="node-1/gpu0",
        node=hostile,
        model=hostile,
        tenants=(DeviceHolder(hostile, hostile),),
        xid=79,
        xid_message=hostile,
    )
    keep_states(portal.clusters[0], [state], LOOKED + timedelta(minutes=5))
    for address in (LIST, "/capacity/gpus/west/node-1/gpu0/"):
        page = text_of(admin, address)
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page
    assert Device.objects.get(uuid="node-1/gpu0").health == Health.BROKEN.value


def test_a_gpu_links_to_the_dashboard_of_its_node(admin: Client) -> None:
    address = f"/capacity/gpus/west/{uuid_of(1)}/"
    assert "Node dashboard" not in text_of(admin, address)
    west = Cluster.objects.get(name="west")
    template = "https://grafana.example.org/d/{cluster}?var-instance={node}:9100"
    Cluster.objects.filter(pk=west.pk).update(
        prometheus={**west.prometheus, "node_dashboard": template}
    )
    Node.objects.filter(name="west-1").update(name='west-1"&x=<b>')
    Device.objects.filter(node_name="west-1").update(node_name='west-1"&x=<b>')
    page = text_of(admin, address)
    link = "https://grafana.example.org/d/west?var-instance=west-1%22%26x%3D%3Cb%3E:9100"
    assert f'<a href="{link}" rel="noopener noreferrer">Node dashboard</a>' in page
