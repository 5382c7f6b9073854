"""The page of one waiting thing: the answer, what would help, who is in front, how it came."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.pending.models import CauseInterval, Episode
from tests.factories import Portal, make_workload
from tests.web.pages import records_of, text_of
from tests.web.pending import HOUR, look_now, make_episode, make_waiting
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
TRAIN = "/pending/west/uid-train-2/"


@pytest.fixture
def waiting(portal: Portal) -> dict[str, Episode]:
    """Let what waits wait now, looked at now."""
    Episode.objects.all().delete()
    return make_waiting(portal, look_now(portal))


def test_the_answer_comes_first_in_plain_sentences(
    waiting: dict[str, Episode], admin: Client
) -> None:
    page = words(text_of(admin, TRAIN))
    assert "it requests 4 GPUs on gold." in page
    assert "12 nodes offer nvidia.com/gpu and none has 4 free; the most is 2." in page
    command = "kubectl describe pod train-2 --namespace vision"
    assert page.index("none has 4 free") < page.index("How to fix") < page.index(command)
    assert page.index(command) < page.index("Scheduler message")


def test_what_fixes_is_in_order_with_something_to_paste(
    waiting: dict[str, Episode], admin: Client
) -> None:
    page = text_of(admin, TRAIN)
    told = words(page)
    assert "Free 2 nvidia.com/gpu on west-1. For the platform admin." in told
    assert "Also needed: Tolerate the taint dedicated=vision:NoSchedule of west-1." in told
    (code,) = re.findall(r'<code id="help-2">(.*?)</code>', page, re.S)
    assert unescape(code) == (
        'tolerations:\n- key: "dedicated"\n  operator: Equal\n  value: "vision"\n'
        '  effect: "NoSchedule"'
    )
    assert 'data-copy="help-2"' in page


def test_pods_of_other_teams_are_not_named_by_what_fixes(
    waiting: dict[str, Episode], portal: Portal, signed_in: SignIn, admin: Client
) -> None:
    change = {"resource": "nvidia.com/gpu", "amount": 2.0, "nodes": ["west-1"]}
    change |= {"holders": ["speech/secret-0"]}
    Episode.objects.filter(pk=waiting["train-2"].pk).update(
        findings={"suggestions": [{"action": "free", "change": change}]}
    )
    mine = signed_in(portal.ada)
    pod = f"/pods/west/{waiting['train-2'].uid}/"
    workload = "/workloads/west/vision/Job/train/"
    assert "held by speech/secret-0" in words(text_of(admin, TRAIN))
    for page in (TRAIN, "/pending/", pod, workload):
        response = mine.get(page)
        told = response.content.decode()
        assert (page, response.status_code) == (page, 200)
        assert "secret-0" not in told, page
    assert "Free 2 nvidia.com/gpu on west-1." in words(text_of(mine, TRAIN))


def test_what_the_scheduler_counted_is_of_all_nodes_and_never_added_up(
    waiting: dict[str, Episode], admin: Client
) -> None:
    page = text_of(admin, TRAIN)
    told = words(page)
    assert "Insufficient nvidia.com/gpu 9 of 12" in told
    assert "node(s) had untolerated taint {dedicated: vision} 3 of 12" in told
    assert "0/12 nodes are available: 3 node(s)" in told
    assert "cluster-autoscaler: 2 max node group size reached" in told


def test_its_causes_over_time_and_earlier_waits_are_kept(
    waiting: dict[str, Episode], admin: Client
) -> None:
    episode = waiting["train-2"]
    first = episode.since
    CauseInterval.objects.filter(episode=episode).update(start=first + HOUR)
    CauseInterval.objects.create(
        episode=episode, start=first, end=first + HOUR, cause="scheduler", counts="pending"
    )
    tables = tables_of(text_of(admin, f"{TRAIN}?tab=history"))
    shown = [[cell.text for cell in row] for row in tables["timeline"].rows[1:]]
    assert [row[0] for row in shown] == ["scheduler", "capacity"]
    assert (shown[0][3], shown[0][4]) == ("20 Oct 2025 03:00", "1h 0m")
    assert shown[1][3] == "–"
    (earlier,) = tables["earlier"].rows[1:]
    assert [c.text for c in earlier][2:5] == [
        "1h 0m",
        "was canceled before start",
        "capacity",
    ]


def test_who_is_in_front_is_told_by_team_and_by_pod(
    waiting: dict[str, Episode], admin: Client
) -> None:
    page = text_of(admin, f"{TRAIN}?tab=ahead")
    tables = tables_of(page)
    teams = {row[0].text: [c.text for c in row[1:3]] for row in tables["front"].rows[1:]}
    assert teams == {"speech": ["1", "1"], "vision": ["2", "5"]}
    pods = {row[0].text for row in tables["holders"].rows[1:]}
    assert pods == {"train-0", "serve-abc", "notes-0"}
    assert "/pods/west/uid-train-0/" in page


def test_pods_in_front_of_other_teams_are_sums_alone(
    waiting: dict[str, Episode], portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.ben), f"{TRAIN}?tab=ahead")
    tables = tables_of(page)
    assert {row[0].text for row in tables["front"].rows[1:]} == {"speech", "vision"}
    assert {row[0].text for row in tables["holders"].rows[1:]} == {"train-0", "serve-abc"}
    assert "notes-0" not in page
    rows = records_of(signed_in(portal.ben), f"{TRAIN}?format=csv&table=holders")
    assert {row["pod"] for row in rows} == {"train-0", "serve-abc"}


@pytest.mark.parametrize(
    "address",
    ["/pending/west/uid-train-2/", "/pending/west/nothing/", "/pending/nowhere/uid-train-2/"],
)
def test_what_may_not_be_seen_looks_like_what_is_not_there(
    address: str, waiting: dict[str, Episode], portal: Portal, signed_in: SignIn
) -> None:
    response = signed_in(portal.dan).get(address)
    assert response.status_code == 404
    assert "you may not see it" in unescape(response.content.decode())


def test_the_typical_wait_is_a_range_where_enough_is_known(
    waiting: dict[str, Episode], portal: Portal, admin: Client
) -> None:
    fewer = "no data fewer than 5 pods that requested 4 × nvidia.com/gpu on gold, last 30 days"
    assert fewer in words(text_of(admin, TRAIN))
    at = look_now(portal)
    train = make_workload(portal.clusters[0], "vision", "train")
    for n in range(1, 11):
        make_episode(
            train,
            f"before-{n}",
            since=at - timedelta(days=2),
            until=at - timedelta(days=2) + n * HOUR,
            outcome="started",
            tier=portal.tiers[0],
            units=4.0,
        )
    told = words(text_of(admin, TRAIN))
    assert "p50 5h 0m, p95 10h 0m 10 pods that requested 4 × nvidia.com/gpu on gold" in told


@pytest.mark.parametrize(
    ("address", "said"),
    [
        pytest.param(
            "/pending/west/uid-serve/",
            "ReplicaSet serve has been blocked at admission for",
            id="held back",
        ),
        pytest.param(
            "/pending/west/uid-serve-pull/",
            "Pod serve-pull has 1 GPU on silver and has not started: created 3h 0m ago.",
            id="starting",
        ),
        pytest.param(
            "/pending/east/uid-notes-gang/",
            "No cause could be determined. See the scheduler message below.",
            id="nothing said",
        ),
        pytest.param("/pending/east/uid-notes-1/", "for the workload owner to fix", id="to mend"),
    ],
)
def test_the_words_suit_what_it_is(
    address: str, said: str, waiting: dict[str, Episode], admin: Client
) -> None:
    assert said in words(text_of(admin, address))


def test_what_lost_its_gpus_waits_again(waiting: dict[str, Episode], admin: Client) -> None:
    Episode.objects.filter(pk=waiting["train-2"].pk).update(again=True)
    assert "Pod train-2 lost its GPUs and has been pending again" in text_of(admin, TRAIN)


def test_what_is_over_says_how_it_ended_and_requests_nothing(
    waiting: dict[str, Episode], admin: Client
) -> None:
    since = waiting["train-2"].since
    Episode.objects.filter(pk=waiting["train-2"].pk).update(until=since + HOUR, outcome="started")
    page = words(text_of(admin, TRAIN))
    assert (
        "Pod train-2 was pending for 1h 0m, requested 4 GPUs on gold, and started at "
        "20 Oct 2025 03:00." in (page)
    )
    assert "How to fix" not in page
    assert "kubectl" not in page
    assert "Blocking teams" not in page


def test_files_from_before_there_were_tabs_are_there(
    waiting: dict[str, Episode], admin: Client
) -> None:
    for table in ("front", "holders", "timeline", "earlier"):
        assert records_of(admin, f"{TRAIN}?format=csv&table={table}"), table


def test_something_with_pods_lists_them(waiting: dict[str, Episode], admin: Client) -> None:
    page = text_of(admin, "/pending/east/uid-notes-gang/?tab=pods")
    assert "Its pods of the last 7 days" in page
    assert "notes-east-0" in page


def test_a_thing_of_an_unwatched_cluster_says_that_it_may_have_started(
    portal: Portal, admin: Client
) -> None:
    page = words(text_of(admin, TRAIN))
    assert "west is not watched now, or the last refresh failed." in page
    assert "This is as of 27 Oct 2025 23:55" in page


def test_the_pod_and_its_workload_say_why_it_waits(
    waiting: dict[str, Episode], admin: Client
) -> None:
    for path in ("/pods/west/uid-train-2/", "/workloads/west/vision/Job/train/"):
        page = text_of(admin, path)
        told = words(page)
        assert "Pending: 12 nodes offer nvidia.com/gpu and none has 4 free" in told, path
        assert "How to fix: Free 2 nvidia.com/gpu on west-1." in told, path
        assert f'href="{TRAIN}?' in page, path
    for path in ("/pods/west/uid-train-0/", "/workloads/east/speech/StatefulSet/nothing/"):
        assert "Why it waits" not in admin.get(path).content.decode(), path


def test_a_page_of_one_thing_needs_few_queries(
    waiting: dict[str, Episode],
    admin: Client,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    gang = "/pending/east/uid-notes-gang/"
    for address, most in (
        (TRAIN, 15),
        (f"{TRAIN}?tab=ahead", 20),
        (f"{TRAIN}?tab=history", 15),
        (gang, 15),
        (f"{gang}?tab=pods", 20),
    ):
        with django_assert_max_num_queries(most):
            text_of(admin, address)


def test_the_first_minute_of_a_day_is_shown(
    portal: Portal, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = signed_in(portal.dan)
    zone = ZoneInfo("Europe/Berlin")
    at = datetime.combine(datetime.now(zone).date(), time(0, 0, 9), zone).astimezone(UTC)
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)
    assert member.get("/pending/?first=2025-10-25&last=2025-10-27").status_code == 200
