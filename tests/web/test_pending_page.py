"""The waiting page: what waits and why, in what order, who may see it, and how fresh it is."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.clusters.models import Pod, Workload
from apps.pending.models import Episode, Eviction, RefreshState
from tests.factories import Portal, make_workload
from tests.pending.rows import findings
from tests.web.conftest import LOOKED
from tests.web.pages import check_explained, records_of, text_of
from tests.web.pending import HOUR, look_now, make_episode, make_waiting
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
LIST = "/pending/"


@pytest.fixture
def now(portal: Portal) -> datetime:
    """Let what waits wait now, looked at now."""
    Episode.objects.all().delete()
    at = look_now(portal)
    make_waiting(portal, at)
    return at


def lines(page: str) -> dict[str, str]:
    """Return the rows of the list by the name of the workload, in their order, as text."""
    rows = re.findall(r'<tr role="row">\s*<td(.*?)</tr>', page, re.DOTALL)
    told = [words(f"<td{row}").strip() for row in rows]
    return {line.split(" ")[0]: line for line in told}


def chips(page: str) -> dict[str, str]:
    """Return what the links of causes say, by their ids."""
    found = re.findall(r'<a class="preset" id="cause-([\w-]+)"(.*?)</a>', page, re.DOTALL)
    return {name: words(f"<a{text}").strip() for name, text in found}


def groups(page: str) -> list[str]:
    """Return the heads of the groups, as text."""
    return [words(head).strip() for head in re.findall(r"<summary>\s*<b.*?</summary>", page, re.S)]


def test_each_workload_has_one_row_the_oldest_first(now: datetime, admin: Client) -> None:
    assert list(lines(text_of(admin, LIST))) == ["train", "serve", "notes"]


def test_workloads_stand_under_the_quota_or_reason_that_holds_them(
    now: datetime, admin: Client
) -> None:
    shown = groups(text_of(admin, LIST))
    assert [re.sub(r"oldest \S+ \S+ ", "", head) for head in shown] == [
        "Capacity 1 workload train: Free 2 nvidia.com/gpu on west-1.",
        "vision-prod/gpu-quota west 1 workload +2 admits 1",
        "Configuration issue 1 workload notes: affinity no node matches",
    ]


@pytest.mark.parametrize(
    ("group", "heads"),
    [
        ("quota", ["Capacity", "vision-prod/gpu-quota", "Configuration"]),
        ("team", ["vision", "speech"]),
        ("reason", ["Capacity", "Quota", "Affinity"]),
        ("none", []),
    ],
)
def test_groups_can_be_chosen(group: str, heads: list[str], now: datetime, admin: Client) -> None:
    page = text_of(admin, f"{LIST}?group={group}")
    assert [head.split(" ")[0] for head in groups(page)] == heads
    assert len(lines(page)) == 3


def test_one_change_for_a_group_leads_to_the_request_form_where_one_may_ask(
    now: datetime, portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    (link,) = re.findall(r'group-ask[^>]*href="([^"]+)"', text_of(admin, LIST))
    assert unquote(unescape(link)) == (
        "/quotas/requests/new/"
        "?key=west/ResourceQuota/vision-prod/gpu-quota/requests.nvidia.com/gpu&after=6"
    )
    Episode.objects.filter(name="serve").update(
        workload=make_workload(portal.clusters[0], "speech", "serve")
    )
    member = text_of(signed_in(portal.dan), LIST)
    assert "admits" in member
    assert "/quotas/requests/new/" not in member


def test_a_place_in_a_queue_and_what_admits_all_are_told(
    now: datetime, portal: Portal, admin: Client
) -> None:
    room = {"flavor": "a100", "resource": "nvidia.com/gpu", "free": 0.0, "most": 17.0}
    raised = {
        "action": "raise_queue_quota",
        "change": {
            "cluster_queue": "mig",
            "flavor": "a100",
            "resource": "nvidia.com/gpu",
            "from": 17.0,
            "to": 19.0,
        },
        "sentence": ["raise_for_all", {"more": 2.0, "of": 2}],
    }
    for n, name in enumerate(("late", "early")):
        place = {"place": 2 - n, "of": 2, "queue": "mig", "rooms": [room], "requests": {}}
        make_episode(
            make_workload(portal.clusters[0], "vision", name),
            f"{name}-0",
            since=now - HOUR - n * timedelta(minutes=1),
            cause="queue",
            detail="waiting-for-quota",
            findings={
                "sentences": [["in_line", place]],
                "blockers": ["cluster_queue:mig", "cluster_queue:other"],
                "suggestions": [raised],
            },
        )
    page = text_of(admin, f"{LIST}?name=l&cause=queue")
    assert groups(page) == [
        "mig west 17 of 17 in use 2 workloads oldest 1h 1m +2 admits all 2 pods"
    ]
    shown = lines(page)
    assert list(shown) == ["early", "late"]
    assert "early vision 1 of 2 1 GPU 1h 1m queue no free quota" in shown["early"]


def test_a_row_says_what_it_requests_why_it_is_pending_and_how_to_fix_it(
    now: datetime, admin: Client
) -> None:
    page = text_of(admin, LIST)
    shown = lines(page)
    assert "train vision – 4 GPUs" in shown["train"]
    assert "capacity none free 12 nodes offer nvidia.com/gpu" in shown["train"]
    assert "Free 2 nvidia.com/gpu on west-1." in shown["train"]
    assert "olerate the taint dedicated=vision:NoSchedule" in shown["train"]
    assert "kubectl describe pod train-2 --namespace vision" in shown["train"]
    assert "serve 2 items vision – 3 GPUs 3h 0m quota gpu-quota" in shown["serve"]
    assert "Pod serve-pull starting ImagePullBackOff" in shown["serve"]
    assert "PodGroup notes-gang gang" in shown["notes"]
    assert "/pending/east/uid-notes-gang/" in page


def test_figures_tell_what_is_unscheduled_blocked_and_starting(
    now: datetime, admin: Client
) -> None:
    page = text_of(admin, LIST)
    told = words(page)
    assert "Pending now 3 workloads oldest" in told
    assert "Unscheduled now 13 GPUs" in told
    assert "Blocked now 2 GPUs" in told
    assert "Starting now 1 GPU " in told
    assert chips(page) == {
        "all": "all",
        **{cause: f"{cause} 1" for cause in ("gang", "capacity", "quota", "affinity", "starting")},
    }
    for figure in ("unscheduled_gpus", "blocked_gpus", "starting_gpus"):
        assert f"/explain/{figure}/?window=7d" in page


@pytest.mark.parametrize(
    ("query", "left"),
    [
        pytest.param("cause=quota", ["serve"], id="cause"),
        pytest.param("cause=quota&cause=gang", ["serve", "notes"], id="two causes"),
        pytest.param("kind=PodGroup", ["notes"], id="kind"),
        pytest.param("name=RAI", ["train"], id="part of a name"),
        pytest.param("name=serve-pull", ["serve"], id="name of an item"),
        pytest.param("cluster=east", ["notes"], id="cluster"),
        pytest.param("team=speech&cause=affinity", ["notes"], id="team and cause"),
        pytest.param("tier=gold", ["train"], id="tier"),
        pytest.param("namespace=vision-prod", ["serve"], id="namespace"),
        pytest.param("cause=volume", [], id="none"),
    ],
)
def test_filters_narrow_the_list(query: str, left: list[str], now: datetime, admin: Client) -> None:
    page = text_of(admin, f"{LIST}?{query}")
    assert list(lines(page)) == left
    if not left:
        assert "No pending workload that you may see matches." in page


def test_the_chips_count_what_the_filters_leave(now: datetime, admin: Client) -> None:
    page = text_of(admin, f"{LIST}?kind=PodGroup&cause=gang")
    assert chips(page) == {"all": "all", "gang": "gang 1"}


def test_every_chip_leads_to_rows(now: datetime, admin: Client) -> None:
    page = text_of(admin, LIST)
    for name in set(chips(page)) - {"all"}:
        assert lines(text_of(admin, f"{LIST}?cause={name}")), name


def test_a_chosen_cause_can_be_taken_off_where_nothing_waits_for_it(
    now: datetime, admin: Client
) -> None:
    page = text_of(admin, f"{LIST}?cause=volume")
    assert chips(page)["volume"] == "volume 0"
    assert 'href="/pending/?window=7d"' in page


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("cause=hunger", "There is no cause “hunger”"),
        ("kind=%3Cb%3E", "“<b>” is no kind of Kubernetes such as Pod or Job."),
        ("group=colour", "There is no group “colour”"),
        ("order=best", "There is no order “best”; there are: longest, most."),
    ],
)
def test_what_makes_no_sense_is_said_and_narrows_nothing(
    query: str, said: str, now: datetime, admin: Client
) -> None:
    page = text_of(admin, f"{LIST}?{query}")
    assert said in unescape(page)
    assert len(lines(page)) == 3
    assert "<b>”" not in page


def test_what_requests_most_comes_first_on_demand(now: datetime, admin: Client) -> None:
    page = text_of(admin, f"{LIST}?order=most")
    assert list(lines(page)) == ["notes", "train", "serve"]
    assert re.search(r'id="order-2"[^>]*aria-current="true"', page)


def test_a_page_that_there_is_not_gives_the_nearest(now: datetime, admin: Client) -> None:
    assert len(lines(text_of(admin, f"{LIST}?page=99"))) == 3


def test_pages_follow_each_other_and_the_file_has_all(now: datetime, portal: Portal) -> None:
    client = Client()
    client.force_login(portal.cleo)
    for n in range(47):
        many = make_workload(portal.clusters[0], "vision", f"many-{n:02}")
        make_episode(many, f"many-{n:02}", since=now - n * HOUR, tier=portal.tiers[0])
    first = text_of(client, LIST)
    (link,) = re.findall(r'href="([^"]+)" rel="next"', first)
    assert "1–25 of 50" in first
    second = text_of(client, unescape(link))
    names = [*lines(first), *lines(second)]
    assert len(names) == len(set(names)) == 50
    rows = records_of(client, f"{LIST}?format=csv&table=waiting")
    assert [row["workload"].split("/")[1] for row in rows] == names


def test_the_file_says_what_the_list_says(now: datetime, admin: Client) -> None:
    rows = records_of(admin, f"{LIST}?format=csv&table=waiting")
    names = [row["workload"] for row in rows]
    assert names == ["Job/train", "Deployment/serve", "StatefulSet/notes"]
    row = rows[0]
    assert (row["group"], row["items"], row["gpu_equivalents"]) == ("Capacity", "1", "4")
    assert (row["cause"], row["detail"], row["counts"]) == ("capacity", "none free", "pending")
    assert row["suggestion"] == "Free 2 nvidia.com/gpu on west-1."
    assert row["message"].startswith("0/12 nodes are available")


def test_what_has_claims_that_nobody_saw_has_no_size(now: datetime, admin: Client) -> None:
    Episode.objects.filter(name="train-2").update(
        resource="", units=0.0, gpu_equivalents=0.0, counted=0.0
    )
    assert "train vision – no data" in lines(text_of(admin, LIST))["train"]
    row = records_of(admin, f"{LIST}?format=csv&table=waiting")[0]
    assert (row["workload"], row["gpu_equivalents"]) == ("Job/train", "")
    page = words(text_of(admin, "/pending/west/uid-train-2/"))
    assert "it requests GPUs (no data on their size) on gold" in page
    assert "0 GPUs" not in page


# ---------------------------------------------------------------- how fresh it is


def test_nobody_waits_is_said_only_where_that_is_known(portal: Portal, admin: Client) -> None:
    Episode.objects.all().delete()
    outage = text_of(admin, LIST)
    assert "No pending workloads." not in outage
    assert "but the data is incomplete" in outage
    look_now(portal)
    assert "No pending workloads." in text_of(admin, LIST)


def test_an_outage_of_the_watch_looks_like_an_outage(portal: Portal, admin: Client) -> None:
    page = text_of(admin, LIST)
    assert "Pending workloads of west are shown as of" in page
    assert "27 Oct 2025 23:55" in words(page)
    assert page.count("not watched now") == len(lines(page)) > 0


def test_a_look_that_failed_is_told_and_its_error_is_for_admins(
    now: datetime, portal: Portal, signed_in: SignIn
) -> None:
    RefreshState.objects.filter(cluster=portal.clusters[0]).update(error="a table is <locked>")
    shown = text_of(signed_in(portal.cleo), LIST)
    assert "a table is &lt;locked&gt;" in shown
    assert "Pending workloads of west are shown as of" in shown
    assert "Pending workloads of east" not in shown
    assert "locked&gt;" not in text_of(signed_in(portal.ada), LIST)


def test_a_cluster_that_was_never_looked_at_is_told(now: datetime, portal: Portal) -> None:
    RefreshState.objects.filter(cluster=portal.clusters[1]).delete()
    client = Client()
    client.force_login(portal.cleo)
    page = text_of(client, LIST)
    assert "No data yet on pending workloads of east" in page
    assert "on east" not in text_of(client, f"{LIST}?cluster=west")


# ---------------------------------------------------------------- who sees what


def test_who_is_on_a_team_sees_pending_work_of_it_and_sums_of_others(
    now: datetime, portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.dan), LIST)
    assert list(lines(page)) == ["notes"]
    assert chips(page) == {"all": "all", "gang": "gang 1", "affinity": "affinity 1"}
    for hidden in ("train-2", "vision-prod", "gpu-quota", "uid-train", "Job/train", "west-1"):
        assert hidden not in page
    rows = records_of(signed_in(portal.dan), f"{LIST}?format=csv&table=waiting")
    assert [row["workload"] for row in rows] == ["StatefulSet/notes"]


def test_a_namespace_of_others_gives_no_sums(
    now: datetime, portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.dan), f"{LIST}?namespace=vision-prod")
    assert "There is no namespace “vision-prod” that you may see." in page


def test_who_has_nothing_that_waits_is_told_so(
    now: datetime, portal: Portal, signed_in: SignIn
) -> None:
    Episode.objects.filter(workload__namespace__name="speech").delete()
    page = text_of(signed_in(portal.dan), LIST)
    assert "Your teams have no pending workloads." in page
    assert "capacity" not in chips(page)


def test_hostile_texts_are_shown_as_text(now: datetime, portal: Portal, admin: Client) -> None:
    bad = '<img src=x onerror="alert(1)">'
    train = make_workload(portal.clusters[0], "vision", "train")
    make_episode(
        train,
        "evil",
        uid="evil",
        since=now - HOUR,
        cause="other",
        detail=bad,
        message=bad,
        resource=bad,
        queue=bad,
        findings=findings(
            bad,
            context=[bad],
            node_reasons={bad: 3},
            suggestions=[{"action": "tolerate", "text": bad, "change": {"key": bad, "value": bad}}],
        ),
    )
    for address in (LIST, "/pending/west/evil/", "/workloads/west/vision/Job/train/"):
        page = text_of(admin, address)
        assert "<img" not in page
    assert "&lt;img" in text_of(admin, LIST)


# ---------------------------------------------------------------- the past


def test_the_past_is_told_by_day_cause_and_tier(
    now: datetime, portal: Portal, admin: Client
) -> None:
    Episode.objects.all().delete()
    west, gold = portal.clusters[0], portal.tiers[0]
    train = make_workload(west, "vision", "train")
    day = datetime(2025, 10, 25, 8, tzinfo=LOOKED.tzinfo)
    for n in range(4):
        make_episode(
            train,
            f"past-{n}",
            since=day,
            until=day + (n + 1) * HOUR,
            outcome="started",
            tier=gold,
            units=2.0,
            cause=("capacity", "taint", "volume", "capacity")[n],
        )
    make_episode(
        train, "held", kind="Job", since=day, until=day + HOUR, cause="quota", counts="suppressed"
    )
    page = text_of(admin, f"{LIST}?tab=history&first=2025-10-24&last=2025-10-26")
    tables = tables_of(page)
    by_cause = {row[0].text: [c.text for c in row[1:]] for row in tables["causes"].rows[1:]}
    assert by_cause["capacity"] == ["capacity", "10.0", "0.0", "0.0", "2", "2"]
    assert by_cause["taint"][:2] == ["configuration issue", "4.0"]
    assert by_cause["quota"] == ["quota", "0.0", "1.0", "0.0", "1", "1"]
    assert by_cause["Total"][1] == "20.0"
    (tier,) = [row for row in tables["tiers"].rows if row[0].text == "gold"]
    assert [cell.text for cell in tier][6:9] == ["4", "2h 0m", "4h 0m"]
    days = {row[0].text: [c.text for c in row[1:]] for row in tables["history"].rows[1:]}
    # 21 GPU-hours of a day of 24 hours, the one that was blocked at admission included.
    assert days["25 Oct 2025"] == ["0.42", "0.04", "0.42"]
    assert days["24 Oct 2025"] == ["0", "0", "0"]
    assert "Pending by cause, average GPUs." in page
    page = text_of(admin, f"{LIST}?first=2025-10-24&last=2025-10-26")
    rows = tables_of(page)["queue-times-table"].rows[1:]
    times = {row[0].text: [c.text for c in row[1:]] for row in rows}
    assert times == {"25 Oct 2025": ["4", "2h 0m", "4h 0m"]}


def test_evicted_hours_stand_beside_with_their_rate(portal: Portal, admin: Client) -> None:
    pod = Pod.objects.get(name="train-0")
    Eviction.objects.create(
        cluster=pod.cluster,
        pod_uid="gone",
        workload=pod.workload,
        tier=pod.tier,
        at=LOOKED - timedelta(days=1),
        gpu_equivalents=4.0,
        held=36_000_000_000,
    )
    rows = records_of(
        admin, f"{LIST}?tab=history&first=2025-10-26&last=2025-10-26&format=csv&table=tiers"
    )
    (gold,) = [row for row in rows if row["tier"] == "gold"]
    assert (gold["evicted_pods"], gold["preempted_gpu_hours"]) == ("1", "36")
    assert 0 < float(gold["eviction_rate_ratio"]) < 1
    found = check_explained(admin, f"{LIST}?tab=history&first=2025-10-26&last=2025-10-26")
    assert found >= {"evicted_pods", "preempted_gpu_hours", "reclaimed_gpu_hours", "eviction_rate"}


def test_a_window_in_which_nothing_waited_says_so(now: datetime, admin: Client) -> None:
    page = text_of(admin, f"{LIST}?tab=history&first=2025-01-01&last=2025-01-03")
    assert "No pending work is known in this window." in page
    page = text_of(admin, f"{LIST}?first=2025-01-01&last=2025-01-03")
    assert "No pod started in this window." in page


@pytest.mark.parametrize(
    ("person", "query", "whose", "p95"),
    [
        pytest.param("admin", "", "all teams", "4h 0m", id="all"),
        pytest.param("admin", "&team=speech", "speech", "3h 0m", id="a team"),
        pytest.param("dan", "", "your teams", "3h 0m", id="who sees one team"),
    ],
)
def test_queue_times_are_of_the_teams_that_are_listed(
    person: str,
    query: str,
    whose: str,
    p95: str,
    portal: Portal,
    signed_in: SignIn,
    admin: Client,
) -> None:
    Episode.objects.all().delete()
    now = look_now(portal)
    for space, hours in (("vision", 4), ("speech", 3)):
        own = make_workload(portal.clusters[0], space, "past")
        make_episode(own, space, since=now - hours * HOUR, until=now, outcome="started")
    client = admin if person == "admin" else signed_in(portal.dan)
    page = text_of(client, f"{LIST}?window=7d{query}")
    rows = tables_of(page)["queue-times-table"].rows[1:]
    assert [row[3].text for row in rows] == [p95]
    told = words(page)
    assert f"p95 queue time today {p95} p50 3h 0m, {whose}" in told
    assert f"from creation to start, {whose}." in told


def test_partially_admitted_jobs_have_a_tab(portal: Portal, admin: Client) -> None:
    partial = f"{LIST}?tab=partial"
    assert "No job holds GPUs while pods that it needs are pending." in text_of(admin, partial)
    at = look_now(portal)
    gang = make_workload(portal.clusters[0], "vision", "halved", "MPIJob")
    for n, bound in enumerate((at - 3 * HOUR, None)):
        Pod.objects.create(
            cluster=portal.clusters[0],
            workload=gang,
            name=f"halved-{n}",
            uid=f"uid-halved-{n}",
            resource="nvidia.com/gpu",
            units=2.0,
            gpu_equivalents=2.0,
            source="api",
            tier=portal.tiers[0],
            created_at=at - 4 * HOUR,
            bound_at=bound,
            node_name="west-1" if bound else "",
        )
    make_episode(gang, "halved-1", since=at - 4 * HOUR, tier=portal.tiers[0], units=2.0)
    page = text_of(admin, partial)
    (row,) = tables_of(page)["gangs"].rows[1:]
    assert [cell.text for cell in row][:9] == [
        *("MPIJob/halved", "west", "vision", "vision", "gold", "1", "2", "1", "2"),
    ]


# ---------------------------------------------------------------- how it is served


def test_more_that_waits_needs_no_more_queries(
    now: datetime, portal: Portal, admin: Client
) -> None:
    with CaptureQueriesContext(connection) as before:
        text_of(admin, LIST)
    for n in range(30):
        space = make_workload(portal.clusters[n % 2], f"vision-{n}", f"job-{n}")
        make_episode(space, f"more-{n}", since=now - HOUR, tier=portal.tiers[n % 2])
    cache.clear()  # what was remembered would hide how many queries it takes
    with CaptureQueriesContext(connection) as after:
        text_of(admin, LIST)
    assert len(after) == len(before)


@pytest.mark.parametrize(("tab", "most"), [("partial", 20), ("history", 36)])
def test_a_tab_needs_few_queries(
    tab: str, most: int, now: datetime, admin: Client, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(most):
        text_of(admin, f"{LIST}?tab={tab}")


def test_five_thousand_workloads_are_listed_a_page_at_a_time(
    now: datetime, portal: Portal, admin: Client
) -> None:
    space = make_workload(portal.clusters[0], "vision", "train").namespace
    Workload.objects.bulk_create(
        Workload(namespace=space, kind="Job", name=f"job-{n}") for n in range(5000)
    )
    Episode.objects.bulk_create(
        Episode(
            cluster=portal.clusters[0],
            workload=workload,
            kind="Pod",
            uid=f"uid-{n}",
            name=f"pod-{n}",
            since=now - n * timedelta(seconds=1),
            cause="capacity",
            counts="pending",
            gpu_equivalents=1.0,
            counted=1.0,
        )
        for n, workload in enumerate(Workload.objects.filter(name__startswith="job-"))
    )
    page = text_of(admin, LIST)
    assert len(lines(page)) == 25
    assert chips(page)["capacity"] == "capacity 5001"
    assert len(records_of(admin, f"{LIST}?format=csv&table=waiting")) == 5003


def test_htmx_gets_the_results_alone(now: datetime, admin: Client) -> None:
    page = admin.get(LIST, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in page
    assert "Pending workloads" in words(page)


def test_the_list_fetches_itself_with_what_is_chosen(now: datetime, admin: Client) -> None:
    page = unescape(text_of(admin, f"{LIST}?team=vision&group=team"))
    (tag,) = re.findall(r'<div id="pending-now"[^>]*>', page)
    assert 'hx-get="/pending/?window=7d&team=vision&group=team"' in tag
    assert "every 60s" in tag
    assert re.search(r"live · <span data-as-of>\d\d:\d\d<", page)


def test_what_was_looked_at_a_while_ago_is_not_called_live(now: datetime, admin: Client) -> None:
    RefreshState.objects.update(at=now - timedelta(minutes=8))
    page = unescape(text_of(admin, LIST))
    assert "live ·" not in page
    assert re.search(r"as of <span data-as-of>\d\d:\d\d<", page)


def test_what_is_narrowed_here_stays_in_the_links_of_the_page(now: datetime, admin: Client) -> None:
    page = unescape(text_of(admin, f"{LIST}?window=30d&team=vision&cause=quota"))
    assert "/pending/?window=30d&team=vision&cause=gang" not in page  # nothing of vision
    assert "/pending/?window=30d&team=vision&cause=capacity" in page
    assert "/pending/west/uid-serve/?window=30d&team=vision" in page
    assert "/pending/?window=30d&team=vision&cause=quota&order=most" in page


def test_the_lists_of_what_pends_longest_tell_the_cause(now: datetime, admin: Client) -> None:
    for path in ("/capacity/tiers/gold/", "/capacity/teams/vision/"):
        page = text_of(admin, f"{path}?tab=pending")
        (row,) = (r for r in tables_of(page)["pending"].rows if r[0].text == "train")
        assert "capacity" in [cell.text for cell in row]
        assert '/pending/west/uid-train-2/?window=7d"' in page
