"""Which counts contradict each other, and which only look as if they did."""

import pytest

from apps.accounts.domain.structs import replace
from apps.usage.domain.collection import (
    HourEvidence,
    ReferenceHour,
    Thresholds,
    contradictions,
    has_fallen,
)

USUAL = HourEvidence(
    from_series=True,
    nodes=10,
    pods=40,
    held_seconds=40 * 3600.0,
    named_samples=8_000,
    devices=80,
    active_devices=60,
    shares={"kube_node_labels": 1.0},
)
BEFORE = ReferenceHour(10, 40, {"kube_node_labels": 1.0})
EMPTY = replace(USUAL, pods=0, held_seconds=0.0, named_samples=0, active_devices=0)


def series(evidence: HourEvidence, reference: ReferenceHour | None = None) -> list[str]:
    return [one.series for one in contradictions(evidence, reference, Thresholds())]


@pytest.mark.parametrize(
    ("evidence", "reference", "found"),
    [
        pytest.param(USUAL, BEFORE, [], id="all agree"),
        pytest.param(EMPTY, BEFORE, [], id="nothing runs"),
        pytest.param(
            replace(EMPTY, nodes=0, devices=0, shares={}), BEFORE, [], id="scaled to zero"
        ),
        pytest.param(
            replace(USUAL, unknown_samples=800), BEFORE, [], id="labels that outlive their pods"
        ),
        pytest.param(
            replace(USUAL, unknown_samples=801),
            None,
            ["kube_pod_container_resource_requests"],
            id="labels without pods",
        ),
        pytest.param(
            replace(EMPTY, active_devices=20),
            None,
            ["kube_pod_container_resource_requests"],
            id="activity without holders",
        ),
        pytest.param(
            replace(USUAL, pods=20, unheld_devices=9),
            BEFORE,
            ["kube_pod_container_resource_requests"],
            id="fewer pods than before, and active devices without them",
        ),
        pytest.param(replace(USUAL, pods=20, unheld_devices=8), BEFORE, [], id="fewer pods"),
        pytest.param(replace(USUAL, unheld_devices=9), BEFORE, [], id="as many pods as before"),
        pytest.param(replace(EMPTY, active_devices=5), None, [], id="a test beside Kubernetes"),
        pytest.param(
            replace(USUAL, nowhere_seconds=20_000.0),
            None,
            ["kube_node_status_capacity"],
            id="pods without nodes",
        ),
        pytest.param(
            replace(EMPTY, nodes=0), None, ["kube_node_status_capacity"], id="no capacity"
        ),
        pytest.param(replace(EMPTY, nodes=0, claims=True), None, [], id="devices of claims"),
        pytest.param(
            replace(USUAL, busy_samples=900, stopped_samples=100),
            None,
            ["kube_pod_container_state_started and kube_pod_container_status_running"],
            id="active devices of pods that do not run",
        ),
        pytest.param(
            replace(USUAL, shares={"kube_node_labels": 0.6}),
            BEFORE,
            ["kube_node_labels"],
            id="a metric that was there",
        ),
        pytest.param(replace(USUAL, shares={}), BEFORE, [], id="nothing to have the metric"),
        pytest.param(
            replace(USUAL, unlabelled_gpus=80.0, unlabelled_devices=8),
            None,
            ["kube_node_labels"],
            id="replicas taken for cards",
        ),
        pytest.param(
            replace(EMPTY, quota_used=40.0, quota_unexplained=40.0),
            BEFORE,
            ["kube_pod_container_resource_requests"],
            id="quota use without pods",
        ),
        pytest.param(
            replace(EMPTY, quota_used=0.0, quota_unexplained=0.0), BEFORE, [], id="quotas agree"
        ),
        pytest.param(
            replace(USUAL, nameless=("kube_node_created",)), None, ["kube_node_created"], id="bare"
        ),
        pytest.param(replace(USUAL, incomplete=("cut",)), BEFORE, [], id="warned, nothing lacks"),
        pytest.param(
            replace(USUAL, incomplete=("cut",), nodes=5),
            BEFORE,
            ["answers of the metrics server"],
            id="warned, and less than before",
        ),
        pytest.param(
            replace(USUAL, from_series=False, unknown_samples=8_000), BEFORE, [], id="watched"
        ),
    ],
)
def test_sources_are_held_against_each_other(
    evidence: HourEvidence, reference: ReferenceHour | None, found: list[str]
) -> None:
    assert series(evidence, reference) == found


def test_each_series_is_named_once() -> None:
    both = replace(USUAL, unknown_samples=8_000, quota_used=40.0, quota_unexplained=40.0)
    assert series(both) == ["kube_pod_container_resource_requests"]


@pytest.mark.parametrize(
    ("evidence", "reference", "fallen"),
    [
        (USUAL, None, False),
        (EMPTY, None, True),
        (USUAL, BEFORE, False),
        (replace(USUAL, pods=27), BEFORE, True),
        (replace(USUAL, nodes=6), BEFORE, True),
    ],
)
def test_a_drop_requests_a_second_witness(
    evidence: HourEvidence, reference: ReferenceHour | None, *, fallen: bool
) -> None:
    assert has_fallen(evidence, reference, Thresholds()) is fallen
