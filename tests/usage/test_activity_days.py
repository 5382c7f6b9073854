"""How active workloads were, kept with their hours and days: written again, rolled, forgotten."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction

from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import Pod
from apps.usage.domain.activity import written
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.models import PodHour, WorkloadActivityDay
from apps.usage.services import prune, roll_days
from apps.usage.services.days import MOST_PODS
from apps.usage.services.facts import Dimensions, write_hour
from tests.usage.dimensions import make_dimensions
from tests.usage.hours import START, device, hour_facts, interval, pod

pytestmark = pytest.mark.django_db

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = Window.hour(from_seconds(START))
LATER = datetime(2027, 6, 1, tzinfo=UTC)
Activities = Mapping[str, Sequence[float | None]]


@pytest.fixture
def dimensions() -> Dimensions:
    return make_dimensions(units=2, created_at=HOUR.start)


def facts(of_pods: Activities, *, slots: Sequence[int] = (0, 1)) -> HourFacts:
    """Return an hour in which each pod's two GPUs were so active; None: no sample."""
    rows = [
        device(slot, activity, uuid=f"GPU-{name}-{number}", pod_name=name)
        for name, activities in of_pods.items()
        for number, activity in enumerate(activities)
        for slot in slots
        if activity is not None
    ]
    return hour_facts([interval()], [pod(name, bound=-7200, units=2) for name in of_pods], rows)


def write(dimensions: Dimensions, of_pods: Activities, **more: Sequence[int]) -> None:
    with transaction.atomic():
        write_hour(HOUR, facts(of_pods, **more), dimensions, zone=BERLIN)


def rolled() -> WorkloadActivityDay:
    roll_days(now=LATER)
    return WorkloadActivityDay.objects.get()


def test_an_hour_keeps_each_device_of_each_slot_in_the_order_of_their_uuids(
    dimensions: Dimensions,
) -> None:
    write(dimensions, {"p1": [0.9, 0.0]})
    slot = written([0.9, 0.0])
    assert PodHour.objects.get().activity == f"{slot}/{slot}"


def test_what_was_not_measured_has_no_letter(dimensions: Dimensions) -> None:
    write(dimensions, {"p1": [0.9, 0.2]}, slots=[1])
    assert PodHour.objects.get().activity == written([0.9, 0.2])


def test_a_day_counts_every_slot_of_every_device_and_again_gives_the_same(
    dimensions: Dimensions,
) -> None:
    write(dimensions, {"p1": [0.9, 0.0], "p2": [0.9, 0.5]})
    day = rolled()
    assert sum(day.slots) == 8
    assert day.slots[0] == 2
    assert (day.resource, day.least_units, day.most_units) == ("nvidia.com/gpu", 2, 2)
    write(dimensions, {"p1": [0.9, 0.0], "p2": [0.9, 0.5]})
    again = rolled()
    assert again.slots == day.slots
    assert again.gpus == day.gpus


def test_an_hour_that_is_collected_again_replaces_its_part_of_the_day(
    dimensions: Dimensions,
) -> None:
    write(dimensions, {"p1": [0.9, 0.0]})
    assert rolled().gpus is not None
    write(dimensions, {"p1": [0.9, 0.8]})
    day = rolled()
    assert day.gpus is None
    assert day.slots[0] == 0


@pytest.mark.parametrize(
    ("of_pods", "told"),
    [
        pytest.param({"p1": [0.9, 0.0]}, True, id="one pod left a GPU idle"),
        pytest.param({"p1": [0.9, 0.0], "p2": [0.004, 0.7]}, True, id="so did every pod"),
        pytest.param({"p1": [0.9, 0.0], "p2": [0.4, 0.7]}, False, id="one pod used all"),
        pytest.param({"p1": [0.9, None]}, False, id="one GPU was not measured"),
    ],
)
def test_devices_are_told_where_every_pod_left_one_idle(
    of_pods: Activities, told: bool, dimensions: Dimensions
) -> None:
    write(dimensions, of_pods)
    gpus = rolled().gpus
    assert (gpus is not None) == told
    if gpus is not None:
        assert sorted(gpus.values()) == sorted(written(one) for one in of_pods.values())


def test_of_very_many_pods_devices_are_not_kept(dimensions: Dimensions) -> None:
    write(dimensions, {"p1": [0.9, 0.0]})
    hour, like = PodHour.objects.get(), Pod.objects.get(uid="uid-p1")
    for number in range(MOST_PODS):
        like.pk, like.uid = None, f"uid-more-{number}"
        like.save()
        hour.pk, hour.pod = None, like
        hour.save()
    day = rolled()
    assert day.gpus is None
    assert sum(day.slots) == 4 * (MOST_PODS + 1)


def test_activity_goes_with_the_hours_of_its_day(dimensions: Dimensions) -> None:
    write(dimensions, {"p1": [0.9, 0.0]})
    rolled()
    prune(now=LATER)
    assert not PodHour.objects.exists()
    assert not WorkloadActivityDay.objects.exists()
