"""The goodput ledger from the database: as the usage ledger has it, and who sees what of it."""

import csv
import json
import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod
from apps.goodput.domain.ledger import LossCause
from apps.goodput.selectors import GoodputLedger, goodput_ledger
from apps.pending.models import Episode
from apps.pending.selectors import own_queue_times
from apps.usage.domain.amounts import NANO
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import (
    Filters,
    Grouping,
    GroupingRefused,
    TimeStep,
    UsageQuery,
    whole_days,
)
from apps.usage.models import CollectionWindow
from apps.usage.selectors import usage_rows
from tests.factories import Portal, make_portal, make_workload
from tests.pending.pending_portal import at_most
from tests.pending.rows import make_episode
from tests.shared_rows import copy_of, shared
from tests.web.pages import records_of
from tests.web.shown import figures_of

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LAST = date(2026, 3, 10)
OVER_TIME = "/capacity/goodput/?start=2026-03-08&end=2026-03-11"
SINCE = datetime(2026, 3, 1, tzinfo=UTC)
CRASH = datetime(2026, 3, 9, 10, 30, tzinfo=UTC)


def fill() -> Portal:
    """Three days: `train-0` crashed and ran on, `notes-0` was preempted, `bare` was deleted."""
    made = make_portal(since=SINCE)
    restarted = [[SINCE.timestamp(), CRASH.timestamp()], [CRASH.timestamp(), None]]
    _change(made, "train-0", runs=restarted)
    _change(made, "notes-0", ended_at=CRASH, end_reason="PreemptionByScheduler")
    _change(made, "bare", ended_at=CRASH, end_reason="Deleted")
    made.collect(whole_days(LAST - timedelta(days=1), 2, made.zone))
    made.collect(whole_days(LAST, 1, made.zone), rolled=False)
    return made


_portal = shared(fill)
portal = copy_of("_portal")


def _change(portal: Portal, name: str, **values: object) -> None:
    Pod.objects.filter(name=name).update(**values)
    pod = next(pod for pod in portal.pods if pod.name == name)
    for key, value in values.items():
        setattr(pod, key, value)


def window_of(portal: Portal) -> Window:
    return whole_days(LAST, 3, portal.zone)


def read(
    window: Window, *by: Grouping, visibility: Visibility = EVERYTHING, **filters: tuple[str, ...]
) -> GoodputLedger:
    return goodput_ledger(window, group_by=by, filters=Filters(**filters), visibility=visibility)


GROUPINGS: tuple[tuple[Grouping, ...], ...] = (
    *(() if one is None else (one,) for one in (None, *Grouping)),
    (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TEAM),
)


@pytest.mark.parametrize("by", GROUPINGS, ids=lambda by: "-".join(by) or "total")
def test_each_grouping_has_what_the_usage_ledger_has(
    portal: Portal, by: tuple[Grouping, ...]
) -> None:
    window = window_of(portal)
    found = read(window, *by)
    held = usage_rows(UsageQuery(window, group_by=by), visibility=EVERYTHING)
    assert {tuple(row.groups.values()): row.amounts.allocated for row in found.rows} == {
        tuple(row.groups.values()): row.amounts.allocated for row in held if row.amounts.allocated
    }
    for row in found.rows:
        assert row.amounts.allocated == sum(row.amounts[1:])
        assert min(row.amounts) >= 0
    assert found.total == read(window).total
    # `train-0` ran on four GPUs until its crash, `notes-0` on one until it was preempted.
    ran = (CRASH - window.start) / HOUR
    assert found.total.lost / NANO == pytest.approx(5 * ran + 0.5, abs=1e-6)


def test_reasons_say_what_was_lost(portal: Portal) -> None:
    found = read(window_of(portal)).reasons
    assert [(one.cause, one.reason, one.events, one.pods) for one in found] == [
        (LossCause.EXIT, "Restarted", 1, 1),
        (LossCause.PREEMPTION, "PreemptionByScheduler", 1, 1),
    ]
    assert sum(one.lost_gpu_hours for one in found) * NANO == pytest.approx(
        read(window_of(portal)).total.lost
    )


def test_work_that_is_lost_later_is_lost_in_the_days_before(portal: Portal) -> None:
    window = Window(window_of(portal).start, CRASH.replace(minute=0) - HOUR)
    assert read(window).total.lost == 5 * window.seconds / 3600 * NANO


@pytest.mark.parametrize("by", GROUPINGS, ids=lambda by: "-".join(by) or "total")
def test_a_reader_sees_the_work_of_their_teams_alone(
    portal: Portal, by: tuple[Grouping, ...]
) -> None:
    window = window_of(portal)
    own = read(window, *by, visibility=visibility_of(portal.dan))
    assert own.total == read(window, team=("speech",)).total
    assert [one.reason for one in own.reasons] == ["PreemptionByScheduler"]
    assert read(window, *by, visibility=Visibility(everything=False)) == GoodputLedger((), ())
    others = read(window, *by, visibility=visibility_of(portal.dan), team=("vision",))
    assert others == GoodputLedger((), ())


def test_where_no_watch_saw_the_pods_lost_has_no_data(portal: Portal) -> None:
    """As before the first watch: series tell of no restart and no preemption."""
    window, names = window_of(portal), ("notes-0", "train-0")
    seen = read(window, Grouping.TEAM)
    assert all(row.is_watched and row.unwatched_gpu_hours == 0 for row in seen.rows)
    Pod.objects.update(observed_until=window.end, runs=[])
    Pod.objects.filter(name__in=names).update(end_reason="")
    none = read(window, Grouping.TEAM)
    assert not none.is_watched
    assert {(row.lost_gpu_hours, row.goodput_ratio) for row in none.rows} == {(None, None)}
    assert none.unwatched == none.total.allocated == seen.total.allocated
    client = Client()
    client.force_login(portal.cleo)
    span = {"start": "2026-03-08", "end": "2026-03-11"}
    rows = client.get("/api/v1/goodput", {**span, "group_by": "team"}).json()["results"]
    assert {row["lost_gpu_hours"] for row in rows} == {None}
    page = client.get("/capacity/goodput/", span).content.decode()
    assert "No watch saw restarts and ends of these pods." in page
    assert "No work was lost" not in page
    # Nothing is known by period either: the chart has no bar of zero, and its file no figure.
    assert "Lost: no data in 72 of 72 periods." in page
    (figure,) = re.findall(r'<script id="goodput-over-time-figure"[^>]*>(.*?)</script>', page)
    assert "Lost" not in {trace["name"] for trace in json.loads(figure)["data"]}
    rows = records_of(client, f"{OVER_TIME}&format=csv&table=goodput-over-time")
    assert [row["lost"] for row in rows] == [""] * 72
    assert sum(float(row["unwatched"]) for row in rows) == pytest.approx(none.unwatched / NANO)
    assert all(float(row["productive"]) > 0 for row in rows)


def test_a_period_that_a_watch_saw_in_part_has_what_it_saw(portal: Portal) -> None:
    """`bare` is watched, and gone after the crash: from then on nothing is known."""
    window = window_of(portal)
    Pod.objects.exclude(name="bare").update(observed_until=window.end, runs=[], end_reason="")
    found = goodput_ledger(
        *(window,),
        group_by=(),
        filters=Filters(),
        visibility=EVERYTHING,
        interval=TimeStep.HOUR,
    )
    assert found.is_watched
    lost = {at: row.lost_gpu_hours for at, row in found.periods.items()}
    assert lost == {at: 0 if at <= CRASH else None for at in found.periods}
    assert sum(row.unwatched for row in found.periods.values()) == found.unwatched


def test_what_a_watch_saw_of_some_pods_is_told_beside_what_it_did_not(portal: Portal) -> None:
    window = window_of(portal)
    Pod.objects.filter(name="bare").update(lost=True)
    found = read(window)
    (row,) = found.rows
    assert row.is_watched
    assert row.lost_gpu_hours == pytest.approx(found.total.lost / NANO)
    assert 0 < row.unwatched_gpu_hours < row.allocated_gpu_hours
    # A failure that series show is known without a watch.
    Pod.objects.filter(name="notes-0").update(observed_until=window.end, end_reason="OOMKilled")
    Pod.objects.exclude(name="notes-0").update(observed_until=window.end, runs=[], end_reason="")
    found = read(window)
    assert (found.is_watched, found.unwatched) == (True, found.total.allocated)
    assert [one.reason for one in found.reasons] == ["OOMKilled"]


@pytest.mark.parametrize("interval", [TimeStep.HOUR, TimeStep.DAY])
def test_periods_sum_to_the_window(portal: Portal, interval: TimeStep) -> None:
    window = window_of(portal)
    found = goodput_ledger(
        window, group_by=(), filters=Filters(), visibility=EVERYTHING, interval=interval
    )
    assert len(found.periods) == (3 if interval is TimeStep.DAY else 72)
    amounts = [row.amounts for row in found.periods.values()]
    sums = [sum(column) for column in zip(*amounts, strict=True)]
    assert sums == list(found.total)
    # Nothing is lost after the crash, and all that the two pods ran before it is.
    assert [bool(part.lost) for part in amounts] == [at <= CRASH for at in found.periods]


@pytest.mark.parametrize("interval", ["hour", "day", "week", "month"])
def test_the_api_has_what_the_chart_and_the_groups_have(portal: Portal, interval: str) -> None:
    client = Client()
    client.force_login(portal.cleo)
    span = {"start": "2026-03-08", "end": "2026-03-11", "interval": interval}
    whole = goodput_ledger(
        *(window_of(portal),),
        group_by=(Grouping.TEAM,),
        filters=Filters(),
        visibility=EVERYTHING,
        interval=TimeStep(interval),
    )
    rows = client.get("/api/v1/goodput", {**span, "page_size": "500"}).json()["results"]
    assert {datetime.fromisoformat(row["period"]): row["lost_gpu_hours"] for row in rows} == {
        at: row.lost_gpu_hours for at, row in whole.periods.items()
    }
    by_team = client.get("/api/v1/goodput", {**span, "group_by": "team", "page_size": "500"}).json()
    assert by_team["next"] is None
    sums: defaultdict[str, float] = defaultdict(float)
    for row in by_team["results"]:
        sums[row["team"]] += row["lost_gpu_hours"]
    assert sums == pytest.approx({row.groups["team"]: row.lost_gpu_hours for row in whole.rows})
    assert [row["period"] for row in by_team["results"]] == sorted(
        row["period"] for row in by_team["results"]
    )
    file = client.get("/api/v1/goodput", {**span, "format": "csv"})
    head, *lines = csv.reader(file.getvalue().decode().splitlines())
    assert head[0] == "period"
    assert len(lines) == len(rows)


def test_without_an_interval_the_api_has_the_total(portal: Portal) -> None:
    client = Client()
    client.force_login(portal.cleo)
    span = {"start": "2026-03-08", "end": "2026-03-11"}
    (row,) = client.get("/api/v1/goodput", span).json()["results"]
    assert row["period"] is None
    assert row["lost_gpu_hours"] == pytest.approx(read(window_of(portal)).total.lost / NANO)
    refused = client.get("/api/v1/goodput", {**span, "interval": "minute"})
    assert refused.status_code == 400


def test_a_window_says_whether_anybody_looked(portal: Portal) -> None:
    client = Client()
    client.force_login(portal.cleo)

    def shown(first: str, last: str) -> str:
        return client.get("/capacity/goodput/", {"first": first, "last": last}).content.decode()

    before = "No data: this window is before the first hour that was collected."
    assert before in shown("2026-02-01", "2026-02-03")
    none, unasked = "No GPU was allocated in this window.", "Not checked yet: no hour of this"
    assert none not in shown("2026-03-10", "2026-03-10")
    # That day was collected, and nothing of it is of who is on no team.
    client.force_login(User.objects.create_user("nora"))
    assert none in shown("2026-03-10", "2026-03-10")
    later = shown("2026-03-12", "2026-03-13")
    assert unasked in later
    assert none not in later
    assert "No watch saw restarts" not in later
    hour = datetime(2026, 3, 12, 9, tzinfo=UTC)
    CollectionWindow.objects.create(
        cluster=Cluster.objects.order_by("pk")[0], hour=hour, state=CollectionState.FAILED.value
    )
    assert "No data: no hour of this window could be collected." in shown(
        "2026-03-12", "2026-03-13"
    )


def test_the_chart_has_its_table_as_a_file(portal: Portal) -> None:
    client = Client()
    client.force_login(portal.cleo)
    span = {"start": "2026-03-08", "end": "2026-03-11"}
    page = client.get("/capacity/goodput/", span).content.decode()
    assert 'id="goodput-over-time-figure"' in page
    file = client.get("/capacity/goodput/", {**span, "format": "csv", "table": "goodput-over-time"})
    rows = list(csv.reader(file.getvalue().decode().splitlines()))
    lost = [float(row[4]) for row in rows if row[:1] and row[0].startswith("2026-03")]
    assert sum(lost) == pytest.approx(read(window_of(portal)).total.lost / NANO, abs=0.01)


def test_few_queries_however_many_rows(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    by = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TEAM)
    with django_assert_max_num_queries(20):
        read(window_of(portal), *by)


def test_hours_and_nodes_are_refused_over_more_than_92_days(portal: Portal) -> None:
    window = window_of(portal)
    longer = Window(window.end - timedelta(days=100), window.end)
    with pytest.raises(GroupingRefused, match="at most 92 days"):
        read(longer, Grouping.NODE)
    with pytest.raises(GroupingRefused, match="at most 92 days"):
        goodput_ledger(
            *(longer,),
            group_by=(),
            filters=Filters(),
            visibility=EVERYTHING,
            interval=TimeStep.HOUR,
        )


def test_the_page_and_the_api_say_the_same(portal: Portal) -> None:
    client = Client()
    client.force_login(portal.cleo)
    span = {"start": "2026-03-08", "end": "2026-03-11", "group_by": "team"}
    rows = client.get("/api/v1/goodput", span).json()["results"]
    window = window_of(portal)
    own = {row.groups["team"]: row for row in read(window, Grouping.TEAM).rows}
    assert {row["team"]: row["lost_gpu_hours"] for row in rows} == {
        name: row.lost_gpu_hours for name, row in own.items()
    }
    page = client.get("/capacity/goodput/", {"start": "2026-03-08", "end": "2026-03-11"})
    assert "PreemptionByScheduler" in page.content.decode()


def test_the_page_has_the_queue_time_before_what_was_allocated(portal: Portal) -> None:
    """Of the window, of the teams that the reader sees, and of the chosen cluster alone."""
    west, east = portal.clusters
    waits = {
        make_workload(west, "vision", "train"): (1, 2, 3),
        make_workload(west, "speech", "notes"): (4,),
        make_workload(east, "speech", "notes"): (30,),
    }
    for workload, minutes in waits.items():
        for number in minutes:
            since = CRASH - timedelta(minutes=number)
            name = f"{workload.name}-{number}"
            make_episode(workload, name, since=since, until=CRASH)
    # It started after the window.
    after = window_of(portal).end
    make_episode(workload, "after", since=CRASH, until=after)
    client = Client()

    def shown(person: User, **filters: str) -> str:
        client.force_login(person)
        span = {"start": "2026-03-08", "end": "2026-03-11", **filters}
        page = client.get("/capacity/goodput/", span).content.decode()
        (link,) = re.findall(r'Queue time, p50.*?href="/pending/\?([^"]*)"', page, re.DOTALL)
        assert {*filters.items(), ("tab", "history")} <= {*parse_qsl(unescape(link))}
        assert client.get(f"/pending/?{unescape(link)}").status_code == 200
        return figures_of(page)["Queue time, p50 from creation to start"]

    assert shown(portal.cleo) == "3m 0s p95 30m 0s"
    assert shown(portal.cleo, cluster="west") == "2m 0s p95 4m 0s"
    assert shown(portal.dan) == "4m 0s p95 30m 0s"
    # Without any start there is no queue time, and no zero.
    Episode.objects.filter(until=CRASH).delete()
    client.force_login(portal.cleo)
    page = client.get("/capacity/goodput/?start=2026-03-08&end=2026-03-11").content.decode()
    assert figures_of(page)["Queue time, p50"] == "no data"


def test_the_api_has_the_queue_time_of_the_page(portal: Portal) -> None:
    """Beside the rows, of the same window, filters and reader; no zero where none is known."""
    west, east = portal.clusters
    for workload, minutes in (
        (make_workload(west, "vision", "train"), 2),
        (make_workload(east, "speech", "notes"), 30),
    ):
        make_episode(workload, "pod", since=CRASH - timedelta(minutes=minutes), until=CRASH)
    client = Client()

    def told(person: User, **filters: str) -> Any:
        client.force_login(person)
        span = {"start": "2026-03-08", "end": "2026-03-11", **filters}
        answer = client.get("/api/v1/goodput", span).json()
        assert {"results", "next", "queue_time"} == answer.keys()
        return answer["queue_time"]

    assert told(portal.cleo) == {"count": 2, "p50_seconds": 120, "p95_seconds": 1800}
    assert told(portal.cleo, team="vision") == {"count": 1, "p50_seconds": 120, "p95_seconds": 120}
    assert told(portal.cleo, cluster="east")["p50_seconds"] == 1800
    assert told(portal.dan)["count"] == 1
    # Pending work is not filtered by its controller: that of all would be another answer.
    assert told(portal.cleo, workload="Job/train") is None


def test_the_page_is_narrowed_by_the_team_of_the_address(portal: Portal) -> None:
    client = Client()
    client.force_login(portal.cleo)

    def productive(**filters: str) -> str:
        span = {"start": "2026-03-08", "end": "2026-03-11", **filters}
        page = client.get("/capacity/goodput/", span).content.decode()
        assert "not applied here" not in page
        (found,) = (text for label, text in figures_of(page).items() if "Productive" in label)
        return found

    for team in ("vision", "speech"):
        own = read(window_of(portal), team=(team,)).total.productive
        assert productive(team=team) == f"{own / NANO:,.0f} GPU-h"
    assert productive(team="vision") != productive()


def test_the_queue_time_takes_as_many_queries_however_many_pods(portal: Portal) -> None:
    window, train = window_of(portal), make_workload(portal.clusters[0], "vision", "train")
    for number in range(40):
        make_episode(train, f"own-{number}", since=CRASH - HOUR, until=CRASH)
    with at_most(1):
        found = own_queue_times(window, visibility=EVERYTHING)
    assert found is not None
    assert (found.count, found.p50_seconds) == (40, 3600)
    others = visibility_of(portal.dan)
    with at_most(4):
        assert own_queue_times(window, visibility=others) is None
