import pytest

from apps.clusters.domain.samples import ActivitySample
from apps.usage.domain.attribution import Interval, attribute, mislabelled, recut
from apps.usage.domain.holdings import Classifier, Holding
from apps.usage.domain.hour import hold_cluster
from tests.usage.hours import INTERVAL, RULES, START, device, pod, spell


def holdings(*pods: object) -> list[Holding]:
    ledgers = hold_cluster(
        START,
        pods,  # type: ignore[arg-type]
        [spell()],
        classifier=Classifier(RULES),
        bound={},
    )
    return [holding for ledger in ledgers for holding in ledger.holdings]


def raw(second: float, activity: float, pod_name: str = "p1") -> ActivitySample:
    return ActivitySample("GPU-1", "", "ml", pod_name, START + second, activity)


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        pytest.param(60, 30.0, id="as expected"),
        pytest.param(40, 30.0, id="an outage is no slower scrape"),
        pytest.param(90, 30.0, id="half as many again"),
        pytest.param(120, 15.0, id="scraped twice"),
        pytest.param(1800, 1.0, id="every second"),
    ],
)
def test_the_interval_of_a_device_follows_its_samples_only_upwards(
    samples: int, seconds: float
) -> None:
    assert Interval(30.0).of(samples) == seconds


def test_a_label_that_outlives_its_pod_is_found() -> None:
    held = holdings(pod(end=900))
    attribution = attribute([device(0, 0.4)], held, interval=Interval(INTERVAL))
    assert mislabelled(attribution, held) == {"GPU-1"}


@pytest.mark.parametrize("samples", [29, 30, 31])
def test_one_sample_more_than_the_time_holds_is_no_wrong_label(samples: int) -> None:
    held = holdings(pod(end=900))
    rows = [device(0, 0.4, samples=samples)]
    assert mislabelled(attribute(rows, held, interval=Interval(INTERVAL)), held) == set()


def test_raw_samples_are_cut_at_the_pods_times() -> None:
    held = holdings(pod(end=900))
    rows = [device(0, 0.5), device(1, 0.2, uuid="GPU-2")]
    samples = [raw(s, 1.0 if s < 900 else 0.0) for s in range(0, 1800, 30)]
    cut = recut(rows, {"GPU-1"}, samples, held)
    assert rows[1] in cut, "other devices stay as they are"
    by_pod = {row.pod: row for row in cut if row.uuid == "GPU-1"}
    assert (by_pod["p1"].activity_sum, by_pod["p1"].samples) == (30.0, 30)
    assert (by_pod[""].activity_sum, by_pod[""].samples) == (0.0, 30)


def test_a_device_without_raw_samples_is_left_without() -> None:
    held = holdings(pod(end=900))
    assert recut([device(0, 0.5)], {"GPU-1"}, [], held) == []


def test_raw_samples_of_a_device_that_no_row_knows_are_left_out() -> None:
    held = holdings(pod(end=900))
    stranger = raw(0, 1.0)._replace(uuid="GPU-9")
    assert recut([device(0, 0.5)], {"GPU-1"}, [stranger], held) == []
