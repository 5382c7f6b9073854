"""What inference servers did is what the simulator knows, collected as in production."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Count, Sum
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.ports import Answered, ServingPodHour, SourceRejected
from apps.clusters.services import snapshot_cluster
from apps.operations.services import load_catalog
from apps.usage.domain.amounts import NANO
from apps.usage.domain.serving import Holding, divided, measured_amounts
from apps.usage.models import CollectionWindow, PodHour, ServingHour
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.fleet import Controller, Phase, Pod
from simulator.prometheus.exporters.serving import stretches
from simulator.scenarios.base import Service, Team
from tests.served_lab import served_lab
from tests.simulator.small import ORIGIN, Small, deployment, pod

HOUR = 3600
HOURS = 6
NOW = ORIGIN + HOURS * HOUR + 900
START, END = (datetime.fromtimestamp(at, UTC) for at in (ORIGIN, ORIGIN + HOURS * HOUR))
WINDOW = Window(START, END)
SERVICES = (
    Service("vision", "chat", "vllm", "llama", restarting=(0,), restarts_at=2 * HOUR + 1205),
    Service("vision", "rank", "triton", "ranker", 500.0, 40.0, 7.0, silent=(2,)),
    Service("vision", "old", "vllm-0.9", "opt", 900.0, 300.0, 2.0),
)


def service_pod(owner: Controller, device: int, *activities: float) -> Pod:
    """Return a pod whose activity changes every three hours."""
    made = pod(f"{owner.name}-{device}", owner=owner, bound=0, started=0, devices=(device,))
    phases = tuple(
        Phase(ORIGIN + number * 3 * HOUR, activity, 250.0, activity)
        for number, activity in enumerate(activities)
    )
    return replace(made, phases=phases)


@pytest.fixture(scope="module")
def scenario() -> Small:
    owners = [deployment(name) for name in ("chat", "rank", "old")]
    (chat, rank, old) = (owner for _, owner in owners)
    pods = [
        service_pod(chat, 0, 0.3, 0.7),
        service_pod(rank, 1, 0.2, 0.5),
        service_pod(rank, 2, 0.2, 0.5),
        service_pod(old, 3, 0.0, 0.1),
    ]
    made = Small(pods, [one for pair in owners for one in pair])
    made.services = SERVICES
    made.teams = [Team("vision", ("vision",), 4, "CC-1")]
    return made


@pytest.fixture
def collected(scenario: Small, db: None) -> Iterator[None]:
    del db
    now = datetime.fromtimestamp(NOW, UTC)
    with served_lab(scenario, NOW) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=now, dry_run=False)
        snapshot_cluster("lab", now=now)
        collect_window("lab", WINDOW, now=now)
        # The same hours again give the same rows.
        collect_window("lab", Window(START, START + timedelta(hours=2)), now=now)
        yield


def known(scenario: Small, service: Service) -> tuple[float, float, float]:
    """Return tokens in and out, and GPU-hours, of the scraped pods while their server was up."""
    read = written = seconds = 0.0
    epoch = scenario.epoch_at(ORIGIN)
    assert epoch is not None
    for one in epoch.pods:
        assert one.owner.parent is not None
        if one.owner.parent.name != service.name or one.devices[0] in service.silent:
            continue
        for part in stretches(one, service, ORIGIN, NOW):
            length = min(part.end, ORIGIN + HOURS * HOUR) - part.start
            read += service.tokens_in * part.activity * max(0, length)
            written += service.tokens_out * part.activity * max(0, length)
            seconds += max(0, length)
    return read, written, seconds / HOUR


def sums(**of: object) -> dict[str, int]:
    """Return the sums of the rows that these columns choose, and how many they are."""
    names = ("tokens_in", "tokens_out", "first_tokens", "first_tokens_in_time", "measured")
    rows = ServingHour.objects.filter(**of)
    return rows.aggregate(rows=Count("pk"), **{name: Sum(name) for name in names})


@pytest.mark.usefixtures("collected")
def test_tokens_per_gpu_hour_are_those_of_the_simulator(scenario: Small) -> None:
    for service in SERVICES:
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
    assert holding - serving == {"rank-2"}
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


class Refusing(PrometheusSource):
    """A server that gives no raw samples."""

    def serving(self, window: Window, *, ttft_seconds: float) -> Answered[ServingPodHour]:
        raise SourceRejected(f"too many samples in {window}, {ttft_seconds}")


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
