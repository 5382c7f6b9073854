"""What may be out of order in a healthy cluster, each with the code of its only finding."""

from datetime import timedelta

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.credentials import Credential
from apps.clusters.domain.devices.exporter_profile import (
    ExporterProfile,
    Family,
    Generation,
    WorkloadLabels,
)
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.goodput.domain.advice import GpuAction, GpuAdvice
from apps.operations.domain.observations import (
    ClusterObservations,
    GangGroup,
    MetricsObservations,
    NodeDay,
    NodeHeadroom,
    PodGroup,
    QuotaRow,
    Right,
    SourceTrouble,
    TeamTier,
    TierMonth,
    UnassignedNamespace,
    WriterRights,
)
from tests.operations.doctor_sources import (
    GPU,
    METRICS,
    MIG,
    NODES,
    NOW,
    PAST,
    PRODUCT,
    PROFILE,
    RULES,
    SHARED,
    T4,
    TENANTS,
    healthy,
    node,
    prometheus_down,
    with_answers,
    with_api,
    with_devices,
    with_hours,
    with_job,
    with_metrics,
    with_nodes,
    with_past,
)

ROOM = dict(METRICS.answers.room) if METRICS.answers and METRICS.answers.room else {}
T4_RULE = TierRule(
    "shared-t4", GpuSharing.TIME_SLICED, (GPU,), node_selector={PRODUCT: f"{T4}-SHARED"}
)
T4_NODE = node(
    "sliced-2", {GPU: 4.0}, product=f"{T4}-SHARED", strategy="time-slicing", replicas="4"
)


def prometheus_refuses() -> ClusterObservations:
    said = "Prometheus at http://p:9090 answers with HTTP 401; check the token in TOKEN"
    return replace(healthy(), metrics=MetricsObservations(trouble=SourceTrouble(said, False)))


ENDING = Credential("the token of west", NOW - timedelta(days=30), NOW + timedelta(days=1))


def api_down() -> ClusterObservations:
    return with_api(trouble=SourceTrouble("the Kubernetes API did not answer GET /version", True))


def api_refuses() -> ClusterObservations:
    return with_api(trouble=SourceTrouble("get /version: HTTP 401: Unauthorized", False))


def sharing_of_a_whole_tier() -> ClusterObservations:
    """A node of the exclusive tier that is time-sliced under another name of its resource."""
    rules = (replace(RULES[0], resources=(GPU, SHARED)), *RULES[1:])
    sliced = node(
        "whole-2", {SHARED: 32.0}, product="NVIDIA-A100-SXM4-80GB", strategy="time-slicing",
        replicas="4",
    )  # fmt: skip
    return replace(with_nodes(sliced), rules=rules)


def mixed_links() -> ClusterObservations:
    both = TierRule("any-a100", GpuSharing.EXCLUSIVE, (GPU,))
    pcie = node("whole-2", {GPU: 4.0}, product="NVIDIA-A100-PCIE-40GB", strategy="none")
    return replace(with_nodes(pcie), rules=(both, *RULES[1:]), allowed={})


def not_renamed() -> ClusterObservations:
    look = with_nodes(T4_NODE)
    groups = (*PAST.groups, PodGroup("vision", "Deployment", GPU, 1.0, "shared-t4", 9))
    past = replace(look.past, groups=groups, tiers=(*PAST.tiers, TierMonth("shared-t4", 50, 0, 0)))
    return replace(look, past=past, rules=(T4_RULE, *RULES))


FAULTS = [
    pytest.param(prometheus_down, "prometheus-unavailable", id="prometheus-down"),
    pytest.param(prometheus_refuses, "prometheus-rejected", id="prometheus-401"),
    pytest.param(api_down, "api-unavailable", id="api-down"),
    pytest.param(api_refuses, "api-rejected", id="api-401"),
    pytest.param(lambda: with_answers(skew_seconds=-95.0), "clock-skew", id="clock-behind"),
    pytest.param(
        lambda: with_api(denied=(Right("list", "", "pods"),)), "rbac-missing", id="no-list-pods"
    ),
    pytest.param(
        lambda: with_api(denied=(Right("get", "batch", "jobs"),)),
        "owners-unreadable",
        id="no-get-jobs",
    ),
    pytest.param(
        lambda: with_api(denied=(Right("watch", "resource.k8s.io", "resourceslices"),)),
        "slices-unreadable",
        id="no-watch-slices",
    ),
    pytest.param(
        lambda: with_api(unexplained=(Right("watch", "", "events"),)),
        "waiting-unreadable",
        id="no-watch-events",
    ),
    pytest.param(
        lambda: with_api(
            writer=WriterRights(trouble=SourceTrouble("HTTP 401: Unauthorized", False))
        ),
        "writer-rejected",
        id="writer-401",
    ),
    pytest.param(
        lambda: with_api(writer=WriterRights(denied=(Right("patch", "", "resourcequotas"),))),
        "writer-rights-missing",
        id="writer-no-patch",
    ),
    pytest.param(
        lambda: with_api(writer=WriterRights(limited=False)),
        "writer-unlimited",
        id="writer-without-policy",
    ),
    pytest.param(
        lambda: with_api(writer=WriterRights(excess=(Right("delete", "", "resourcequotas"),))),
        "rights-too-many",
        id="writer-deletes",
    ),
    pytest.param(
        lambda: with_api(excess=(Right("*", "*", "*"),)), "rights-too-many", id="reader-is-root"
    ),
    pytest.param(
        lambda: with_api(credentials=(ENDING,)), "credentials-ending", id="reader-token-ends"
    ),
    pytest.param(
        lambda: with_api(writer=WriterRights(credentials=(ENDING,))),
        "credentials-ending",
        id="writer-token-ends",
    ),
    pytest.param(
        lambda: with_metrics(credentials=(ENDING,)),
        "credentials-ending",
        id="prometheus-token-ends",
    ),
    pytest.param(lambda: with_api(watched_until=None), "watch-not-running", id="no-watch"),
    pytest.param(
        lambda: with_api(watched_until=NOW - timedelta(hours=2)), "watch-behind", id="watch-stopped"
    ),
    pytest.param(
        lambda: with_hours(newest=NOW - timedelta(hours=9)), "collection-behind", id="no-worker"
    ),
    pytest.param(
        lambda: with_hours(failed=3, complete=21, error="HTTP 500"), "hours-failed", id="failed"
    ),
    pytest.param(
        lambda: with_hours(partial=2, complete=22, remarks={"pods_without_node": 4}),
        "hours-partial",
        id="partial",
    ),
    pytest.param(
        lambda: with_past(
            node_days=(NodeDay("whole-1", "exclusive-a100", 190.0, 0.0, 40.0, 2.0, 1.0),)
        ),
        "coverage-low",
        id="exporter-of-a-node-away",
    ),
    pytest.param(
        lambda: replace(healthy(), catalog_interval_seconds=15.0),
        "interval-differs",
        id="15-seconds",
    ),
    pytest.param(
        lambda: with_past(tiers=(TierMonth("exclusive-a100", 5000.0, 0.0, 120.0),)),
        "activity-unattributed",
        id="busy-without-a-pod",
    ),
    pytest.param(lambda: with_metrics(devices=()), "no-device-metrics", id="no-exporter"),
    pytest.param(
        lambda: with_devices("sliced-1", activity=False), "no-activity-metric", id="l4-unmeasured"
    ),
    pytest.param(
        lambda: with_metrics(
            profile=with_job(
                activity_metrics=(("NVIDIA A100-SXM4-80GB", ("DCGM_FI_DEV_GPU_UTIL",)),)
            )
        ),
        "no-profiling-metric",
        id="a100-without-profiling",
    ),
    pytest.param(
        lambda: with_devices("sliced-1", memory=False), "no-memory-metric", id="l4-without-memory"
    ),
    pytest.param(
        lambda: with_devices("whole-1", energy=False), "no-energy-metric", id="a100-without-energy"
    ),
    pytest.param(lambda: with_devices("", named=0, pods=0), "no-pod-labels", id="no-pod-mapping"),
    pytest.param(
        lambda: with_metrics(
            profile=ExporterProfile(
                (
                    *PROFILE.jobs,
                    replace(PROFILE.jobs[0], job="gpus", workload_labels=WorkloadLabels.PLAIN),
                )
            )
        ),
        "label-forms-mixed",
        id="honor-labels-of-one-job",
    ),
    pytest.param(
        lambda: with_metrics(profile=with_job(generation=Generation.BOTH)),
        "host-labels-mixed",
        id="rolling-upgrade",
    ),
    pytest.param(lambda: with_answers(scraped_twice=8), "scraped-twice", id="two-exporters"),
    pytest.param(
        lambda: with_metrics(profile=with_job(rescaled=("DCGM_FI_DEV_GPU_UTIL",))),
        "units-rescaled",
        id="fractions-for-per-cent",
    ),
    pytest.param(
        lambda: with_metrics(remarks={"stuck_counter": 1}), "stuck-counter", id="counter-at-zero"
    ),
    pytest.param(
        lambda: with_devices("sliced-1", named=0, pods=0), "shared-unmapped", id="renamed-unmapped"
    ),
    pytest.param(
        lambda: with_devices("sliced-1", named=60, pods=1), "virtual-gpus-off", id="one-pod-named"
    ),
    pytest.param(
        lambda: with_metrics(remarks={"no_process_values": 2}),
        "process-values-zero",
        id="no-host-pid",
    ),
    pytest.param(
        lambda: replace(
            with_devices("claimed-1", named=0, pods=0),
            metrics=replace(
                with_devices("claimed-1", named=0, pods=0).metrics,
                profile=with_job(dra_labels=False),
            ),
        ),
        "dra-labels-missing",
        id="claims-unmapped",
    ),
    pytest.param(
        lambda: with_metrics(changes=("Job gpus: MIG instances appeared.",), changed_at=NOW),
        "exporter-changed",
        id="exporter-upgraded",
    ),
    pytest.param(
        lambda: with_metrics(profile=with_job(family=Family.AMD)), "vendor-limits", id="amd"
    ),
    pytest.param(
        lambda: with_metrics(kube_state=False, nodes=()), "kube-state-missing", id="no-kube-state"
    ),
    pytest.param(
        lambda: with_metrics(nodes=[replace(one, labels={}) for one in NODES]),
        "node-labels-missing",
        id="no-label-allow-list",
    ),
    pytest.param(
        lambda: with_answers(kube_state_copies=2), "kube-state-duplicated", id="two-kube-states"
    ),
    pytest.param(lambda: with_answers(clusters=2), "series-of-several-clusters", id="two-clusters"),
    pytest.param(
        lambda: replace(
            healthy(), rules=(*RULES, TierRule("b200", GpuSharing.EXCLUSIVE, ("x/gpu",)))
        ),
        "tier-matches-nothing",
        id="tier-of-nothing",
    ),
    pytest.param(
        lambda: with_nodes(node("new-1", {GPU: 8.0}, product="NVIDIA-B200", strategy="none")),
        "gpus-unmatched",
        id="gpus-of-no-tier",
    ),
    pytest.param(sharing_of_a_whole_tier, "sharing-differs", id="time-sliced-behind-exclusive"),
    pytest.param(
        lambda: with_past(unassigned=(UnassignedNamespace("stray", 12.5),)),
        "namespaces-unassigned",
        id="namespace-of-nobody",
    ),
    pytest.param(
        lambda: with_metrics(
            quotas=(*(METRICS.quotas or ()), QuotaRow("vision", "old", "nvidia.com/gpu", 10.0))
        ),
        "quota-counts-nothing",
        id="quota-without-prefix",
    ),
    pytest.param(
        lambda: with_past(groups=(*PAST.groups, PodGroup("wild", "Job", GPU, 1.0, "x", 7))),
        "namespaces-without-quota",
        id="no-quota",
    ),
    pytest.param(not_renamed, "shared-not-renamed", id="time-sliced-not-renamed"),
    pytest.param(
        lambda: with_past(
            groups=(*PAST.groups, PodGroup("vision", "Job", SHARED, 2.0, "shared-l4", 3))
        ),
        "shared-units-above-one",
        id="two-shares-asked-for",
    ),
    pytest.param(
        lambda: with_answers(tainted=frozenset({"split-1", "sliced-1", "claimed-1"})),
        "nodes-without-taint",
        id="no-taint",
    ),
    pytest.param(
        lambda: with_past(
            groups=(*PAST.groups, PodGroup("vision", "PyTorchJob", SHARED, 1.0, "shared-l4", 4))
        ),
        "gangs-on-shared",
        id="gang-on-shared-cards",
    ),
    pytest.param(
        lambda: with_past(topology_policies={"whole-1": "none"}),
        "topology-manager-off",
        id="topology-manager-none",
    ),
    pytest.param(
        lambda: with_past(unreliable_nodes={"whole-1": "3.1× the expected failures."}),
        "node-unreliable",
        id="node-that-fails",
    ),
    pytest.param(
        lambda: with_past(gpu_advice=(GpuAdvice("3", "whole-1", GpuAction.RESET, "9×.", True),)),
        "gpu-unreliable",
        id="gpu-that-fails",
    ),
    pytest.param(
        lambda: with_past(
            gpu_advice=(GpuAdvice("3", "whole-1", GpuAction.REPLACE, "XID 79.", False),)
        ),
        "gpu-broken",
        id="gpu-that-is-broken",
    ),
    pytest.param(
        lambda: with_past(gangs=(GangGroup("vision", "PyTorchJob", 2, 8),)),
        "gangs-without-scheduler",
        id="gang-of-the-default-scheduler",
    ),
    pytest.param(
        lambda: with_past(
            node_days=(NodeDay("sliced-1", "shared-l4", 40.0, 0.0, 0.0, 8.0, 22_500.0),)
        ),
        "replicas-under-pressure",
        id="memory-full",
    ),
    pytest.param(
        lambda: replace(
            with_nodes(node("split-2", {"nvidia.com/mig-1g.10gb": 7.0}, product="NVIDIA-H100")),
        ),
        "mig-outside-catalog",
        id="mig-size-of-no-tier",
    ),
    pytest.param(
        lambda: with_past(tiers=(TierMonth("mig-3g", 400.0, 102.0, 0.0),)),
        "slices-stranded",
        id="stranded-slices",
    ),
    pytest.param(
        lambda: with_nodes(node("split-2", {MIG: 2.0}, product="NVIDIA-H100", state="pending")),
        "mig-reconfiguring",
        id="mig-pending",
    ),
    pytest.param(
        lambda: with_nodes(node("split-2", {MIG: 2.0}, product="NVIDIA-H100", state="failed")),
        "mig-failed",
        id="mig-failed",
    ),
    pytest.param(mixed_links, "interconnect-mixed", id="sxm-and-pcie"),
    pytest.param(
        lambda: with_past(teams=(*PAST.teams, TeamTier("speech", "exclusive-a100", 40.0))),
        "team-not-allowed",
        id="team-that-may-not",
    ),
    pytest.param(
        lambda: replace(
            with_answers(room={**ROOM, "whole-1": NodeHeadroom(0.2, 2.0**36)}),
            past=replace(PAST, tenants=[t for t in TENANTS if t.pod != "train-0"]),
        ),
        "free-unreachable",
        id="no-cpu-left",
    ),
]
