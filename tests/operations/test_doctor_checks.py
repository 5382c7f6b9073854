"""The doctor's checks: a healthy cluster has no finding, and each planted fault is found alone."""

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.goodput.domain.advice import GpuAction, GpuAdvice, gpu_advice
from apps.operations.domain.examine import examine
from apps.operations.domain.examine.catalog import counts_nothing, limits_gpus
from apps.operations.domain.examine.topology import without_policy
from apps.operations.domain.examine.usage import interconnect
from apps.operations.domain.findings import KINDS, Finding, Severity, some, worst_first
from apps.operations.domain.observations import (
    ClusterHistory,
    NodeDay,
    PodGroup,
    QuotaRow,
    Right,
)
from tests.operations.doctor_faults import FAULTS, not_renamed
from tests.operations.doctor_sources import (
    METRICS,
    NODES,
    PAST,
    RULES,
    SHARED,
    TENANTS,
    healthy,
    prometheus_down,
    tenant,
    with_api,
    with_devices,
    with_metrics,
    with_past,
)


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
    assert "4 units for 1 physical GPU." in found.what


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
    look = with_devices("sliced-1", named=60, pods=1)
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
