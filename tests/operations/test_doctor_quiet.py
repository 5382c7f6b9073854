"""What the doctor tells once, or not at all, and the pitfalls it knows."""

from datetime import timedelta

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.operations.domain.examine import examine
from apps.operations.domain.observations import ClusterHistory, NodeDay, PodGroup, QuotaRow
from tests.operations.doctor_sources import (
    GPU,
    METRICS,
    NOW,
    PAST,
    PRODUCT,
    RULES,
    SHARED,
    SLICED,
    T4,
    TENANTS,
    node,
    prometheus_down,
    tenant,
    with_answers,
    with_metrics,
    with_nodes,
    with_past,
)

QUIET = [
    pytest.param(
        lambda: replace(
            with_metrics(devices=(), nodes=(), quotas=()), past=ClusterHistory(), rules=(), api=None
        ),
        [],
        id="a-cluster-without-gpus",
    ),
    pytest.param(
        lambda: replace(
            prometheus_down(),
            past=replace(PAST, hours=replace(PAST.hours, newest=NOW - timedelta(hours=9))),
        ),
        ["prometheus-unavailable"],
        id="hours-that-wait-for-a-source-have-that-cause",
    ),
    pytest.param(
        lambda: replace(
            with_answers(tainted=frozenset()),
            metrics=replace(with_answers(tainted=frozenset()).metrics, kube_state=False, nodes=()),
        ),
        ["kube-state-missing"],
        id="taints-that-nobody-shows-are-not-missed",
    ),
    pytest.param(
        lambda: with_nodes(node("split-2", {GPU: 0.0}, product=f"{T4}-MIG-INVALID")),
        ["mig-failed"],
        id="an-invalid-layout-is-a-failed-one",
    ),
    pytest.param(
        lambda: with_nodes(node("split-2", {GPU: 7.0}, product=f"{T4}-MIG-INVALID")),
        ["mig-failed"],
        id="an-invalid-layout-is-no-size",
    ),
    pytest.param(
        lambda: replace(
            with_nodes(
                replace(SLICED, labels={**SLICED.labels, "nvidia.com/gpu.memory": "much"}),
                without="sliced-1",
            )
        ),
        [],
        id="a-label-that-is-no-number",
    ),
    pytest.param(
        lambda: with_past(
            node_days=(NodeDay("sliced-1", "shared-l4", 40.0, 0.0, 0.0, 8.0, 22_500.0),),
            tenants=[t for t in TENANTS if t.pod not in {"notes-1", "notes-2", "notes-3"}],
        ),
        [],
        id="who-is-alone-fills-a-card-for-nobody-else",
    ),
    pytest.param(
        lambda: with_past(
            groups=(*PAST.groups, PodGroup("vision", "PyTorchJob", SHARED, 1.0, "shared-l4", 1))
        ),
        [],
        id="one-pod-is-no-gang",
    ),
]


@pytest.mark.parametrize(("state", "expected"), QUIET)
def test_what_is_told_once_or_not_at_all(state: object, expected: list[str]) -> None:
    assert callable(state)
    assert [finding.code for finding in examine([state()])] == expected


def test_mig_behind_an_exclusive_tier_is_told_with_the_product_that_tells_it() -> None:
    anything = TierRule("any", GpuSharing.EXCLUSIVE, (GPU,))
    single = node("single-1", {GPU: 7.0}, product="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
    found = examine([replace(with_nodes(single), rules=(*RULES, anything))])
    assert [one.code for one in found] == ["sharing-differs"]
    assert f"{PRODUCT}: NVIDIA-H100-80GB-HBM3-MIG-1g.10gb" in found[0].fix
    assert "sharing: mig" in found[0].fix


def test_pitfall_21_a_key_without_its_prefix_limits_nothing() -> None:
    """Hard 10, and the team runs 14: nothing stops it, and `used` is not 0 of 10 but nowhere."""
    running = tuple(tenant(f"run-{n}", "whole-1", GPU, "exclusive-a100") for n in range(14))
    quotas = (*(METRICS.quotas or ()), QuotaRow("vision", "old", "nvidia.com/gpu", 10.0))
    look = with_metrics(quotas=quotas)
    look = replace(look, past=replace(look.past, tenants=running))
    (found,) = (f for f in examine([look]) if f.code == "quota-counts-nothing")
    assert "sets nvidia.com/gpu to 10" in found.what
    assert "14 units are held there now" in found.what
    assert 'requests.nvidia.com/gpu: "10"' in found.fix
