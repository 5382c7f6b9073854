"""The ledger of kube-state-metrics in a real Prometheus, against pods known to the second."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf, nan
from pathlib import Path

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodRecord
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import LedgerAnswer, QuotaSlot
from tests.clusters.kube_state_series import (
    END,
    LATER,
    PRODUCT,
    TrueNode,
    TruePod,
    churn,
    owners,
    world,
)
from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT, Series, scrapes, series, write
from tests.clusters.scripted_prometheus import EMPTY, Answer, Asked, forwarded, scripted
from tests.real_prometheus import RealPrometheus

pytestmark = pytest.mark.prometheus

ALL = Window(from_seconds(ORIGIN), from_seconds(END))
HOURLY = list(ALL.hours())
CHURN = churn(300)
AT = ORIGIN + 5000.0

KINDS = [
    TruePod("runs", bound=ORIGIN - 3500, started=ORIGIN - 3490, owner=("ReplicaSet", "web-abc")),
    TruePod("waits", created=ORIGIN + 100, owner=("Job", "nightly-1"), priority="high"),
    TruePod("done", bound=ORIGIN, started=ORIGIN + 5, finished=AT, owner=("Job", "alone")),
    TruePod("failed", bound=ORIGIN, started=ORIGIN + 5, finished=AT, phase="Failed"),
    TruePod("deleted", bound=ORIGIN, started=ORIGIN + 5, deleted=AT),
    TruePod(
        "refused",
        bound=AT - 60,
        created=AT - 61,
        finished=AT - 58,
        phase="Failed",
        completion=False,
    ),
    TruePod("long-over", bound=ORIGIN - 3000, started=ORIGIN - 2990, finished=ORIGIN - 100),
    TruePod("in-the-last-interval", created=END - 20, bound=END - 15, started=END - 5),
    TruePod("after", created=END + 20, bound=END + 25, started=END + 30),
    TruePod(
        "crashing",
        bound=ORIGIN,
        started=ORIGIN + 5,
        runs=((ORIGIN + 5, ORIGIN + 2700), (ORIGIN + 6000, float("inf"))),
    ),
    TruePod(
        "sidecar",
        bound=ORIGIN,
        started=ORIGIN + 5,
        init_requests={"proxy": {"nvidia_com_gpu": 1.0}, "fetch": {"nvidia_com_gpu": 1.0}},
        sidecars=("proxy",),
    ),
    TruePod(
        "sliced",
        bound=ORIGIN,
        started=ORIGIN + 5,
        requests={"a": {"nvidia_com_mig_1g_10gb": 2.0}, "b": {"nvidia_com_mig_1g_10gb": 1.0}},
    ),
    TruePod("named", bound=ORIGIN, started=ORIGIN + 5, requests={"main": {"example_com_npu": 1.0}}),
    TruePod("not-a-gpu-pod", bound=ORIGIN, started=ORIGIN + 5, requests={"main": {"cpu": 8.0}}),
]
NODES = [
    TrueNode("n1"),
    TrueNode("cpu", gpus=0.0),
    TrueNode("late", created=ORIGIN + 600, registered=ORIGIN + 900),
    TrueNode("leaves", deleted=ORIGIN + 4000),
    TrueNode("sick", unready=(ORIGIN + 2700, ORIGIN + 5400), cordoned=(ORIGIN + 7200, END + 900)),
    TrueNode("worn", broken=(ORIGIN + 900, ORIGIN + 1800)),
]


def _quotas() -> Iterator[Series]:
    for key, kind, value in (
        ("requests.nvidia.com/gpu", "hard", 8.0),
        ("requests.nvidia.com/gpu", "used", 3.0),
        ("nvidia.com/gpu", "hard", 2.0),
        ("requests.cpu", "hard", 100.0),
    ):
        labels = {"namespace": "vision", "resourcequota": "gpus", "resource": key, "type": kind}
        change = 4.0 if (key, kind) == ("requests.nvidia.com/gpu", "used") else value
        yield series(
            "kube_resourcequota",
            labels,
            lambda t, a=value, b=change: a if t < ORIGIN + 900 else b,  # type: ignore[misc]
            scrapes(ORIGIN, END),
        )


HOLES = {
    "one-scrape-failed": (ORIGIN + 600.0, ORIGIN + 630.0),
    "ten-minutes": (ORIGIN + 600.0, ORIGIN + 1200.0),
    "first-minutes": (ORIGIN + 0.0, ORIGIN + 300.0),
    "last-minutes": (ORIGIN + 1500.0, ORIGIN + 1800.0),
}
NO_TIMES = ("created", "status_scheduled_time", "start_time", "completion_time")


def _absurd() -> Iterator[Series]:
    """Pods and a node of which a broken collector writes what cannot be."""

    def one(metric: str, value: float, **labels: str) -> Series:
        return series(metric, {**labels, "namespace": "vision"}, value, scrapes(ORIGIN, LATER))

    requests = "kube_pod_container_resource_requests"
    for name, units in (("all", 1e300), ("inf", inf), ("nan", nan), ("less", -4.0), ("most", 2e4)):
        mad = {"pod": name, "uid": name, "container": "main", "resource": "nvidia_com_gpu"}
        yield one(requests, units, node="n1", **mad)
    for name, at in (("never", inf), ("late", END + 3 * 86400.0), ("early", 5.0), ("nan-at", nan)):
        pod = {"pod": name, "uid": name}
        yield one(requests, 1.0, node="n1", container="main", resource="nvidia_com_gpu", **pod)
        for metric in NO_TIMES:
            yield one(f"kube_pod_{metric}", at, **pod)
        yield one("kube_pod_status_phase", at, phase="Failed", **pod)
        yield one("kube_pod_container_state_started", at, container="main", **pod)
        yield one("kube_pod_container_status_running", at, container="main", **pod)
    for node, units in (("huge", 1e12), ("odd", nan), ("endless", inf), ("minus", -8.0)):
        for metric in ("capacity", "allocatable"):
            yield one(f"kube_node_status_{metric}", units, node=node, resource="nvidia_com_gpu")
        yield one("kube_node_created", units, node=node)
    sick = {"node": "unsaid", "resource": "nvidia_com_gpu"}
    yield one("kube_node_status_capacity", 4.0, **sick)
    yield one("kube_node_created", ORIGIN - 9000.0, node="unsaid")
    yield one("kube_node_spec_unschedulable", nan, node="unsaid")
    yield one("kube_node_status_condition", nan, node="unsaid", condition="Ready", status="true")
    quota = {"resourcequota": "gpus", "resource": "requests.nvidia.com/gpu"}
    yield one("kube_resourcequota", inf, type="hard", **quota)
    yield one("kube_resourcequota", 3.0, type="used", **quota)


def _renamed(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels as Prometheus writes them without honor_labels."""
    own = {"namespace": "monitoring", "pod": "kube-state-metrics-0", "container": "ksm"}
    kept = {f"exported_{k}" if k in own else k: v for k, v in labels.items()}
    return {**kept, **own}


def _owners() -> Iterator[Series]:
    yield from owners(
        [("vision", "web-abc", "Deployment", "web", "true")], "kube_replicaset_owner", "replicaset"
    )
    jobs = [("vision", "nightly-1", "CronJob", "nightly", "true"), ("vision", "alone", "", "", "")]
    yield from owners(jobs, "kube_job_owner", "job_name")


def _all_series() -> Iterator[Series]:
    yield from world("kinds", KINDS, NODES, more=[*_owners(), *_quotas()])
    yield from world("churn", CHURN, [TrueNode(f"n{n}") for n in range(20)], phase=21.3)
    some = CHURN[:60]
    yield from world("replicas", some, [TrueNode("n0")], replicas=2)
    outage = (ORIGIN + SLOT, ORIGIN + 3 * SLOT)
    yield from world("outage", KINDS[:5], NODES[:1], away=outage)
    kept = world("renamed", KINDS, NODES, more=[*_owners(), *_quotas()])
    yield from (one._replace(labels=_renamed(one.labels)) for one in kept)
    unsaid = {
        "kube_node_labels",
        "kube_pod_status_scheduled_time",
        "kube_pod_status_phase",
        "kube_pod_container_state_started",
        "kube_pod_container_status_running",
    }
    yield from (one for one in world("poor", KINDS, NODES) if one.metric not in unsaid)
    for name, away in HOLES.items():
        yield from world(name, KINDS[:1], NODES[:1], away=away)
    yield from world("absurd", KINDS[:3], NODES[:1], more=_absurd())
    yield from world("dead", KINDS[:5], NODES[:1], until=ORIGIN + 3 * SLOT + 600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "kube.prom"
    with RealPrometheus.loaded(write(file, _all_series())) as running:
        yield running.url


@pytest.fixture(scope="module")
def sources(server: str) -> Iterator[dict[str, PrometheusSource]]:
    found = {
        name: PrometheusSource(
            PrometheusApi(
                PrometheusConfig.from_catalog({"url": server, "matchers": {"cluster": name}})
            )
        )
        for name in (
            *("kinds", "churn", "replicas", "outage", "renamed", "poor", "dead", "absurd"),
            *HOLES,
        )
    }
    yield found
    for source in found.values():
        source.close()


@pytest.fixture(scope="module")
def kinds(sources: dict[str, PrometheusSource]) -> LedgerAnswer:
    return sources["kinds"].ledger(ALL, gpu_resources=["example.com/npu"])


def pods_of(answer: LedgerAnswer) -> dict[str, PodRecord]:
    found = {pod.name: pod for pod in answer.pods}
    assert len(found) == len(answer.pods)
    return found


def held(pod: PodRecord, start: float, end: float) -> float:
    span = pod.held(end)
    return 0.0 if span is None else max(0.0, span[1] - max(span[0], start))


def ran(pod: PodRecord, start: float, end: float) -> float:
    return sum(max(0.0, b - max(a, start)) for a, b in pod.ran(end))


# ---------------------------------------------------------------- pods of every kind


def test_only_gpu_pods_that_lived_in_the_window_are_there(kinds: LedgerAnswer) -> None:
    assert set(pods_of(kinds)) == {
        pod.name for pod in KINDS if pod.name not in {"after", "not-a-gpu-pod"}
    }
    over = pods_of(kinds)["long-over"]
    assert over.ended is not None
    assert over.ended < ORIGIN, "still listed, it tells when it completed"
    assert (over.namespace, over.name) in kinds.shown.past_pods, "an exporter may still name it"


@pytest.mark.parametrize("name", ["runs", "waits", "done", "failed", "sliced", "named"])
def test_times_that_have_series_are_exact(kinds: LedgerAnswer, name: str) -> None:
    true = next(pod for pod in KINDS if pod.name == name)
    found = pods_of(kinds)[name]
    assert (found.uid, found.created, found.bound) == (true.uid, true.created, true.bound)
    assert (found.started, found.finished) == (true.started, true.finished)
    assert found.ran(END) == tuple((a, min(b, END)) for a, b in true.spans)


def test_a_pod_deleted_while_it_ran_ends_within_an_interval(kinds: LedgerAnswer) -> None:
    found = pods_of(kinds)["deleted"]
    assert found.finished is None
    assert found.deleted == pytest.approx(AT, abs=15.0)


def test_a_pod_that_the_kubelet_refused_never_ran(kinds: LedgerAnswer) -> None:
    found = pods_of(kinds)["refused"]
    assert (found.bound, found.runs, found.end_reason) == (AT - 60, (), "Failed")
    assert found.finished == pytest.approx(AT - 58, abs=15.0)


def test_what_happened_after_the_last_scrape_of_the_window_is_known(kinds: LedgerAnswer) -> None:
    found = pods_of(kinds)["in-the-last-interval"]
    assert (found.created, found.bound, found.started) == (END - 20, END - 15, END - 5)
    assert found.ended is None


def test_a_crash_loop_does_not_run(kinds: LedgerAnswer) -> None:
    found = pods_of(kinds)["crashing"]
    true = next(pod for pod in KINDS if pod.name == "crashing")
    assert ran(found, ORIGIN, END) == pytest.approx(true.ran(ORIGIN, END), abs=31.0)
    assert held(found, ORIGIN, END) == true.held(ORIGIN, END)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("runs", Owner("Deployment", "web")),
        ("waits", Owner("CronJob", "nightly")),
        ("done", Owner("Job", "alone")),
        ("deleted", Owner("Pod", "deleted")),
    ],
)
def test_owners_are_followed_to_the_top(kinds: LedgerAnswer, name: str, owner: Owner) -> None:
    assert pods_of(kinds)[name].owner == owner


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("runs", {"nvidia.com/gpu": 1.0}),
        ("sidecar", {"nvidia.com/gpu": 2.0}),
        ("sliced", {"nvidia.com/mig-1g.10gb": 3.0}),
        ("named", {"example.com/npu": 1.0}),
    ],
)
def test_requests_are_effective(kinds: LedgerAnswer, name: str, requests: dict[str, float]) -> None:
    assert pods_of(kinds)[name].requests == requests


def test_a_pending_pod_has_its_priority_once_it_is_shown(kinds: LedgerAnswer) -> None:
    # kube_pod_info of a pod without a node is not written here, as of one refused by quota.
    assert pods_of(kinds)["waits"].node == ""
    assert pods_of(kinds)["runs"].node == "n1"


# ---------------------------------------------------------------- nodes


def intervals_of(answer: LedgerAnswer, node: str) -> list[NodeInterval]:
    return [interval for interval in answer.nodes if interval.node == node]


def test_a_steady_node_is_one_interval_with_its_labels(kinds: LedgerAnswer) -> None:
    (interval,) = intervals_of(kinds, "n1")
    assert (interval.start, interval.end, interval.ready, interval.schedulable) == (
        ORIGIN,
        END,
        True,
        True,
    )
    assert interval.capacity == interval.allocatable == {"nvidia.com/gpu": 8.0}
    assert interval.labels == {
        "nvidia.com/gpu.product": PRODUCT,
        "karpenter.sh/capacity-type": "on-demand",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
    }


def test_labels_that_tiers_select_on_are_read(sources: dict[str, PrometheusSource]) -> None:
    answer = sources["kinds"].ledger(HOURLY[0], label_keys=["example.com/rack"])
    assert answer.nodes
    assert not answer.warnings


def test_nodes_without_gpus_are_left_out(kinds: LedgerAnswer) -> None:
    assert intervals_of(kinds, "cpu") == []


def test_nodes_come_and_go(kinds: LedgerAnswer) -> None:
    assert intervals_of(kinds, "late")[0].start == pytest.approx(ORIGIN + 900, abs=30)
    assert intervals_of(kinds, "leaves")[-1].end == pytest.approx(ORIGIN + 4000, abs=15)


def test_unready_and_cordoned_time_adds_up(kinds: LedgerAnswer) -> None:
    intervals = intervals_of(kinds, "sick")
    unready = sum(s.end - s.start for s in intervals if not s.ready)
    cordoned = sum(s.end - s.start for s in intervals if not s.schedulable)
    assert unready == pytest.approx(2700, abs=30)
    assert cordoned == END - ORIGIN - 7200
    assert sum(s.end - s.start for s in intervals) == END - ORIGIN


def test_a_broken_gpu_is_missing_from_allocatable_for_its_time(kinds: LedgerAnswer) -> None:
    missing = sum(
        (s.capacity["nvidia.com/gpu"] - s.allocatable["nvidia.com/gpu"]) * (s.end - s.start)
        for s in intervals_of(kinds, "worn")
    )
    assert missing == pytest.approx(900.0)


def test_a_scrape_without_honor_labels_gives_the_same_ledger(
    sources: dict[str, PrometheusSource], kinds: LedgerAnswer
) -> None:
    answer = sources["renamed"].ledger(ALL, gpu_resources=["example.com/npu"])
    assert pods_of(answer) == pods_of(kinds)
    assert answer.nodes == kinds.nodes
    assert sources["renamed"].quotas(ALL).rows == sources["kinds"].quotas(ALL).rows


def test_what_kube_state_metrics_does_not_show_is_said_and_replaced(
    sources: dict[str, PrometheusSource],
) -> None:
    answer = sources["poor"].ledger(ALL)
    found = pods_of(answer)
    # The pod's own start stands in for its scheduling and for its containers' start.
    assert (found["runs"].bound, found["runs"].runs) == (ORIGIN - 3499, ((ORIGIN - 3499, None),))
    assert found["done"].finished == AT
    assert intervals_of(answer, "n1")[0].labels == {}
    assert any("--metric-labels-allowlist" in warning for warning in answer.warnings)
    assert any("kube_pod_status_scheduled_time" in warning for warning in answer.warnings)


def test_where_raw_samples_are_refused_ends_are_still_estimated(server: str) -> None:
    def refuse(asked: Asked) -> Answer:
        raw = asked.form["query"].endswith("]")
        return Answer(b"{}", 422) if raw else Answer(forwarded(server, asked))

    with scripted(refuse) as front:
        entry = {"url": front.url, "matchers": {"cluster": "kinds"}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        answer = source.ledger(ALL)
        source.close()
    assert pods_of(answer)["deleted"].deleted == pytest.approx(AT, abs=30.0)
    assert any("refused" in warning for warning in answer.warnings)


def _requests(*rows: tuple[str, str, str]) -> bytes:
    """Return the answer to the query of requests: (uid, namespace, resource)."""
    series = ",".join(
        f'{{"metric":{{"uid":"{uid}","namespace":"{namespace}","pod":"p","container":"c",'
        f'"resource":"{resource}"}},"value":[0,"1"]}}'
        for uid, namespace, resource in rows
    )
    return EMPTY.replace(b"[]", f"[{series}]".encode())


def _ledger_of(requests: bytes) -> tuple[LedgerAnswer, list[str]]:
    """Return the ledger of a cluster that shows nothing but requests, and the queries sent."""

    def script(asked: Asked) -> Answer:
        query = asked.form["query"]
        if "max_over_time(kube_pod_container_resource_requests" in query:
            return Answer(requests.replace(b"[0,", f"[{asked.form['time']},".encode()))
        ranged = asked.path.endswith("query_range") or query.endswith("]")
        return Answer(EMPTY.replace(b"vector", b"matrix") if ranged else EMPTY)

    with scripted(script) as front:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": front.url})))
        answer = source.ledger(HOURLY[0])
        source.close()
    return answer, [asked.form["query"] for asked in front.asked]


def test_namespaces_are_named_in_queries_while_they_are_few() -> None:
    few = _requests(*((f"u{n}", f"team-{n}", "nvidia_com_gpu") for n in range(3)))
    many = _requests(*((f"u{n}", f"team-{n}", "nvidia_com_gpu") for n in range(300)))
    assert any('namespace=~"team-0|team-1|team-2"' in query for query in _ledger_of(few)[1])
    assert not any("namespace=~" in query for query in _ledger_of(many)[1])


def test_pods_without_uid_and_monitoring_resources_are_left_out() -> None:
    answer, _ = _ledger_of(
        _requests(("", "a", "nvidia_com_gpu"), ("u1", "a", "gpu_intel_com_i915_monitoring"))
    )
    assert answer.pods == []
    assert any("version 2.0 or newer" in warning for warning in answer.warnings)


# ---------------------------------------------------------------- amounts under churn


def test_hours_read_alone_give_what_the_day_gives(sources: dict[str, PrometheusSource]) -> None:
    together = pods_of(sources["churn"].ledger(ALL))
    for hour in HOURLY:
        start, end = hour.start_seconds, hour.end_seconds
        alone = pods_of(sources["churn"].ledger(hour))
        for name in together.keys() | alone.keys():
            one, other = (
                (held(pod, start, end), ran(pod, start, end)) if pod else (0.0, 0.0)
                for pod in (together.get(name), alone.get(name))
            )
            assert one == pytest.approx(other, abs=1e-6), (name, hour)


def test_allocated_time_equals_the_truth(sources: dict[str, PrometheusSource]) -> None:
    """In total within 0.05 %, and within 0.5 % for every namespace."""
    found = pods_of(sources["churn"].ledger(ALL))
    true: dict[str, float] = defaultdict(float)
    seen: dict[str, float] = defaultdict(float)
    running = [0.0, 0.0]
    for pod in CHURN:
        true[pod.namespace] += pod.held(ORIGIN, END) * pod.units
        running[0] += pod.ran(ORIGIN, END) * pod.units
        if pod.name in found:
            units = sum(found[pod.name].requests.values())
            seen[pod.namespace] += held(found[pod.name], ORIGIN, END) * units
            running[1] += ran(found[pod.name], ORIGIN, END) * units
    assert sum(seen.values()) == pytest.approx(sum(true.values()), rel=5e-4)
    assert running[1] == pytest.approx(running[0], rel=5e-4)
    for namespace, amount in true.items():
        assert amount > HOUR
        assert seen[namespace] == pytest.approx(amount, rel=5e-3), namespace


def test_two_replicas_of_kube_state_metrics_double_nothing(
    sources: dict[str, PrometheusSource],
) -> None:
    answer = sources["replicas"].ledger(ALL)
    found = pods_of(answer)
    for pod in CHURN[:60]:
        if pod.held(ORIGIN, END) > 60:
            assert held(found[pod.name], ORIGIN, END) == pytest.approx(
                pod.held(ORIGIN, END), abs=31.0
            ), pod
            assert sum(found[pod.name].requests.values()) == pod.units
    assert [(s.start, s.end, s.capacity) for s in answer.nodes] == [
        (ORIGIN, END, {"nvidia.com/gpu": 8.0})
    ]


# ---------------------------------------------------------------- outages


def test_slots_without_kube_state_metrics_are_not_covered(
    sources: dict[str, PrometheusSource],
) -> None:
    answer = sources["outage"].ledger(ALL)
    assert [slot for slot, covered in answer.covered.items() if not covered] == [
        ORIGIN + SLOT,
        ORIGIN + 2 * SLOT,
    ]
    found = pods_of(answer)
    assert found["runs"].ended is None
    assert found["runs"].ran(END) == ((ORIGIN - 3490, END),)
    assert found["done"].finished == AT


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("one-scrape-failed", True),
        ("ten-minutes", False),
        ("first-minutes", False),
        ("last-minutes", False),
    ],
)
@pytest.mark.parametrize("window", [HOURLY[0], ALL], ids=["alone", "together"])
def test_a_slot_with_a_hole_is_not_covered(
    sources: dict[str, PrometheusSource], name: str, covered: bool, window: Window
) -> None:
    answer = sources[name].ledger(window)
    assert answer.covered == {slot: covered or slot != ORIGIN for slot in window.slots()}
    assert pods_of(answer)["runs"].ended is None


def test_pods_do_not_end_because_kube_state_metrics_died(
    sources: dict[str, PrometheusSource],
) -> None:
    answer = sources["dead"].ledger(ALL)
    assert [covered for _, covered in sorted(answer.covered.items())] == [True] * 3 + [False] * 3
    assert pods_of(answer)["runs"].ended is None
    assert pods_of(answer)["done"].finished == AT


# ---------------------------------------------------------------- absurd values


def test_amounts_that_cannot_be_are_left_out_and_said(
    sources: dict[str, PrometheusSource],
) -> None:
    answer = sources["absurd"].ledger(ALL)
    found = pods_of(answer)
    assert not {"all", "inf", "nan", "less", "most"} & set(found)
    assert {interval.node for interval in answer.nodes} == {"n1", "unsaid"}
    assert all(interval.capacity["nvidia.com/gpu"] in {4.0, 8.0} for interval in answer.nodes)
    for metric in ("kube_pod_container_resource_requests", "kube_node_status_capacity"):
        assert any(metric in warning and "left out" in warning for warning in answer.warnings)


def test_times_that_cannot_be_are_left_out_and_said(
    sources: dict[str, PrometheusSource],
) -> None:
    answer = sources["absurd"].ledger(ALL)
    found = pods_of(answer)
    for name in ("never", "late", "early", "nan-at"):
        assert (found[name].created, found[name].bound, found[name].runs) == (ORIGIN, ORIGIN, ())
    assert (found["runs"].bound, found["runs"].started) == (ORIGIN - 3500, ORIGIN - 3490)
    for metric in NO_TIMES:
        assert any(f"kube_pod_{metric}" in warning for warning in answer.warnings), metric


def test_a_node_whose_health_cannot_be_is_healthy(sources: dict[str, PrometheusSource]) -> None:
    (interval,) = intervals_of(sources["absurd"].ledger(ALL), "unsaid")
    assert (interval.start, interval.end, interval.ready, interval.schedulable) == (
        ORIGIN,
        END,
        True,
        True,
    )


def test_quotas_that_cannot_be_are_left_out(sources: dict[str, PrometheusSource]) -> None:
    rows = sources["absurd"].quotas(HOURLY[0]).rows
    assert [(row.hard, row.used) for row in rows] == [(None, 3.0)] * 2


# ---------------------------------------------------------------- quotas


def test_quota_keys_of_gpus_are_means_over_slots(sources: dict[str, PrometheusSource]) -> None:
    rows = sources["kinds"].quotas(HOURLY[0]).rows
    assert rows == [
        QuotaSlot(ORIGIN, "vision", "gpus", "nvidia.com/gpu", 2.0, None),
        QuotaSlot(ORIGIN, "vision", "gpus", "requests.nvidia.com/gpu", 8.0, 3.5),
        QuotaSlot(ORIGIN + SLOT, "vision", "gpus", "nvidia.com/gpu", 2.0, None),
        QuotaSlot(ORIGIN + SLOT, "vision", "gpus", "requests.nvidia.com/gpu", 8.0, 4.0),
    ]
