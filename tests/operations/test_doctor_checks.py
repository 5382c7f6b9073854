"""The doctor's checks: a healthy cluster has no finding, and each planted fault is found alone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from apps.clusters.domain.credentials import Credential
from apps.clusters.domain.devices.exporter_profile import (
    ExporterProfile,
    Family,
    Generation,
    WorkloadLabels,
)
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.goodput.domain.advice import GpuAction, GpuAdvice, gpu_advice
from apps.operations.domain.examine import examine
from apps.operations.domain.examine.catalog import counts_nothing, limits_gpus
from apps.operations.domain.examine.topology import without_policy
from apps.operations.domain.examine.usage import interconnect
from apps.operations.domain.findings import KINDS, Finding, Severity, some, worst_first
from apps.operations.domain.observations import (
    ClusterHistory,
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
    tenant,
    with_answers,
    with_api,
    with_cards,
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
    pytest.param(lambda: with_metrics(cards=()), "no-device-metrics", id="no-exporter"),
    pytest.param(
        lambda: with_cards("sliced-1", activity=False), "no-activity-metric", id="l4-unmeasured"
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
        lambda: with_cards("sliced-1", memory=False), "no-memory-metric", id="l4-without-memory"
    ),
    pytest.param(
        lambda: with_cards("whole-1", energy=False), "no-energy-metric", id="a100-without-energy"
    ),
    pytest.param(lambda: with_cards("", named=0, pods=0), "no-pod-labels", id="no-pod-mapping"),
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
        lambda: with_cards("sliced-1", named=0, pods=0), "shared-unmapped", id="renamed-unmapped"
    ),
    pytest.param(
        lambda: with_cards("sliced-1", named=60, pods=1), "virtual-gpus-off", id="one-pod-named"
    ),
    pytest.param(
        lambda: with_metrics(remarks={"no_process_values": 2}),
        "process-values-zero",
        id="no-host-pid",
    ),
    pytest.param(
        lambda: replace(
            with_cards("claimed-1", named=0, pods=0),
            metrics=replace(
                with_cards("claimed-1", named=0, pods=0).metrics, profile=with_job(dra_labels=False)
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


def test_nothing_is_found_in_a_healthy_cluster() -> None:
    assert examine([healthy()]) == []


def test_nothing_is_found_in_a_healthy_cluster_without_api() -> None:
    look = replace(healthy(), api=None, past=replace(PAST, nodes=()))
    assert examine([look]) == []


def test_a_tier_that_another_cluster_has_is_no_finding() -> None:
    rules = (*RULES, TierRule("b200", GpuSharing.EXCLUSIVE, ("x/gpu",)))
    here, there = replace(healthy(), rules=rules), replace(healthy(), cluster="east", rules=rules)
    assert [f.code for f in examine([here, there])] == 2 * ["tier-matches-nothing"]
    b200 = replace(PAST, tenants=(*PAST.tenants, PAST.tenants[0]._replace(tier="b200")))
    assert examine([here, replace(there, past=b200)]) == []
    assert examine([replace(here, tiers_elsewhere=frozenset({"b200"}))]) == []


def test_nothing_is_found_where_nothing_was_collected_yet() -> None:
    """A new portal: sources answer, the database is empty, the watch has begun."""
    look = replace(healthy(), past=ClusterHistory())
    assert [finding.code for finding in examine([look])] == []


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_a_planted_fault_is_found_and_nothing_else(fault: object, code: str) -> None:
    assert callable(fault)
    found = examine([fault()])
    assert [finding.code for finding in found] == [code]
    assert found[0].cluster == "west"
    assert found[0].fix.strip()
    assert found[0].what.endswith((".", "%"))


def test_every_kind_of_finding_has_a_planted_fault() -> None:
    """What is of no cluster, or of a job log, is planted where the doctor runs as a whole."""
    planted = {param.values[1] for param in FAULTS}
    assert planted == KINDS.keys() - {
        "catalog-empty",
        "audit-broken",
        "beat-stopped",
        "tasks-overdue",
        "work-overdue",
        "worker-silent",
        "replica-unavailable",
        "replica-behind",
        "job-log-unavailable",
        "job-log-unreadable",
        "job-log-nodes",
    }


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_what_everybody_may_read_names_no_node_namespace_or_pod(fault: object, code: str) -> None:
    assert callable(fault)
    names = {one.node for one in NODES} | {t.pod for t in TENANTS} | {"new-1", "whole-2", "split-2"}
    for finding in examine([fault()]):
        if finding.kind.public:
            told = f"{finding.subject} {finding.what} {finding.fix}"
            assert not {name for name in names | {"sliced-2"} if name in told.split()}


def test_costs_are_those_of_the_cluster() -> None:
    (found,) = examine([not_renamed()])
    assert (found.pods, found.gpu_hours, found.places) == (9, 50.0, ("sliced-2",))
    assert "4 units for 1 physical GPUs" in found.what


def test_a_low_coverage_says_how_much_is_lost_and_where() -> None:
    days = (
        NodeDay("whole-1", "exclusive-a100", 100.0, 20.0, 8.0, 0.0, None),
        NodeDay("sliced-1", "shared-l4", 100.0, 20.0, 8.1, 0.0, None),
    )
    (found,) = examine([with_past(node_days=days)])
    assert (found.gpu_hours, found.pods, found.places) == (8.1, 4, ("sliced-1",))


def test_a_quota_of_another_form_is_shown_with_the_form_that_counts() -> None:
    row = QuotaRow("vision", "old", "limits.nvidia.com/gpu", 10.0)
    (found,) = examine([with_metrics(quotas=(*(METRICS.quotas or ()), row))])
    assert 'requests.nvidia.com/gpu: "10"' in found.fix
    assert "14 units are held there now" in found.what


@pytest.mark.parametrize(
    ("key", "inert", "limits"),
    [
        pytest.param("requests.nvidia.com/gpu", False, True, id="requests"),
        pytest.param("nvidia.com/gpu", True, False, id="bare"),
        pytest.param("limits.nvidia.com/mig-1g.10gb", True, False, id="limits"),
        pytest.param("requests.amd.com/gpu", False, True, id="amd"),
        pytest.param("gpu.nvidia.com.deviceclass.resource.k8s.io/devices", False, True, id="dra"),
        pytest.param(
            "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com", False, True, id="implicit"
        ),
        pytest.param("requests.cpu", False, False, id="cpu"),
        pytest.param("pods", False, False, id="pods"),
    ],
)
def test_which_quota_keys_count(key: str, inert: bool, limits: bool) -> None:
    assert (counts_nothing(key), limits_gpus(key)) == (inert, limits)


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        pytest.param("NVIDIA-A100-SXM4-80GB", "NVLink (SXM)", id="sxm"),
        pytest.param("NVIDIA-A100-PCIE-40GB", "PCIe", id="pcie"),
        pytest.param("NVIDIA H100 NVL", "NVLink bridge (NVL)", id="nvl"),
        pytest.param("NVIDIA-L4", "", id="unsaid"),
    ],
)
def test_interconnects_of_products(product: str, kind: str) -> None:
    assert interconnect(product) == kind


def test_rights_are_asked_for_by_the_rules_that_give_them() -> None:
    (found,) = examine([with_api(denied=(Right("list", "", "pods"), Right("watch", "", "pods")))])
    assert 'apiGroups: [""], resources: [pods], verbs: [list, watch]' in found.fix


def test_one_tenant_a_gpu_needs_no_virtual_gpus() -> None:
    look = with_cards("sliced-1", named=60, pods=1)
    alone = [t for t in TENANTS if t.pod not in {"notes-2", "notes-3"}]
    assert examine([replace(look, past=replace(PAST, tenants=alone))]) == []


def test_a_sliced_gpu_of_which_a_pod_holds_two_shares_costs_what_is_over_the_first() -> None:
    group = PodGroup("vision", "Job", SHARED, 3.0, "shared-l4", 1)
    held = [*TENANTS[:-3], tenant("more", "sliced-1", SHARED, "shared-l4", units=3.0)]
    look = with_past(groups=(*PAST.groups, group), tenants=held)
    (found,) = [f for f in examine([look]) if f.code == "shared-units-above-one"]
    assert found.gpu_hours == pytest.approx(24 * 2 / 4)


def test_nodes_with_several_gpus_that_publish_no_policy_are_not_checked() -> None:
    several = without_policy(healthy())
    assert "whole-1" in several
    assert "whole-1" not in without_policy(with_past(topology_policies={"whole-1": "restricted"}))
    assert without_policy(replace(healthy(), api=None)) == set()


def test_the_worst_comes_first_then_data_then_what_is_dearest() -> None:
    def finding(code: str, hours: float | None = None) -> Finding:
        return Finding(code, "west", "", "x.", "y", gpu_hours=hours)

    given = [
        finding("vendor-limits"),
        finding("interconnect-mixed", 900.0),
        finding("coverage-low", 5.0),
        finding("stuck-counter", 50.0),
        finding("hours-failed"),
    ]
    codes = [one.code for one in worst_first(given)]
    assert codes == [
        "hours-failed",
        "stuck-counter",
        "coverage-low",
        "interconnect-mixed",
        "vendor-limits",
    ]


def test_a_finding_of_no_kind_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="no kind of finding"):
        Finding("made-up", "", "", "", "")


def test_many_places_are_told_by_the_first_and_a_count() -> None:
    told = some(f"node-{n:02}" for n in range(25))
    assert (len(told), told[0], told[-1]) == (21, "node-00", "and 5 more")


OF_TIERS = {
    *("tier-matches-nothing", "sharing-differs", "slices-unreadable", "slices-stranded"),
    *("interconnect-mixed", "activity-unattributed", "team-not-allowed"),
}


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_what_is_about_a_tier_names_it_as_data(fault: object, code: str) -> None:
    assert callable(fault)
    (found,) = examine([fault()])
    assert len(found.tiers) == int(code in OF_TIERS)
    assert all(tier in f"{found.what} {found.places}" for tier in found.tiers)


def test_two_clusters_are_examined_each_for_itself() -> None:
    other = replace(prometheus_down(), cluster="east")
    found = examine([healthy(), other])
    assert [(one.cluster, one.severity) for one in found] == [("east", Severity.ERROR)]


def test_what_cannot_be_asked_is_no_finding() -> None:
    assert examine([with_metrics(answers=None, quotas=None)]) == []


def test_shown_nodes_stand_in_for_those_of_the_api() -> None:
    look = replace(healthy(), api=None, past=replace(PAST, nodes=()))
    assert look.nodes == METRICS.nodes


@pytest.mark.parametrize("action", GpuAction)
def test_a_bad_gpu_is_reset_unless_it_shows_errors_of_hardware(action: GpuAction) -> None:
    text = gpu_advice(action, "GPU 3 of lab/whole-1", "9.0× the expected failures")
    gpu = GpuAdvice("3", "whole-1", action, text, is_unreliable=True)
    (found,) = (
        one for one in examine([with_past(gpu_advice=(gpu,))]) if one.code == "gpu-unreliable"
    )
    words = {
        GpuAction.REPLACE: "Replace GPU 3 of lab/whole-1",
        GpuAction.UPDATE_DRIVER: "look for an update of its driver",
        GpuAction.RESET: "Reset GPU 3 of lab/whole-1, and replace it when",
    }
    assert words[action] in found.what
    assert ("--gpu-reset" in found.fix) == (action is not GpuAction.REPLACE)
    assert "dcgmi diag -r 3 -i 3" in found.fix
