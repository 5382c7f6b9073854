"""The energy of a GPU is divided to the last milliwatt-hour: sharers and the rest sum to it."""

from math import fsum

from hypothesis import given
from hypothesis import strategies as st

from apps.usage.domain.attribution.energy import (
    divide_instances,
    energy_parts,
    idle_power,
    whole_parts,
)
from tests.usage.hours import device, hour_facts, interval, pod
from tests.usage.test_sharing import FOUR, by_pod

energies = st.integers(0, 10**7).map(lambda mwh: mwh / 1000)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(energies, st.none() | energies, shares, st.data())
def test_sharers_and_the_rest_sum_to_the_gpu(
    energy: float, idle: float | None, weights: list[float], data: st.DataObject
) -> None:
    of = st.lists(st.floats(0, 1), min_size=len(weights), max_size=len(weights))
    used = data.draw(of)
    whole = max(1.0, fsum(weights))
    parts, of_idle = energy_parts(energy, idle, [one / whole for one in weights], used)
    assert len(parts) == len(weights) + 1
    assert sum(round(part * 1000) for part in parts) == round(energy * 1000)
    assert all(part >= 0 for part in parts)
    assert (of_idle is None) == (idle is None or not energy)
    if of_idle is not None and idle is not None:
        assert sum(round(one * 1000) for one in of_idle) == round(min(energy, idle) * 1000)
        assert all(0 <= one <= part for one, part in zip(of_idle, parts, strict=True))


def test_the_idle_part_goes_by_what_was_held_and_the_rest_by_activity() -> None:
    assert energy_parts(100.0, 40.0, [0.5, 0.25], [0.3, 0.1]).whole == [65.0, 25.0, 10.0]
    assert energy_parts(100.0, 40.0, [0.5, 0.25], [0.0, 0.0]).whole == [50.0, 25.0, 25.0]
    assert energy_parts(100.0, 0.0, [0.5, 0.25], [0.3, 0.0]).whole == [100.0, 0.0, 0.0]
    assert energy_parts(100.0, None, [0.5, 0.25], [0.3, 0.0]).whole == [50.0, 25.0, 25.0], (
        "not known"
    )
    assert energy_parts(30.0, 40.0, [0.5, 0.5], [1.0, 0.0]).whole == [15.0, 15.0, 0.0]
    assert whole_parts(0.001, [1.0, 1.0]) == [0.001, 0.0]


def test_idle_power_is_the_lowest_of_a_gpu_without_activity() -> None:
    rows = [
        device(0, 0.0, uuid="GPU-a", energy=30.0),
        device(1, 0.0, uuid="GPU-a", energy=28.0),
        device(0, 0.5, uuid="GPU-b", energy=5.0),
        device(0, 0.0, uuid="GPU-c", energy=0.0),
        device(0, 0.0, uuid="GPU-d", energy=None),
    ]
    assert set(idle_power(rows, 30.0).values()) == {56.0}
    assert idle_power(rows[2:], 30.0) == {}


def test_sharers_of_an_hour_have_the_idle_part_by_share_and_the_rest_by_process() -> None:
    """A GPU of four replicas; another of its model was idle and tells the idle power: 40 W."""
    rows = [
        device(0, 0.8, pod_name=name, energy=50.0)._replace(process_sum=process * 60)
        for name, process in (("a", 0.6), ("b", 0.2))
    ]
    rows.append(device(0, 0.0, uuid="GPU-2", pod_name="", node="n2", energy=20.0))
    found = hour_facts([interval(gpus=4, labels=FOUR)], [pod("a"), pod("b")], rows)
    # 100 Wh: 20 Wh idle, of which each holds a quarter; 80 Wh by activity, 3 to 1.
    assert {uid: row.energy_mwh for uid, row in by_pod(found).items()} == {
        "a": 65_000,
        "b": 25_000,
    }
    assert {uid: row.energy_idle_mwh for uid, row in by_pod(found).items()} == {
        "a": 5_000,
        "b": 5_000,
    }
    total = found.total()
    assert (total.energy_split_mwh, total.energy_idle_mwh) == (100_000, 20_000)
    assert total.energy_mwh == 120_000, "10 Wh are of no pod, 20 Wh of the other GPU"


@given(energies, st.lists(st.floats(0, 1), min_size=1, max_size=7), st.none() | st.floats(1, 500))
def test_instances_sum_to_their_gpu(
    energy: float, activities: list[float], watts: float | None
) -> None:
    rows = [
        device(0, activity, pod_name=f"p{n}", energy=energy if n == 0 else 0.0)._replace(
            gpu_instance=str(n), profile="1g.10gb"
        )
        for n, activity in enumerate(activities)
    ]
    idle = {} if watts is None else {rows[0].model: watts}
    found = divide_instances(rows, idle)
    assert sum(round((row.energy_wh or 0.0) * 1000) for row in found) == round(energy * 1000)
    assert [row._replace(energy_wh=None, idle_wh=None) for row in found] == [
        row._replace(energy_wh=None) for row in rows
    ]
    if watts is not None and energy and activities:
        known = [row.idle_wh for row in found if row.idle_wh is not None]
        assert len(known) == len(found)
        assert sum(round(one * 1000) for one in known) == round(min(energy, watts / 2) * 1000)


@given(
    st.lists(st.floats(0, 0.25), min_size=1, max_size=4),
    st.integers(1, 400_000).map(lambda mwh: mwh / 1000),
    st.none() | st.integers(1, 100_000).map(lambda mwh: mwh / 1000),
)
def test_what_pods_and_nobody_have_of_an_hour_is_what_its_gpus_drew(
    activities: list[float], energy: float, idle: float | None
) -> None:
    """Through the whole of an hour's facts: whoever shares, no milliwatt-hour is lost or made."""
    names = [f"pod-{number}" for number in range(len(activities))]
    rows = [
        device(0, min(1.0, sum(activities)), pod_name=name, energy=energy / len(names))._replace(
            process_sum=activity * 60
        )
        for name, activity in zip(names, activities, strict=True)
    ]
    if idle is not None:  # without a GPU that was idle, its idle power is not known
        rows.append(device(0, 0.0, uuid="GPU-2", pod_name="", node="n2", energy=idle))
    found = hour_facts([interval(gpus=4, labels=FOUR)], [pod(name) for name in names], rows)
    held, whole = by_pod(found), found.total()
    drawn = round(sum(row.energy_wh or 0.0 for row in rows) * 1000)
    assert abs(whole.energy_mwh - drawn) <= len(rows), "each row is rounded once"
    of_pods = sum(row.energy_mwh for row in held.values())
    assert 0 <= of_pods <= whole.energy_mwh
    for row in (*held.values(), whole):
        # Where idle power is known: the shared GPU itself tells it while it does nothing.
        assert (row.energy_idle_mwh is None) == (row.energy_split_mwh is None)
        assert 0 <= (row.energy_idle_mwh or 0) <= (row.energy_split_mwh or 0) <= row.energy_mwh
    if idle is not None:
        assert whole.energy_split_mwh is not None
