"""Services by group: tokens per GPU-hour and money as the simulator knows, and which rest."""

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod, Workload
from apps.costs.domain.costing import FREE
from apps.costs.selectors import (
    SERVING_GROUPS,
    CostQuery,
    ServiceUse,
    ServingRow,
    cost_rows,
    serving_rows,
)
from apps.costs.services import price_hours
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import utc_text
from apps.usage.domain.usage_query import Filters, GroupingRefused
from apps.usage.models import CollectionWindow, PodHour, ServingHour
from apps.usage.selectors import serving_states, serving_times
from apps.usage.services import roll_days
from simulator.catalog import PRICE
from tests.costs.one_job import LAST, OneJob, four, make_one_job
from tests.costs.one_job import NOW as LATER
from tests.factories import held, make_user
from tests.served_lab import served_lab
from tests.shared_rows import shared
from tests.simulator.small import Small
from tests.usage.served_models import (
    HOURS,
    NOW,
    NOW_SECONDS,
    SERVICES,
    WINDOW,
    collect_served,
    known,
    serving_scenario,
)
from tests.web.pages import records_of

pytestmark = pytest.mark.django_db
MILLION = 1_000_000


SCENARIO = serving_scenario()


@pytest.fixture
def scenario() -> Small:
    return SCENARIO


def collect_all() -> None:
    with served_lab(SCENARIO, NOW_SECONDS) as url:
        collect_served(SCENARIO, url)


collected = shared(collect_all)


def read(window: Window, *by: str, **asked: Any) -> dict[str, ServingRow]:
    rows = serving_rows(
        window, group_by=by, filters=Filters(), **{"visibility": EVERYTHING, "now": LATER, **asked}
    )
    return {" ".join(row.groups.values()): row for row in rows}


@pytest.mark.usefixtures("collected")
def test_tokens_and_money_are_those_of_the_simulator(scenario: Small) -> None:
    assert {row.cost_per_million_tokens for row in read(WINDOW, "model").values()} == {None}
    roll_days(now=NOW)
    price_hours(now=NOW)
    rows = read(WINDOW, "model")
    for service in SERVICES:
        read_, written, gpu_hours = known(scenario, service)
        row, tokens = rows[service.model], read_ + written
        assert row.tokens_per_gpu_hour == pytest.approx(tokens / gpu_hours, rel=0.01)
        assert row.cost_per_million_tokens is not None
        money = row.cost_per_million_tokens / 1e8
        assert money == pytest.approx(float(PRICE) * gpu_hours / tokens * MILLION, rel=0.01)
    # Half of the pods of one are not scraped: that is no zero, and its price is of the other half.
    assert rows["ranker"].measured_ratio == pytest.approx(0.5, abs=0.01)
    assert rows["llama"].measured_ratio == pytest.approx(0.99, abs=0.02)
    assert rows["ranker"].allocated_gpu_hours == pytest.approx(2 * HOURS)


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("by", [column.key for column in SERVING_GROUPS])
def test_every_grouping_has_the_same_sum(by: str) -> None:
    whole = read(WINDOW)[""]
    rows = read(WINDOW, by).values()
    assert sum(row.tokens_in or 0 for row in rows) == whole.tokens_in
    assert sum(row.requests or 0 for row in rows) == whole.requests
    allocated = sum(row.allocated_gpu_hours for row in rows)
    assert allocated == pytest.approx(whole.allocated_gpu_hours) == 4 * HOURS


@pytest.mark.usefixtures("collected")
def test_replicas_and_load_by_hour() -> None:
    times = serving_times(WINDOW, filters=Filters(), visibility=EVERYTHING)
    assert [one.hour for one in times] == [hour.start for hour in WINDOW.hours()]
    # One of four is not scraped: it runs all the same, and nothing is known of its load.
    assert {(one.replicas, one.silent) for one in times} == {(4, 1)}
    assert times[-1].requests is not None
    assert times[0].requests is not None
    assert times[-1].requests > times[0].requests > 0


@pytest.mark.usefixtures("collected")
def test_replicas_run_in_hours_in_which_no_server_was_scraped(scenario: Small) -> None:
    at = WINDOW.start + timedelta(hours=2)
    ServingHour.objects.filter(hour=at).delete()
    outage = serving_times(WINDOW, filters=Filters(), visibility=EVERYTHING)[2]
    assert outage.hour == at
    assert (outage.replicas, outage.silent) == (4, 4)
    assert (outage.requests, outage.tokens) == (None, None)
    # What has not started yet is no replica.
    later = at + timedelta(hours=1)
    PodHour.objects.filter(hour=later, pod__name__endswith="-2").update(not_running=F("allocated"))
    ran = serving_times(WINDOW, filters=Filters(), visibility=EVERYTHING)[3]
    assert (ran.hour, ran.replicas, ran.silent) == (later, 3, 0)
    # Nor are pods of other workloads: of the service of one model there is one replica.
    chat = Filters(workload=("Deployment/chat",))
    alone = serving_times(WINDOW, filters=chat, visibility=EVERYTHING)
    assert {one.replicas for one in alone} == {1}


@pytest.mark.usefixtures("collected")
def test_tokens_without_their_other_half_are_in_no_ratio() -> None:
    """Of some hours, or some servers, only the tokens read are known: not the GPU-hours either."""
    roll_days(now=NOW)
    price_hours(now=NOW)
    half = WINDOW.start + timedelta(hours=HOURS // 2)
    ServingHour.objects.filter(hour__lt=half).delete()
    alone, times = read(WINDOW)[""], _tokens_by_hour()
    assert alone.tokens_in
    assert alone.tokens_out
    expected = (alone.tokens_per_gpu_hour, alone.cost_per_million_tokens)
    ServingHour.objects.filter(model="llama").update(tokens_out=None)
    rest = read(WINDOW)[""]
    ServingHour.objects.filter(model="llama").delete()
    without = read(WINDOW)[""]
    assert rest.tokens_in == alone.tokens_in
    assert rest.tokens_out == without.tokens_out
    assert (rest.tokens_per_gpu_hour, rest.cost_per_million_tokens) == (
        without.tokens_per_gpu_hour,
        without.cost_per_million_tokens,
    )
    assert expected != (without.tokens_per_gpu_hour, without.cost_per_million_tokens)
    assert _tokens_by_hour() < times


def _tokens_by_hour() -> int:
    times = serving_times(WINDOW, filters=Filters(), visibility=EVERYTHING)
    return sum(one.tokens or 0 for one in times)


@pytest.mark.usefixtures("collected")
def test_the_api_has_replicas_and_load_by_hour_as_the_page() -> None:
    at = WINDOW.start + timedelta(hours=2)
    ServingHour.objects.filter(hour=at).delete()
    client = Client()
    client.force_login(make_user("cleo", Role.ADMIN))
    span: dict[str, Any] = {"start": WINDOW.start.isoformat(), "end": WINDOW.end.isoformat()}
    rows = client.get("/api/v1/serving/hours", {**span, "page_size": 500}).json()["results"]
    times = serving_times(WINDOW, filters=Filters(), visibility=EVERYTHING)
    assert [list(row.values())[1:] for row in rows] == [
        [one.replicas, one.silent, one.requests, one.tokens] for one in times
    ]
    # Nothing is known of the load of an hour in which no server was scraped: it is no zero.
    assert rows[2] == {
        "hour": utc_text(at),
        "replicas": 4,
        "replicas_without_metrics": 4,
        "requests": None,
        "tokens": None,
    }
    one = client.get("/api/v1/serving/hours", {**span, "workload": "Deployment/chat"}).json()
    assert {row["replicas"] for row in one["results"]} == {1}
    file = client.get("/api/v1/serving/hours", {**span, "format": "csv"})
    lines = b"".join(file.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert lines[0].lstrip("\ufeff").split(",") == list(rows[0])
    assert len(lines) == 1 + len(times)


def test_hours_of_pods_that_are_not_kept_are_refused_and_not_empty() -> None:
    client = Client()
    client.force_login(make_user("cleo", Role.ADMIN))
    answer = client.get("/api/v1/serving/hours", {"start": "2026-01-01", "end": "2026-06-01"})
    assert answer.status_code == 400
    assert "kept with the hours of pods" in answer.json()["detail"]


@pytest.mark.usefixtures("collected")
def test_in_a_gang_one_pod_answers_for_all() -> None:
    Workload.objects.filter(name="rank").update(kind="LeaderWorkerSet")
    times = serving_times(WINDOW, filters=Filters(), visibility=EVERYTHING)
    assert {(one.replicas, one.silent) for one in times} == {(4, 0)}


@pytest.mark.usefixtures("collected")
def test_who_sees_no_team_sees_no_service(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    nobody = Visibility(everything=False)
    assert read(WINDOW, "model", visibility=nobody) == {}
    assert serving_times(WINDOW, filters=Filters(), visibility=nobody) == []
    with django_assert_max_num_queries(30):
        read(WINDOW, "cluster", "namespace", "workload", "team", "tier")


@pytest.mark.usefixtures("collected")
def test_the_page_and_the_api_say_the_same() -> None:
    client = Client()
    client.force_login(make_user("cleo", Role.ADMIN))
    span = {"start": "2026-10-01", "end": "2026-10-02"}
    answer = client.get("/api/v1/serving", {**span, "group_by": "model"}).json()
    by_model = {row["model"]: row for row in answer["results"]}
    assert by_model["llama"]["tokens_in"] == read(WINDOW, "model")["llama"].tokens_in
    assert by_model["llama"]["cost_per_million_tokens"] is None
    page = client.get("/capacity/serving/", {**span, "tab": "models"}).content.decode()
    assert "llama" in page
    assert "unpriced" in page
    assert "Replicas by hour" in page
    assert "Without metrics" in page
    hours = records_of(
        client, "/capacity/serving/?start=2026-10-01&end=2026-10-02&format=csv&table=replicas-hours"
    )
    assert {(row["replicas"], row["replicas_without_metrics"]) for row in hours} == {("4", "1")}
    file = client.get("/capacity/serving/", {**span, "format": "csv", "table": "serving"})
    assert b"whisper" not in b"".join(file)
    assert file.status_code == 200


# ---------------------------------------------------------------- services that rest


@pytest.mark.usefixtures("collected")
def test_a_service_that_is_marked_is_kept_for_latency() -> None:
    hours = Window(WINDOW.start, WINDOW.start + timedelta(hours=2))
    marked = read(hours, "model")["opt"]
    assert (marked.requests, marked.kept_for_latency) == (0, True)
    assert marked.use is ServiceUse.KEPT_FOR_LATENCY
    assert not read(hours, "model")["llama"].kept_for_latency
    assert read(WINDOW, "team")["vision"].kept_for_latency
    # Taken back, the same hours are those of a service without requests.
    Pod.objects.filter(kept_for_latency=True).update(kept_for_latency=False)
    assert read(hours, "model")["opt"].use is ServiceUse.NO_REQUESTS


def idle(_: date) -> Amounts:
    return held(4.0, idle=3.9)


def unmeasured(_: date) -> Amounts:
    return held(4.0, unmeasured=4.0)


def resting(
    requests: Any, usual: Callable[[date], Amounts] = idle, *, tokens: int = 0, **price: Any
) -> OneJob:
    """Return a service of four GPUs whose hours have these requests (by hour of the day)."""
    job = make_one_job(usual, **price)
    rows = [
        ServingHour(
            **{name: getattr(fact, name) for name in _COLUMNS},
            model="llama",
            engine="vLLM",
            measured=fact.allocated,
            measured_seconds=3600,
            requests=requests(fact.hour),
            tokens_in=tokens,
            tokens_out=tokens,
        )
        for fact in PodHour.objects.order_by("pk")
    ]
    ServingHour.objects.bulk_create(rows)
    return job


_COLUMNS = (
    *("hour", "cluster_id", "tier_id", "gpu_model_id", "capacity_type", "team_id"),
    *("namespace_id", "workload_id", "pod_id"),
)


@pytest.mark.parametrize(
    ("requests", "usual", "expected"),
    [
        pytest.param(lambda _: 0, idle, ServiceUse.FORGOTTEN, id="nobody asks"),
        pytest.param(
            lambda at: int(at.hour == 9), idle, ServiceUse.KEPT_FOR_LATENCY, id="one request a day"
        ),
        pytest.param(lambda _: 50, four, ServiceUse.ACTIVE, id="busy"),
        pytest.param(lambda _: None, idle, ServiceUse.UNKNOWN, id="requests are not exported"),
        pytest.param(
            lambda at: 0 if at.day == LAST.day else None,
            idle,
            ServiceUse.NO_REQUESTS,
            id="one day known",
        ),
    ],
)
def test_idle_services_are_told_apart(
    requests: Any, usual: Callable[[date], Amounts], expected: ServiceUse
) -> None:
    job = resting(requests, usual)
    week = Window(job.window.end - timedelta(days=7), job.window.end)
    (row,) = read(week, "workload").values()
    assert row.use is expected
    # Tokens that were counted and are none: a rate of zero, and no money for each.
    assert row.tokens_per_gpu_hour == 0.0
    assert row.cost_per_million_tokens is None


def drawing(_: date) -> Amounts:
    return held(4.0, busy=3.0, energy_mwh=2_000_000)


def test_the_cost_of_tokens_is_what_the_service_costs_with_its_energy() -> None:
    job = resting(
        lambda _: 50, drawing, tokens=MILLION // 2, per_kwh=Decimal("0.30"), pue=Decimal("1.5")
    )
    price_hours(now=LATER)
    day = Window(job.window.start, job.window.start + timedelta(days=1))
    (row,) = read(day, "workload").values()
    # A million tokens an hour: four GPU-hours and two kilowatt-hours.
    assert row.cost_per_million_tokens == (4 * 306_000_000) + 2 * 45_000_000
    costs = cost_rows(CostQuery(day), visibility=EVERYTHING)
    of_team = sum(one.cost or 0 for one in costs if one.cause not in FREE)
    assert of_team == 24 * row.cost_per_million_tokens, "what Costs shows for the same work"


@pytest.mark.parametrize("days", [1, 7])
def test_hours_to_come_do_not_hide_that_a_service_is_forgotten(days: int) -> None:
    # Pages end at now; the API takes windows up to tonight, or to the end of the month.
    job = resting(lambda _: 0)
    end = job.window.end
    lasting = Window(end - timedelta(days=6), end + timedelta(days=days))
    assert [row.use for row in read(lasting, "workload", now=LATER).values()] == [
        ServiceUse.FORGOTTEN
    ]
    # As for the last request: six days ago, it is within a week of now.
    ServingHour.objects.filter(hour=end - timedelta(days=6)).update(requests=1)
    (row,) = read(lasting, "workload", now=LATER).values()
    assert row.last_request_at == end - timedelta(days=6)
    assert row.use is ServiceUse.KEPT_FOR_LATENCY


@pytest.mark.parametrize(
    ("requests", "use", "shown"),
    [
        pytest.param(50, ServiceUse.UNKNOWN, "0 GPU-h idle", id="requests"),
        pytest.param(0, ServiceUse.FORGOTTEN, "idle GPU-h: no metrics", id="forgotten"),
    ],
)
def test_without_metrics_of_its_gpus_a_service_is_neither_idle_nor_active(
    requests: int, use: ServiceUse, shown: str
) -> None:
    job = resting(lambda _: requests, unmeasured)
    week = Window(job.window.end - timedelta(days=7), job.window.end)
    (row,) = read(week, "workload").values()
    assert row.allocated_gpu_hours == 672.0
    assert row.idle_gpu_hours is None
    assert row.use is use
    client = Client()
    client.force_login(make_user("cleo", Role.ADMIN))
    span = {"start": f"{week.start:%Y-%m-%d}", "end": f"{week.end:%Y-%m-%d}"}
    answer = client.get("/api/v1/serving", {**span, "group_by": "workload"}).json()
    assert [one["idle_gpu_hours"] for one in answer["results"]] == [None]
    page = client.get("/capacity/serving/", span).content.decode()
    assert f"{shown}, no request in 7 days" in page


def test_hours_that_nobody_asked_for_are_not_checked_yet() -> None:
    make_one_job()
    client = Client()
    client.force_login(make_user("cleo", Role.ADMIN))
    span = {"start": "2026-10-06", "end": "2026-10-07"}
    assert "Not checked yet" in client.get("/capacity/serving/", span).content.decode()
    CollectionWindow.objects.update(serving="absent")
    assert (
        "has no series of an inference" in client.get("/capacity/serving/", span).content.decode()
    )
    CollectionWindow.objects.update(serving="refused")
    assert "refused the samples" in client.get("/capacity/serving/", span).content.decode()


def test_what_is_not_kept_by_the_pod_is_refused() -> None:
    job = make_one_job()
    with pytest.raises(GroupingRefused, match="at most 92 days"):
        read(Window(LATER - timedelta(days=100), LATER))
    assert serving_states(job.window, filters=Filters())[""] > 0
