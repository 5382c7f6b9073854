"""What inference servers did is what the simulator knows, collected as in production."""

from collections.abc import Collection, Iterator
from datetime import timedelta

import pytest
from django.db.models import Count, Sum
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.serving_objectives import TtftObjectives
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.ports import Answered, ServingPodHour, ShownMetric, SourceRejected
from apps.costs.selectors import ServingRow, serving_rows
from apps.usage.domain.amounts import NANO
from apps.usage.domain.serving import Holding, divided, measured_amounts
from apps.usage.domain.usage_query import Filters
from apps.usage.models import CollectionWindow, PodHour, ServingHour
from apps.usage.services import collect_window
from tests.served_lab import served_lab
from tests.simulator.small import Small
from tests.usage.served_models import (
    END,
    HOUR,
    HOURS,
    NOW,
    NOW_SECONDS,
    SERVICES,
    START,
    WINDOW,
    collect_served,
    known,
    load_served,
    serving_scenario,
)


@pytest.fixture(scope="module")
def scenario() -> Small:
    return serving_scenario()


@pytest.fixture
def collected(scenario: Small, db: None) -> Iterator[None]:
    del db
    with served_lab(scenario, NOW_SECONDS) as url:
        collect_served(scenario, url)
        # The same hours again give the same rows.
        collect_window("lab", Window(START, START + timedelta(hours=2)), now=NOW)
        yield


def sums(**of: object) -> dict[str, int]:
    """Return the sums of the rows that these columns choose, and how many they are."""
    names = ("tokens_in", "tokens_out", "first_tokens", "first_tokens_in_time", "measured")
    rows = ServingHour.objects.filter(**of)
    return rows.aggregate(rows=Count("pk"), **{name: Sum(name) for name in names})


@pytest.mark.usefixtures("collected")
def test_tokens_per_gpu_hour_are_those_of_the_simulator(scenario: Small) -> None:
    _assert_tokens_are_those_of_the_simulator(scenario)


@pytest.mark.django_db
def test_tokens_of_sglang_are_those_of_the_simulator() -> None:
    scenario = serving_scenario()
    at = 2 * HOUR + 1205
    scenario.services = [
        replace(one, engine="sglang", restarting=(0, 3), restarts_at=at) for one in SERVICES
    ]
    with served_lab(scenario, NOW_SECONDS) as url:
        collect_served(scenario, url)
    _assert_tokens_are_those_of_the_simulator(scenario)
    assert sums(model="opt", hour=START + timedelta(hours=4))["first_tokens_in_time"] > 0


def _assert_tokens_are_those_of_the_simulator(scenario: Small) -> None:
    for service in scenario.services:
        read, written, gpu_hours = known(scenario, service)
        found = sums(model=service.model)
        tokens, measured = found["tokens_in"] + found["tokens_out"], found["measured"] / NANO
        assert found["tokens_in"] == pytest.approx(read, rel=0.005)
        assert found["tokens_out"] == pytest.approx(written, rel=0.005)
        assert measured == pytest.approx(gpu_hours, rel=0.01)
        assert tokens / measured == pytest.approx((read + written) / gpu_hours, rel=0.01)
        assert found["rows"] == HOURS, "a row for each hour of the one pod that is scraped"


@pytest.mark.usefixtures("collected")
def test_what_is_not_scraped_has_no_row_and_what_rests_has_zeros() -> None:
    holding = set(PodHour.objects.values_list("pod__name", flat=True))
    serving = set(ServingHour.objects.values_list("pod__name", flat=True))
    assert holding - serving == {"rank-abc12-2"}
    idle = ServingHour.objects.filter(model="opt", hour__lt=START + timedelta(hours=2))
    assert set(idle.values_list("tokens_out", "requests")) == {(0, 0)}
    assert idle.values_list("kv_cache", flat=True).get(hour=START) == pytest.approx(0.05)
    restarted = ServingHour.objects.get(model="llama", hour=START + timedelta(hours=2))
    assert restarted.measured_seconds == pytest.approx(HOUR, abs=31)
    assert set(CollectionWindow.objects.values_list("serving", flat=True)) == {"read"}


@pytest.mark.parametrize(("model", "hour", "expected"), [("llama", 4, 0.9), ("ranker", 1, 0.99)])
@pytest.mark.usefixtures("collected")
def test_attainment_is_that_of_the_half_second(model: str, hour: int, expected: float) -> None:
    found = sums(model=model, hour=START + timedelta(hours=hour))
    ratio = found["first_tokens_in_time"] / found["first_tokens"]
    assert ratio == pytest.approx(expected, abs=0.001)


OBJECTIVES = """
serving_objectives:
  - {ttft: 100ms, namespace: "vis*", workload: Deployment/chat}
  - {ttft: 1s, model: opt}
"""


@pytest.mark.django_db
def test_services_are_held_against_their_own_objectives_and_hours_keep_them(
    scenario: Small,
) -> None:
    with served_lab(scenario, NOW_SECONDS) as url:
        collect_served(scenario, url, OBJECTIVES)
        busy = START + timedelta(hours=4)
        found = dict(ServingHour.objects.values_list("model", "ttft_objective_ms").distinct())
        assert found == {"llama": 100, "opt": 1000, "ranker": 500}
        # Of those within half a second half come within a tenth, all come within a second.
        for model, expected in (("llama", 0.45), ("opt", 1.0), ("ranker", 0.9)):
            of = sums(model=model, hour=busy)
            ratio = of["first_tokens_in_time"] / of["first_tokens"]
            assert ratio == pytest.approx(expected, abs=0.001)
        (row,) = _row_of_all()
        assert (row.ttft_objective_ms, row.ttft_objective_most_ms) == (100, 1000)
        assert row.ttft_objective == "100ms to 1s"
        # A changed objective is for what is collected from then on.
        before = list(ServingHour.objects.order_by("hour", "pod").values())
        load_served(scenario, url, OBJECTIVES.replace("100ms", "1s"), now=NOW)
        assert list(ServingHour.objects.order_by("hour", "pod").values()) == before
        # Hours that are collected again have what was in force in their time.
        collect_window("lab", Window(START, START + timedelta(hours=1)), now=NOW)
        again = ServingHour.objects.get(hour=START, model="llama")
        assert again.ttft_objective_ms == 100


def _row_of_all() -> list[ServingRow]:
    return serving_rows(
        WINDOW, group_by=("team",), filters=Filters(), visibility=EVERYTHING, now=NOW
    )


@pytest.mark.usefixtures("collected")
def test_an_objective_that_was_not_kept_is_not_told_of_the_others() -> None:
    (row,) = _row_of_all()
    assert (row.ttft_objective, row.ttft_objective_most_ms) == ("500ms", 500)
    # As hours of a version before that have it.
    ServingHour.objects.filter(hour=START).update(ttft_objective_ms=None)
    (row,) = _row_of_all()
    assert (row.ttft_objective, row.ttft_objective_ms) == ("", None)
    assert row.ttft_ratio is not None


class Refusing(PrometheusSource):
    """A server that gives no raw samples."""

    def serving(
        self,
        window: Window,
        *,
        objectives: TtftObjectives,
        shown: Collection[ShownMetric] | None = None,
    ) -> Answered[ServingPodHour]:
        del shown
        raise SourceRejected(f"too many samples in {window}, {objectives}")


@pytest.mark.usefixtures("collected")
def test_a_refusal_leaves_gpu_hours_alone_and_is_no_zero() -> None:
    held = list(PodHour.objects.filter(hour=START).order_by("pod").values_list("pod", "allocated"))
    config = PrometheusConfig.from_catalog(Cluster.objects.get().prometheus)
    source = Refusing(PrometheusApi(config))
    collect_window("lab", Window(START, START + timedelta(hours=1)), now=END, source=source)
    source.close()
    row = CollectionWindow.objects.get(hour=START)
    assert (row.serving, row.state) == ("refused", "complete")
    assert any("too many samples" in text for text in row.warnings)
    assert not ServingHour.objects.filter(hour=START).exists()
    now = PodHour.objects.filter(hour=START).order_by("pod").values_list("pod", "allocated")
    assert list(now) == held


# ---------------------------------------------------------------- amounts


@given(st.integers(0, 10**15), st.lists(st.floats(0, 1e9), min_size=1, max_size=6))
def test_parts_of_models_sum_to_the_pod(amount: int, weights: list[float]) -> None:
    parts = divided(amount, weights)
    assert sum(parts) == amount
    assert min(parts) >= 0


@given(st.floats(0, 4000), st.floats(1, 3600), st.integers(0, 10**10))
def test_no_more_is_measured_than_was_allocated(
    seconds: float, held: float, allocated: int
) -> None:
    found = measured_amounts({"a": Holding(allocated, held, 1)}, {"a": seconds})
    assert 0 <= found["a"] <= allocated


def test_the_pods_of_a_gang_serve_together_and_replicas_do_not() -> None:
    gang = {name: Holding(100, 3600.0, 1, is_of_gang=True) for name in ("a", "b", "c")}
    assert measured_amounts(gang, {"a": 3600.0}) == {"a": 300}
    replicas = {name: Holding(100, 3600.0, 1) for name in ("a", "b")}
    assert measured_amounts(replicas, {"a": 1800.0}) == {"a": 50}
