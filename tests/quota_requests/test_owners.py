"""Who else owns exactly this field."""

from typing import Any

import pytest

from apps.quota_requests.domain.execution.executor import GitopsTool, OtherOwner, other_owners
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    VolcanoField,
)
from tests.quota_requests import recorded

GPU = "requests.nvidia.com/gpu"
QUOTA = QuotaKeyTarget("team-vision", "gpu", GPU)
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("target", "live"),
    [
        pytest.param(QUOTA, recorded.quota("gpu"), id="ResourceQuota"),
        pytest.param(CELL, recorded.cluster_queue("cq-a"), id="Kueue, the whole list"),
        pytest.param(VOLCANO, recorded.volcano_queue("bronze"), id="Volcano"),
    ],
)
def test_only_the_writer_of_the_spec_is_named(target: Target, live: dict[str, Any]) -> None:
    assert [owner.manager for owner in other_owners(target, live)] == ["recorder"]


def entry(manager: str, fields: object, **more: object) -> dict[str, object]:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def quota_fields(*keys: str) -> dict[str, object]:
    return {"f:spec": {"f:hard": {".": {}} | {f"f:{key}": {} for key in keys}}}


def owned_by(*entries: object) -> tuple[OtherOwner, ...]:
    return other_owners(QUOTA, {"metadata": {"managedFields": list(entries)}})


@pytest.mark.parametrize(
    ("manager", "operation", "tool", "reverts", "words"),
    [
        pytest.param(
            "kubectl-edit", "Update", GitopsTool.KUBECTL, False, "take it over", id="kubectl"
        ),
        pytest.param("kubectl", "Apply", GitopsTool.KUBECTL, False, "next run", id="kubectl apply"),
        pytest.param(
            "argocd-controller", "Apply", GitopsTool.ARGO_CD, True, "GitOps", id="Argo CD"
        ),
        pytest.param(
            "argocd-controller", "Update", GitopsTool.ARGO_CD, True, "GitOps", id="Argo, old"
        ),
        pytest.param("kustomize-controller", "Apply", GitopsTool.FLUX, True, "GitOps", id="Flux"),
        pytest.param(
            "helm-controller", "Update", GitopsTool.FLUX, True, "GitOps", id="Flux's Helm"
        ),
        pytest.param("helm", "Update", GitopsTool.HELM, False, "next run", id="Helm"),
        pytest.param("Terraform", "Apply", GitopsTool.TERRAFORM, False, "next run", id="Terraform"),
        pytest.param("team-admin", "Update", GitopsTool.OTHER, False, "team-admin set", id="other"),
    ],
)
def test_the_tool_behind_a_manager_is_known_by_its_name(
    manager: str, operation: str, tool: GitopsTool, reverts: bool, words: str
) -> None:
    (owner,) = owned_by(entry(manager, quota_fields(GPU), operation=operation))
    assert (owner.tool, owner.reverts) == (tool, reverts)
    assert owner.applies is (operation == "Apply")
    assert words in owner.advice


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(entry("gpuportal", quota_fields(GPU)), id="the portal itself"),
        pytest.param(entry("kubectl", quota_fields("pods")), id="a key beside it"),
        pytest.param(entry("kubectl", quota_fields(GPU), subresource="status"), id="status"),
        pytest.param(entry("kubectl", {"f:metadata": {"f:labels": {}}}), id="labels"),
        pytest.param(entry("kubectl", {"f:spec": {"f:hard": {}}}), id="the map alone"),
        pytest.param(entry("kubectl", {"f:spec": {}}), id="the spec alone"),
        pytest.param(entry("kubectl", {}), id="nothing"),
        pytest.param(entry("kubectl", None), id="null"),
        pytest.param(entry("kubectl", {"f:spec": []}), id="rubbish within"),
        pytest.param("rubbish", id="rubbish"),
    ],
)
def test_who_does_not_own_the_field_is_not_named(other: object) -> None:
    assert owned_by(other) == ()


def test_an_owner_is_named_once() -> None:
    twice = entry("kubectl", quota_fields(GPU))
    assert len(owned_by(twice, dict(twice))) == 1


@pytest.mark.parametrize(
    ("flavor", "named"), [("a100", ["argocd-controller"]), ("h100", [])], ids=["its", "another's"]
)
def test_a_list_that_is_owned_by_item_is_searched_by_name(flavor: str, named: list[str]) -> None:
    cell: dict[str, object] = {"f:nominalQuota": {}}
    fields = {
        "f:spec": {
            "f:resourceGroups": {
                'k:{"coveredResources":["nvidia.com/gpu"]}': {
                    "f:flavors": {
                        'k:{"name":"a100"}': {"f:resources": {'k:{"name":"nvidia.com/gpu"}': cell}}
                    }
                }
            }
        }
    }
    live = {"metadata": {"managedFields": [entry("argocd-controller", fields)]}}
    found = other_owners(QueueCell("cq-a", flavor, "nvidia.com/gpu"), live)
    assert [owner.manager for owner in found] == named


@pytest.mark.parametrize("metadata", [None, {}, {"managedFields": "odd"}])
def test_without_managed_fields_nobody_is_named(metadata: object) -> None:
    assert other_owners(QUOTA, {"metadata": metadata}) == ()


def test_the_map_that_the_servers_last_write_left_behind_owns_no_key() -> None:
    """As Kubernetes 1.36.2 leaves it after another manager wrote a quota's only key."""
    left = entry("kubectl-create", {"f:spec": {"f:hard": {}}})
    ours = entry("gpuportal", {"f:spec": {"f:hard": {f"f:{GPU}": {}}}})
    assert owned_by(left, ours) == ()
    volcano = {"metadata": {"managedFields": [entry("kubectl", {"f:spec": {"f:capability": {}}})]}}
    assert other_owners(VOLCANO, volcano) == ()


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"f:spec": {"f:resourceGroups": {}}}, ["kubectl"]), ({"f:spec": {}}, [])],
    ids=["the list, which is one field", "the spec alone"],
)
def test_an_empty_set_owns_all_from_an_atomic_field_on(fields: object, named: list[str]) -> None:
    live = {"metadata": {"managedFields": [entry("kubectl", fields)]}}
    assert [owner.manager for owner in other_owners(CELL, live)] == named
