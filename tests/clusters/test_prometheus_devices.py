"""Device rows from a real Prometheus, held against the samples they were made of."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import DeviceAnswer, SourceRejected, SourceUnavailable
from tests.clusters import device_series
from tests.clusters.device_series import (
    ACTIVITY,
    BLANKS,
    CHANGED,
    HOSTILE,
    UTILIZATION,
    WATTS,
    activity_of,
)
from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT
from tests.clusters.scripted_prometheus import Answer, Asked, forwarded, scripted

pytestmark = pytest.mark.prometheus

HOURLY = [Window.hour(from_seconds(ORIGIN + n * HOUR)) for n in range(3)]
LONG = [Window(from_seconds(ORIGIN), from_seconds(device_series.END))]
FIRST_HOUR = HOURLY[0]


@pytest.fixture
def clusters(prometheus_url: str) -> Iterator["Clusters"]:
    found = Clusters(prometheus_url)
    yield found
    found.close()


class Clusters:
    """Sources of the made clusters, by name."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sources: dict[str, PrometheusSource] = {}

    def __getitem__(self, name: str) -> PrometheusSource:
        if name not in self._sources:
            entry = {"url": self._url, "matchers": {"cluster": name}}
            self._sources[name] = PrometheusSource(
                PrometheusApi(PrometheusConfig.from_catalog(entry))
            )
        return self._sources[name]

    def close(self) -> None:
        for source in self._sources.values():
            source.close()


def truth(world: str) -> dict[tuple[int, str, str], list[float]]:
    """Return the raw activity samples by slot, UUID and pod."""
    found: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for one in getattr(device_series, world)():
        if one.metric == ACTIVITY:
            pod = one.labels.get("exported_pod", "")
            for at, value in one.samples:
                found[int(at // SLOT) * SLOT, one.labels["UUID"], pod].append(value)
    return found


def only(answer: DeviceAnswer, uuid: str) -> list[DeviceSlot]:
    return sorted(row for row in answer.rows if row.uuid == uuid)


def interval_of(answer: DeviceAnswer, row: DeviceSlot) -> float | None:
    """Return the interval of a row as the port says it is found."""
    key = (row.slot, row.uuid, row.gpu_instance)
    return answer.intervals.get(key, answer.scrape_interval_seconds)


def intervals_of(answer: DeviceAnswer) -> list[tuple[DeviceSlot, float | None]]:
    """Return the interval of every row, without what rounding may change."""
    return [
        (row._replace(activity_sum=None, energy_wh=None), interval_of(answer, row))
        for row in sorted(answer.rows)
    ]


@pytest.mark.parametrize("windows", [HOURLY, LONG], ids=["hourly", "range"])
def test_means_and_counts_equal_those_of_the_raw_samples(
    clusters: Clusters, windows: list[Window]
) -> None:
    expected = truth("renamed")
    rows = [row for window in windows for row in clusters["renamed"].devices(window).rows]
    found = {(row.slot, row.uuid, row.pod): row for row in rows}
    assert set(found) == set(expected)
    assert len(found) == len(rows)
    for key, samples in expected.items():
        row = found[key]
        assert row.samples == len(samples), key
        assert row.activity_sum is not None
        assert row.activity_sum / row.samples == pytest.approx(
            sum(samples) / len(samples), abs=1e-9
        )


@pytest.mark.parametrize(
    "world",
    [
        *("renamed", "honoured", "mixed", "twice", "sliced", "percent", "blank", "shared"),
        *("speeds", "changed", "unmapped", "unmapped-alike", "targets", "one-percent", "quarter"),
        *("half-profiled", "restarted"),
    ],
)
def test_range_queries_give_what_hourly_queries_give(clusters: Clusters, world: str) -> None:
    answers = [clusters[world].devices(window) for window in HOURLY]
    whole = clusters[world].devices(LONG[0])
    assert [seconds for one in answers for seconds in intervals_of(one)] == intervals_of(whole)
    hourly = sorted(row for one in answers for row in one.rows)
    long = sorted(whole.rows)
    assert len(hourly) == len(long)
    for one, other in zip(hourly, long, strict=True):
        assert one._replace(activity_sum=None, energy_wh=None) == other._replace(
            activity_sum=None, energy_wh=None
        )
        assert one.activity_sum == pytest.approx(other.activity_sum, abs=1e-9)
        assert one.energy_wh == pytest.approx(other.energy_wh, abs=1e-6)


def test_a_sample_on_the_boundary_belongs_to_the_slot_it_begins(clusters: Clusters) -> None:
    rows = only(clusters["renamed"].devices(LONG[0]), "GPU-b1")
    assert [row.samples for row in rows] == [60] * 6


def test_workloads_are_named_by_the_renamed_labels(clusters: Clusters) -> None:
    rows = only(clusters["renamed"].devices(FIRST_HOUR), "GPU-a2")
    assert [(row.slot, row.namespace, row.pod, row.container) for row in rows] == [
        (ORIGIN, "vision", "eval-0", "main"),
        (ORIGIN + SLOT, "", "", ""),
        (ORIGIN + SLOT, "vision", "eval-0", "main"),
    ]


def test_workloads_are_named_by_plain_labels_where_these_are_theirs(clusters: Clusters) -> None:
    answer = clusters["honoured"].devices(FIRST_HOUR)
    assert {(row.uuid, row.namespace, row.pod) for row in answer.rows} == {
        ("GPU-h1", "vision", "train-0"),
        ("GPU-h2", "", ""),
    }


def test_the_exporter_is_not_taken_for_a_workload(clusters: Clusters) -> None:
    answer = clusters["lonely"].devices(FIRST_HOUR)
    assert {(row.uuid, row.namespace, row.pod, row.container) for row in answer.rows} == {
        ("GPU-l1", "", "", "")
    }


def test_two_jobs_may_name_workloads_differently(clusters: Clusters) -> None:
    answer = clusters["mixed"].devices(FIRST_HOUR)
    assert {(row.uuid, row.node, row.pod, row.samples) for row in answer.rows} == {
        ("GPU-m1", "n1", "train-0", 60),
        ("GPU-m2", "n2", "serve-0", 60),
    }


def test_nodes_are_named_by_either_hostname_label(clusters: Clusters) -> None:
    answer = clusters["renamed"].devices(FIRST_HOUR)
    assert {row.uuid: row.node for row in answer.rows} == {
        "GPU-a1": "n1", "GPU-a2": "n1", "GPU-idle": "n1", "GPU-b1": "n2",
    }  # fmt: skip


def test_a_device_exported_twice_has_its_samples_once(clusters: Clusters) -> None:
    answer = clusters["twice"].devices(FIRST_HOUR)
    rows = [row for row in answer.rows if row.node == "n1"]
    assert {(row.slot, row.uuid, row.pod): row.samples for row in rows} == {
        (ORIGIN, "GPU-t1", "train-0"): 60,
        (ORIGIN, "GPU-t2", "short-0"): 30,
        (ORIGIN, "GPU-t2", ""): 30,
        (ORIGIN + SLOT, "GPU-t1", "train-0"): 60,
        (ORIGIN + SLOT, "GPU-t2", ""): 60,
    }  # fmt: skip
    expected = truth("twice")
    for row in answer.rows:
        samples = expected[row.slot, row.uuid, row.pod]
        assert row.activity_sum is not None
        assert row.activity_sum / row.samples == pytest.approx(
            sum(samples) / len(samples), abs=1e-9
        )
    assert any("two exporters on n1" in warning for warning in answer.warnings)


def test_copies_of_a_shared_gpu_are_rows_of_its_sharers(clusters: Clusters) -> None:
    answer = clusters["shared"].devices(FIRST_HOUR)
    first = [row for row in answer.rows if row.uuid == "GPU-v1" and row.slot == ORIGIN]
    assert sorted((row.pod, row.samples) for row in first) == [
        ("sharer-0", 60),
        ("sharer-1", 60),
        ("sharer-2", 60),
    ]
    assert answer.warnings == ()


@pytest.mark.parametrize("world", ["renamed", "sliced", "shared"])
def test_energy_is_that_of_the_device_however_many_rows_it_has(
    clusters: Clusters, world: str
) -> None:
    energy: dict[tuple[int, str], float] = defaultdict(float)
    for row in clusters[world].devices(LONG[0]).rows:
        if row.energy_wh is not None:
            energy[row.slot, row.uuid] += row.energy_wh
    assert energy
    for key, wh in energy.items():
        assert wh == pytest.approx(WATTS / 2, rel=1e-3), key


def test_memory_is_the_peak_of_the_slot(clusters: Clusters) -> None:
    rows = only(clusters["renamed"].devices(LONG[0]), "GPU-a1")
    assert [row.memory_used_peak_mib for row in rows] == [1002 + 3 * n for n in range(6)]
    assert all(a.slot + SLOT == b.slot for a, b in pairwise(rows))


def test_instances_are_devices_of_their_own(clusters: Clusters) -> None:
    answer = clusters["sliced"].devices(FIRST_HOUR)
    assert {(r.uuid, r.gpu_instance, r.profile, r.pod) for r in answer.rows} == {
        ("GPU-s1", "1", "3g.40gb", "mig-0"),
        ("GPU-s1", "2", "3g.40gb", "mig-1"),
        ("GPU-s2", "5", "3g.40gb", "mig-2"),
    }


def test_a_device_without_activity_is_there_and_without_metrics(clusters: Clusters) -> None:
    rows = only(clusters["sliced"].devices(FIRST_HOUR), "GPU-s2")
    assert [(r.activity_sum, r.samples, r.memory_used_peak_mib) for r in rows] == [
        (None, 0, 1002.0),
        (None, 0, 1005.0),
    ]


def test_gpu_util_stands_in_where_profiling_is_missing(clusters: Clusters) -> None:
    answer = clusters["without-profiling"].devices(FIRST_HOUR)
    first, second = only(answer, "GPU-u1")[0], only(answer, "GPU-u2")[0]
    assert answer.activity_metric == f"{ACTIVITY}, {UTILIZATION}"
    assert first.samples == second.samples == 60
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    whole_percent = [round(activity_of("GPU-u1")(t) * 100) / 100 for t in times]
    assert first.activity_sum == pytest.approx(sum(whole_percent), abs=1e-9)
    assert second.activity_sum == pytest.approx(sum(map(activity_of("GPU-u2"), times)), abs=1e-9)


def test_gpu_util_rescaled_to_fractions_is_read_as_such(clusters: Clusters) -> None:
    answer = clusters["rescaled"].devices(FIRST_HOUR)
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    assert only(answer, "GPU-r1")[0].activity_sum == pytest.approx(
        sum(map(activity_of("GPU-r1"), times)), abs=1e-9
    )
    assert any("0..1" in warning for warning in answer.warnings)


def test_profiling_in_per_cent_is_divided_and_said(clusters: Clusters) -> None:
    answer = clusters["percent"].devices(FIRST_HOUR)
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    for uuid in ("GPU-p1", "GPU-p2", "GPU-p3"):
        row = only(answer, uuid)[0]
        assert row.activity_sum == pytest.approx(sum(map(activity_of(uuid), times)), abs=1e-9)
    assert any("0..100" in warning for warning in answer.warnings)


@pytest.mark.parametrize("uuid", [pytest.param(u, id=str(v)) for u, v in BLANKS.items()])
def test_blank_samples_are_left_out(clusters: Clusters, uuid: str) -> None:
    answer = clusters["blank"].devices(FIRST_HOUR)
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    good = [activity_of(uuid)(t) for n, t in enumerate(times) if n % 10]
    row = only(answer, uuid)[0]
    assert row.samples == 54
    assert row.activity_sum == pytest.approx(sum(good), abs=1e-9)
    assert any("left out" in warning for warning in answer.warnings)


def test_blanks_leave_their_neighbours_as_they_are(clusters: Clusters) -> None:
    answer = clusters["blank"].devices(FIRST_HOUR)
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    row = only(answer, "GPU-x7")[0]
    assert row.samples == 60
    assert row.activity_sum == pytest.approx(sum(map(activity_of("GPU-x7"), times)), abs=1e-9)


def test_a_device_of_blanks_alone_is_without_metrics(clusters: Clusters) -> None:
    row = only(clusters["blank"].devices(FIRST_HOUR), "GPU-x6")[0]
    assert (row.activity_sum, row.samples) == (None, 0)


def test_a_little_over_one_is_one(clusters: Clusters) -> None:
    row = only(clusters["blank"].devices(FIRST_HOUR), "GPU-x8")[0]
    assert (row.activity_sum, row.samples) == (60.0, 60)


def test_one_strange_value_is_no_change_of_unit(clusters: Clusters) -> None:
    row = only(clusters["glitch"].devices(FIRST_HOUR), "GPU-g1")[0]
    assert row.samples == 58
    assert row.activity_sum == pytest.approx(0.58)


def test_energy_that_no_gpu_can_use_is_left_out(clusters: Clusters) -> None:
    answer = clusters["glitch"].devices(FIRST_HOUR)
    assert [row.energy_wh for row in only(answer, "GPU-g1")] == [None, 0.0]
    assert any("ENERGY" in warning for warning in answer.warnings)


def test_a_pod_with_two_replicas_of_a_gpu_has_its_samples_once(clusters: Clusters) -> None:
    answer = clusters["replicas"].devices(FIRST_HOUR)
    rows = [row for row in only(answer, "GPU-y1") if row.slot == ORIGIN]
    assert [(row.pod, row.samples) for row in rows] == [("one-of-it", 60), ("two-of-it", 60)]
    assert answer.warnings == ()


def test_a_cluster_without_activity_has_rows_and_no_interval(clusters: Clusters) -> None:
    answer = clusters["silent"].devices(LONG[0])
    assert [(row.activity_sum, row.samples) for row in answer.rows] == [(None, 0)] * 6
    assert (answer.activity_metric, answer.scrape_interval_seconds) == ("", None)


def test_where_raw_samples_are_refused_the_device_is_without_metrics(prometheus_url: str) -> None:
    def refuse(asked: Asked) -> Answer:
        if asked.form.get("query", "").endswith("]"):
            error = b'{"status":"error","errorType":"execution","error":"too many samples"}'
            return Answer(error, 422)
        return Answer(forwarded(prometheus_url, asked))

    with scripted(refuse) as server:
        entry = {"url": server.url, "matchers": {"cluster": "blank"}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        answer = source.devices(FIRST_HOUR)
        with pytest.raises(SourceRejected, match="too many samples"):
            source.activity_samples(["GPU-x3"], FIRST_HOUR)
        source.close()
    spoilt = [row for row in answer.rows if row.uuid in BLANKS]
    assert len(spoilt) == 10
    assert {(row.activity_sum, row.samples) for row in spoilt} == {(None, 0)}
    assert only(answer, "GPU-x7")[0].samples == 60
    assert answer.scrape_interval_seconds is None
    assert any("refused" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    "page",
    [
        b"<!doctype html><html><title>Sign in</title></html>",
        b'{"databases": [], "message": "welcome"}',
        b'{"status":"error","errorType":"execution","error":"try again"}',
    ],
    ids=["html", "other-json", "error"],
)
@pytest.mark.parametrize("world", ["blank", "unmapped"])
def test_a_page_in_place_of_samples_or_quotas_is_no_refusal(
    world: str, page: bytes, prometheus_url: str
) -> None:
    def replaced(asked: Asked) -> Answer:
        query = asked.form.get("query", "")
        if query.endswith("]") or "kube_resourcequota" in query:
            return Answer(page)
        return Answer(forwarded(prometheus_url, asked))

    with scripted(replaced) as server:
        entry = {"url": server.url, "matchers": {"cluster": world}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        # Taken for a refusal, the hour would be complete without them, and not be tried again.
        with pytest.raises(SourceUnavailable):
            source.devices(FIRST_HOUR)
        with pytest.raises(SourceUnavailable):
            source.activity_samples(["GPU-x3"], FIRST_HOUR)
        with pytest.raises(SourceUnavailable):
            source.quotas(FIRST_HOUR)
        source.close()


def test_a_page_in_place_of_everything_is_no_refusal_of_raw_samples() -> None:
    with scripted(lambda _: Answer(b"<html>Sign in</html>")) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        with pytest.raises(SourceUnavailable):
            source.activity_samples(["GPU-x3"], FIRST_HOUR)
        source.close()


def test_a_hostile_cluster_name_reaches_its_own_series_alone(clusters: Clusters) -> None:
    answer = clusters[HOSTILE].devices(LONG[0])
    assert {row.uuid for row in answer.rows} == {'GPU-"q"|.*'}
    samples = clusters[HOSTILE].activity_samples(['GPU-"q"|.*'], FIRST_HOUR).rows
    assert {sample.uuid for sample in samples} == {'GPU-"q"|.*'}


def test_the_sampling_interval_is_learnt(clusters: Clusters) -> None:
    assert clusters["renamed"].devices(FIRST_HOUR).scrape_interval_seconds == 30.0
    assert clusters["twice"].devices(LONG[0]).scrape_interval_seconds == 30.0


EIGHT_HOURS = Window(from_seconds(ORIGIN), from_seconds(device_series.CHANGED_END))


def test_a_slot_has_its_interval_however_long_the_window_is(clusters: Clusters) -> None:
    together = clusters["changed"].devices(EIGHT_HOURS)
    assert {interval_of(together, row) for row in together.rows if row.slot < CHANGED} == {30.0}
    assert {interval_of(together, row) for row in together.rows if row.slot >= CHANGED} == {15.0}
    alone = [clusters["changed"].devices(hour) for hour in EIGHT_HOURS.hours()]
    assert [one for answer in alone for one in intervals_of(answer)] == intervals_of(together)
    assert {row.samples * (interval_of(together, row) or 0.0) for row in together.rows} == {1800.0}


def test_devices_of_one_slot_may_be_scraped_at_several_intervals(clusters: Clusters) -> None:
    answer = clusters["speeds"].devices(FIRST_HOUR)
    assert answer.scrape_interval_seconds == 15.0
    assert answer.intervals == {(ORIGIN, "GPU-s1", ""): 60.0, (ORIGIN + SLOT, "GPU-s1", ""): 60.0}


def test_an_exporter_that_was_away_is_no_slower_one(clusters: Clusters) -> None:
    answer = clusters["speeds"].devices(FIRST_HOUR)
    away, slow = only(answer, "GPU-w1")[0], only(answer, "GPU-s1")[0]
    assert (away.samples, slow.samples) == (30, 30)
    assert (interval_of(answer, away), interval_of(answer, slow)) == (15.0, 60.0)


def test_intervals_cost_one_raw_query_for_each_slot(prometheus_url: str) -> None:
    with scripted(lambda asked: Answer(forwarded(prometheus_url, asked))) as server:
        entry = {"url": server.url, "matchers": {"cluster": "speeds"}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        source.devices(LONG[0])
        source.close()
    assert sum(asked.form.get("query", "").endswith("]") for asked in server.asked) == 6


# ---------------------------------------------------------------- exporters


@pytest.mark.parametrize("world", ["unmapped", "unmapped-alike"])
def test_copies_of_an_exporter_without_pods_are_left_out(clusters: Clusters, world: str) -> None:
    answer = clusters[world].devices(FIRST_HOUR)
    rows = only(answer, "GPU-o1")
    assert [(row.slot, row.pod, row.samples) for row in rows] == [
        (ORIGIN, "train-0", 60),
        (ORIGIN + SLOT, "train-0", 60),
    ]
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    assert rows[0].activity_sum == pytest.approx(sum(map(activity_of("GPU-o1"), times)), abs=1e-9)
    assert any("without pods were left out" in warning for warning in answer.warnings)


def test_what_nobody_held_stays_where_copies_are_left_out(clusters: Clusters) -> None:
    answer = clusters["unmapped"].devices(FIRST_HOUR)
    rows = [row for row in only(answer, "GPU-o2") if row.slot == ORIGIN]
    assert [(row.pod, row.samples) for row in rows] == [("", 30), ("short-0", 30)]
    value = activity_of("GPU-o2")
    for row, first in zip(rows, (30, 0), strict=True):
        times = [ORIGIN + 7.123 + n * 30 for n in range(first, first + 30)]
        assert row.activity_sum == pytest.approx(sum(map(value, times)), abs=1e-6)
    assert sum(row.energy_wh or 0.0 for row in rows) == pytest.approx(WATTS / 2, rel=0.04)


def test_an_exporter_that_was_restarted_is_no_second_one(clusters: Clusters) -> None:
    answer = clusters["restarted"].devices(FIRST_HOUR)
    assert sorted((row.pod, row.samples) for row in answer.rows if row.slot == ORIGIN) == [
        ("sharer-0", 60),
        ("sharer-1", 60),
        ("sharer-2", 60),
    ]
    assert answer.warnings == ()


def test_copies_are_left_out_where_raw_samples_are_refused(prometheus_url: str) -> None:
    def refuse(asked: Asked) -> Answer:
        if asked.form.get("query", "").endswith("]"):
            return Answer(b"{}", 422)
        return Answer(forwarded(prometheus_url, asked))

    with scripted(refuse) as server:
        entry = {"url": server.url, "matchers": {"cluster": "unmapped"}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        answer = source.devices(FIRST_HOUR)
        source.close()
    assert [(row.pod, row.samples) for row in only(answer, "GPU-o1")] == [("train-0", 60)] * 2


def test_the_exporter_with_the_profiling_metric_tells(clusters: Clusters) -> None:
    answer = clusters["half-profiled"].devices(FIRST_HOUR)
    assert [(row.pod, row.samples) for row in answer.rows] == [("train-0", 60)] * 2
    times = [ORIGIN + 7.123 + n * 30 for n in range(60)]
    assert answer.rows[0].activity_sum == pytest.approx(
        sum(map(activity_of("GPU-j1"), times)), abs=1e-9
    )


def test_a_gpu_at_rest_under_two_exporters_is_counted_once(clusters: Clusters) -> None:
    answer = clusters["unmapped"].devices(FIRST_HOUR)
    assert [(row.pod, row.samples) for row in only(answer, "GPU-o3")] == [("", 60), ("", 60)]


@pytest.mark.parametrize("world", ["unmapped", "unmapped-alike"])
def test_raw_samples_of_an_exporter_without_pods_are_left_out(
    clusters: Clusters, world: str
) -> None:
    samples = clusters[world].activity_samples(["GPU-o1"], FIRST_HOUR).rows
    assert [sample.pod for sample in samples] == ["train-0"] * 120


def test_the_exporters_own_pod_is_known_from_its_target(clusters: Clusters) -> None:
    answer = clusters["targets"].devices(FIRST_HOUR)
    assert {(row.uuid, row.namespace, row.pod, row.container) for row in answer.rows} == {
        ("GPU-e1", "vision", "model-exporter-0", "main"),
        ("GPU-e2", "", "", ""),
        ("GPU-e3", "", "", ""),
    }
    samples = clusters["targets"].activity_samples(["GPU-e1", "GPU-e2"], FIRST_HOUR).rows
    assert {(sample.uuid, sample.pod) for sample in samples} == {
        ("GPU-e1", "model-exporter-0"),
        ("GPU-e2", ""),
    }


def test_one_per_cent_is_not_all(clusters: Clusters) -> None:
    answer = clusters["one-percent"].devices(FIRST_HOUR)
    assert only(answer, "GPU-i1")[0].activity_sum == pytest.approx(0.6)
    assert only(answer, "GPU-i2")[0].activity_sum == pytest.approx(0.3)
    assert answer.warnings == ()
    samples = clusters["one-percent"].activity_samples(["GPU-i1"], FIRST_HOUR).rows
    assert {sample.activity for sample in samples} == {0.01}


def test_fractions_are_seen_though_their_sums_are_whole(clusters: Clusters) -> None:
    answer = clusters["quarter"].devices(FIRST_HOUR)
    assert only(answer, "GPU-k1")[0].activity_sum == pytest.approx(15.0)


def test_a_window_without_series_is_empty(clusters: Clusters) -> None:
    answer = clusters["renamed"].devices(
        Window(from_seconds(ORIGIN - 10 * HOUR), from_seconds(ORIGIN - 9 * HOUR))
    )
    assert (list(answer.rows), answer.activity_metric, answer.scrape_interval_seconds) == (
        [],
        "",
        None,
    )


# ---------------------------------------------------------------- raw samples


def test_raw_samples_are_those_that_were_written(clusters: Clusters) -> None:
    window = Window(from_seconds(ORIGIN + 600), from_seconds(ORIGIN + 2 * SLOT + 900))
    samples = clusters["renamed"].activity_samples(["GPU-a2", "GPU-b1"], window).rows
    expected = sorted(
        (one.labels["UUID"], one.labels.get("exported_pod", ""), at, value)
        for one in device_series.renamed()
        if one.metric == ACTIVITY and one.labels["UUID"] in {"GPU-a2", "GPU-b1"}
        for at, value in one.samples
        if window.start_seconds <= at < window.end_seconds
    )
    assert sorted((s.uuid, s.pod, s.at, s.activity) for s in samples) == expected
    assert len(expected) > 200


def test_raw_samples_of_blanks_copies_and_percents_are_usable(clusters: Clusters) -> None:
    blank = clusters["blank"].activity_samples(["GPU-x3"], FIRST_HOUR).rows
    twice = clusters["twice"].activity_samples(["GPU-t1"], FIRST_HOUR).rows
    percent = clusters["percent"].activity_samples(["GPU-p1"], FIRST_HOUR).rows
    util = clusters["without-profiling"].activity_samples(["GPU-u1", "GPU-u2"], FIRST_HOUR).rows
    assert (len(blank), len(twice), len(percent), len(util)) == (108, 120, 120, 240)
    assert all(0.0 <= s.activity <= 1.0 for s in (*blank, *twice, *percent, *util))
    assert max(s.activity for s in util) > 0.9


def test_no_devices_ask_no_question(clusters: Clusters) -> None:
    assert clusters["renamed"].activity_samples([], FIRST_HOUR).rows == []
    assert clusters["renamed"].activity_samples(["GPU-unknown"], FIRST_HOUR).rows == []


def test_levels_are_means_of_the_slot_by_holder_and_none_where_not_exported(
    clusters: Clusters,
) -> None:
    answer = clusters["deep"].devices(FIRST_HOUR)
    deep = {(row.slot, row.pod): row.levels for row in only(answer, "GPU-deep")}
    assert deep == {
        (ORIGIN, "first-0"): pytest.approx((0.2, 0.125, 0.4)),
        (ORIGIN, "second-0"): pytest.approx((0.6, 0.125, 0.4)),
        (ORIGIN + SLOT, "second-0"): pytest.approx((0.6, 0.125, 0.4)),
    }
    assert {row.levels for row in only(answer, "GPU-plain")} == {(None, None, 0.4)}
    assert {row.levels for row in only(answer, "GPU-none")} == {(None, None, None)}
