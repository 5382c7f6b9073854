"""The closed form against the same samples listed and worked through one by one."""

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet import FOREVER, Pod
from simulator.prometheus.evaluate import Labels, SeriesValues, Times, evaluate, raw_samples
from simulator.prometheus.promql import NotEvaluated, Selector, parse
from simulator.prometheus.series import SCRAPE_MS
from simulator.prometheus.signals import Signals
from tests.simulator.small import ORIGIN, Small, pod

SLOT_MS = 1_800_000
START_MS = ORIGIN * 1000
LATE_MS = START_MS + 10**9
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"

Points = Sequence[tuple[int, float]]


def rows(
    scenario: Small, query: str, times: Times, *, until_ms: int = LATE_MS
) -> list[SeriesValues]:
    return evaluate(parse(query), times, Signals(scenario), until_ms=until_ms)


def slot(number: int = 0) -> Times:
    """Return the instant at which the portal reads a half-hour slot."""
    return Times(START_MS + (number + 1) * SLOT_MS - 1, 1, 1)


# ---------------------------------------------------------------- by hand


def test_a_slot_sums_the_activity_of_sixty_scrapes() -> None:
    scenario = Small([pod("a", bound=0, activity=0.25)])

    found = rows(scenario, f"sum by (exported_pod) (sum_over_time({ACTIVITY}[30m]))", slot())

    assert [(dict(row.labels), row.values) for row in found] == [
        ({}, {0: 0.0}),
        ({"exported_pod": "a"}, {0: 15.0}),
    ]


def test_a_gpu_is_labelled_only_while_its_pod_runs() -> None:
    scenario = Small([pod("a", bound=0, started=600, finished=1200)])

    found = rows(
        scenario,
        f'sum by (exported_pod) (count_over_time({ACTIVITY}{{gpu="0"}}[30m]))',
        slot(),
    )

    assert [(dict(row.labels), row.values[0]) for row in found] == [
        ({}, 40.0),
        ({"exported_pod": "a"}, 20.0),
    ]


def test_a_busy_gpu_draws_its_energy_and_an_idle_one_its_own() -> None:
    scenario = Small([pod("a", bound=0, power_watts=300.0)])

    found = rows(scenario, f"max by (gpu) (increase({ENERGY}[30m]))", slot(2))

    assert [row.values[0] for row in found] == pytest.approx(
        [300.0 * SLOT_MS, *[61.5 * SLOT_MS] * 3]
    )


def test_the_future_has_no_samples() -> None:
    scenario = Small([pod("a", bound=0)])
    now_ms = START_MS + SLOT_MS // 2

    found = rows(scenario, f'count_over_time({ACTIVITY}{{gpu="0"}}[30m])', slot(), until_ms=now_ms)

    assert found[0].values == {0: 30.0}
    assert rows(scenario, ACTIVITY, slot(3), until_ms=now_ms) == []


def test_an_instant_vector_looks_back_five_minutes() -> None:
    scenario = Small([pod("a", bound=0, finished=600)])
    query = f'{ACTIVITY}{{exported_pod="a"}}'
    last = START_MS + 600_000

    seen = [bool(rows(scenario, query, Times(last + ms, 1, 1))) for ms in (0, 269_000, 300_000)]

    assert seen == [True, True, False]


def test_metrics_that_would_fall_together_are_refused() -> None:
    scenario = Small([])

    with pytest.raises(NotEvaluated, match="same labelset"):
        rows(scenario, '{__name__=~"DCGM_FI_DEV_FB_.*"}'.join(("max_over_time(", "[30m])")), slot())


def test_last_over_time_keeps_the_name_and_others_drop_it() -> None:
    scenario = Small([])

    names = {
        function: dict(rows(scenario, f"{function}({ACTIVITY}[30m])", slot())[0].labels).get(
            "__name__"
        )
        for function in ("last_over_time", "max_over_time")
    }

    assert names == {"last_over_time": ACTIVITY, "max_over_time": None}


def test_too_many_raw_samples_are_refused() -> None:
    scenario = Small([])
    selector = parse(f"{ACTIVITY}[2y]")
    assert isinstance(selector, Selector)

    with pytest.raises(NotEvaluated, match="too many samples"):
        raw_samples(selector, START_MS + 63 * 10**9, Signals(scenario), until_ms=10**14)


# ---------------------------------------------------------------- against brute force


def _increase(points: Points, start_ms: int, end_ms: int) -> float | None:
    """Work through Prometheus' extrapolation sample by sample."""
    if len(points) < 2:
        return None
    growth, before = points[-1][1] - points[0][1], 0.0
    for _, value in points:
        if value < before:
            growth += before
        before = value
    sampled = (points[-1][0] - points[0][0]) / 1000
    average = sampled / (len(points) - 1)
    to_start, to_end = (points[0][0] - start_ms) / 1000, (end_ms - points[-1][0]) / 1000
    if growth > 0 and points[0][1] >= 0:
        to_start = min(to_start, sampled * points[0][1] / growth)
    reach = sampled
    reach += to_start if to_start < 1.1 * average else average / 2
    reach += to_end if to_end < 1.1 * average else average / 2
    return growth * reach / sampled


FUNCTIONS: Mapping[str, Callable[[Points, int, int], float | None]] = {
    "sum_over_time": lambda points, *_: math.fsum(v for _, v in points),
    "count_over_time": lambda points, *_: float(len(points)),
    "avg_over_time": lambda points, *_: math.fsum(v for _, v in points) / len(points),
    "max_over_time": lambda points, *_: max(v for _, v in points),
    "min_over_time": lambda points, *_: min(v for _, v in points),
    "last_over_time": lambda points, *_: points[-1][1],
    "present_over_time": lambda *_: 1.0,
    "increase": _increase,
}

METRICS = (ACTIVITY, "DCGM_FI_DEV_FB_USED", ENERGY, "kube_pod_created", "kube_pod_status_phase",
           "kube_resourcequota", "kube_pod_container_status_running")  # fmt: skip


@st.composite
def pods_in_turn(draw: st.DrawFn) -> list[Pod]:
    """Draw pods that hold GPU 0 one after the other, some waiting or starting before."""
    found, at = [], draw(st.integers(0, 2000))
    for number in range(draw(st.integers(0, 5))):
        waits, starts, runs, pause = (draw(st.integers(0, most)) for most in (900, 90, 4000, 700))
        bound = at + waits
        ends = bound + starts + max(runs, 1)
        found.append(
            pod(
                f"p{number}",
                created=at,
                bound=bound,
                started=bound + starts,
                finished=FOREVER if runs > 3900 else ends,
                activity=draw(st.floats(0, 1)),
                power_watts=draw(st.floats(60, 700)),
            )
        )
        if runs > 3900:
            break
        at = ends + pause
    return found


@given(
    pods=pods_in_turn(),
    metric=st.sampled_from(METRICS),
    function=st.sampled_from(sorted(FUNCTIONS)),
    first=st.integers(0, 4_000_000),
    step=st.integers(1, 2_000_000) | st.integers(1, 60).map(lambda n: n * SCRAPE_MS),
    count=st.integers(1, 8),
    length=st.integers(1, 60),
    until=st.integers(0, 12_000_000),
)
def test_the_closed_form_equals_the_samples_worked_through(
    pods: list[Pod],
    metric: str,
    function: str,
    first: int,
    step: int,
    count: int,
    length: int,
    until: int,
) -> None:
    signals = Signals(Small(pods))
    times = Times(START_MS + first, step, count)
    until_ms = START_MS + until
    length_ms = length * 60_000

    found = evaluate(parse(f"{function}({metric}[{length}m])"), times, signals, until_ms=until_ms)

    got = {(row.labels, index): value for row in found for index, value in row.values.items()}
    expected: dict[tuple[Labels, int], float] = {}
    for labels, points in listed(signals, metric, times.last_ms, until_ms).items():
        for index in range(count):
            end = times.at(index)
            within = [p for p in points if end - length_ms <= p[0] <= end]
            value = FUNCTIONS[function](within, end - length_ms, end) if within else None
            if value is not None:
                expected[_named(labels, function), index] = value
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-6)


def listed(
    signals: Signals, metric: str, last_ms: int, until_ms: int
) -> dict[Labels, list[tuple[int, float]]]:
    """Return all samples up to a time by asking of each scrape what is so at that moment."""
    found: dict[Labels, list[tuple[int, float]]] = {}
    for series in signals.series(metric, START_MS - 10**8, last_ms):
        labels = tuple(sorted((k, v) for k, v in series.labels.items() if v))
        at = START_MS - START_MS % SCRAPE_MS - SCRAPE_MS + series.phase_ms
        while at <= min(last_ms, until_ms):
            for start, end, value, slope in series.segments:
                if start <= at < end:
                    found.setdefault(labels, []).append((at, value + slope * (at - start)))
            at += SCRAPE_MS
    return found


def _named(labels: Labels, function: str) -> Labels:
    if function == "last_over_time":
        return labels
    return tuple(pair for pair in labels if pair[0] != "__name__")


@given(
    pods=pods_in_turn(),
    operation=st.sampled_from(["sum", "max", "min", "avg", "count", "group"]),
    by=st.sets(st.sampled_from(["gpu", "exported_pod", "absent"])),
)
def test_aggregation_combines_the_rows_with_equal_labels(
    pods: list[Pod], operation: str, by: set[str]
) -> None:
    scenario, times = Small(pods), Times(START_MS + SLOT_MS - 1, SLOT_MS, 3)
    inner = f"sum_over_time({ACTIVITY}[30m])"
    combine: Mapping[str, Callable[[list[float]], float]] = {
        "sum": math.fsum,
        "max": max,
        "min": min,
        "avg": lambda values: math.fsum(values) / len(values),
        "count": lambda values: float(len(values)),
        "group": lambda _: 1.0,
    }

    got = rows(scenario, f"{operation} by ({', '.join(sorted(by))}) ({inner})", times)

    groups: dict[tuple[Labels, int], list[float]] = {}
    for row in rows(scenario, inner, times):
        key = tuple(pair for pair in row.labels if pair[0] in by)
        for index, value in row.values.items():
            groups.setdefault((key, index), []).append(value)
    assert {(r.labels, i): v for r in got for i, v in r.values.items()} == pytest.approx(
        {key: combine[operation](values) for key, values in groups.items()}
    )
