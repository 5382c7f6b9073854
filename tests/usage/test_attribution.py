from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import PodRecord
from apps.usage.domain.attribution.allocations import Allocation, PodLedger
from apps.usage.domain.attribution.attribute import (
    Attribution,
    SampleInterval,
    attribute,
    guess,
    mislabelled,
    recut,
)
from apps.usage.domain.attribution.attribute_hour import allocate_cluster
from apps.usage.domain.attribution.gpu_classes import Classifier
from tests.usage.hours import INTERVAL, RULES, START, device, interval, pod


def holdings(*pods: object) -> list[Allocation]:
    known = PodLedger(pods, [interval()])  # type: ignore[arg-type]
    ledgers = allocate_cluster(START, known, classifier=Classifier(RULES))
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
    assert SampleInterval(30.0).of((START, "GPU-1", ""), samples) == seconds


def test_an_interval_that_was_learnt_holds() -> None:
    interval = SampleInterval(15.0, {(START, "GPU-1", ""): 60.0})
    assert interval.of((START, "GPU-1", ""), 30) == 60.0
    assert interval.of((START, "GPU-2", ""), 30) == 15.0


def test_the_usual_interval_is_that_of_most_devices() -> None:
    rows = [device(0, 0.5), device(1, 0.5), device(0, 0.5, uuid="GPU-2", samples=120)]
    assert attribute(rows, [], interval=SampleInterval(INTERVAL)).usual_interval() == INTERVAL
    assert attribute([], [], interval=SampleInterval(INTERVAL)).usual_interval() is None


def test_a_label_that_outlives_its_pod_is_found() -> None:
    held = holdings(pod(end=900))
    attribution = attribute([device(0, 0.4)], held, interval=SampleInterval(INTERVAL))
    assert mislabelled(attribution, held) == {"GPU-1"}


@pytest.mark.parametrize("samples", [29, 30, 31])
def test_one_sample_more_than_the_time_holds_is_no_wrong_label(samples: int) -> None:
    held = holdings(pod(end=900))
    rows = [device(0, 0.4, samples=samples)]
    assert mislabelled(attribute(rows, held, interval=SampleInterval(INTERVAL)), held) == set()


def cut(
    rows: list[DeviceSlot], samples: list[ActivitySample], held: list[Allocation]
) -> Attribution:
    attribution = attribute(rows, held, interval=SampleInterval(INTERVAL))
    recut(attribution, {"GPU-1"}, samples, held)
    return attribution


def test_raw_samples_are_cut_at_the_pods_times() -> None:
    held = holdings(pod(end=900))
    rows = [device(0, 0.5), device(1, 0.2, uuid="GPU-2")]
    samples = [raw(s, 1.0 if s < 900 else 0.0) for s in range(0, 1800, 30)]
    attribution = cut(rows, samples, held)
    assert rows[1] in attribution.strays, "other devices stay as they are"
    (own,) = attribution.rows[0]
    assert (own.activity_sum, own.samples) == (30.0, 30)
    (stray,) = [row for row in attribution.strays if row.uuid == "GPU-1"]
    assert (stray.pod, stray.activity_sum, stray.samples) == ("", 0.0, 30)


def again(name: str = "p1", **values: Any) -> PodRecord:
    return replace(pod(name, **values), uid="uid-again")


def test_two_pods_of_one_name_on_one_node_are_told_apart_by_raw_samples() -> None:
    held = holdings(pod(end=600), again(bound=600))
    rows = [device(0, 1 / 3)]
    attribution = attribute(rows, held, interval=SampleInterval(INTERVAL))
    assert mislabelled(attribution, held) == {"GPU-1"}
    samples = [raw(s, 1.0 if s < 600 else 0.0) for s in range(0, 1800, 30)]
    recut(attribution, {"GPU-1"}, samples, held)
    sums = {
        held[number].pod.uid: (rows[0].activity_sum, rows[0].samples)
        for number, rows in attribution.rows.items()
        if rows
    }
    assert sums == {"uid-p1": (20.0, 20), "uid-again": (0.0, 40)}
    assert attribution.strays == []


def test_where_raw_samples_are_refused_what_rests_on_labels_is_a_guess() -> None:
    held = holdings(pod(end=600), again(bound=600), pod("p2"))
    rows = [device(0, 0.3), device(0, 0.5, uuid="GPU-2", pod_name="p2")]
    attribution = attribute(rows, held, interval=SampleInterval(INTERVAL))
    guess(attribution, mislabelled(attribution, held), held)
    assert {held[number].pod.uid for number in attribution.guessed} == {"uid-again"}


def test_a_device_without_raw_samples_is_left_without() -> None:
    attribution = cut([device(0, 0.5)], [], holdings(pod(end=900)))
    assert attribution.rows == {0: []}
    assert attribution.strays == []


def test_raw_samples_of_a_device_that_no_row_knows_are_left_out() -> None:
    stranger = raw(0, 1.0)._replace(uuid="GPU-9")
    attribution = cut([device(0, 0.5)], [stranger], holdings(pod(end=900)))
    assert attribution.rows == {0: []}
    assert attribution.strays == []


def test_memory_and_energy_stay_with_who_has_most_samples() -> None:
    held = holdings(pod(end=600), again(bound=600))
    samples = [raw(s, 0.5) for s in range(0, 1800, 30)]
    attribution = cut([device(0, 0.5, memory=70.0, energy=9.0)], samples, held)
    kept = {
        held[n].pod.uid: (r[0].memory_used_peak_mib, r[0].energy_wh)
        for n, r in attribution.rows.items()
    }
    assert kept == {"uid-p1": (None, None), "uid-again": (70.0, 9.0)}
