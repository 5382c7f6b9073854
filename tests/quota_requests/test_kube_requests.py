"""What is asked of the API server."""

import json

import pytest

from apps.quota_requests.domain.execution.kube_requests import (
    object_path,
    patch_request,
    read_request,
)
from apps.quota_requests.domain.execution.patches import patch_for
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    VolcanoField,
)
from tests.quota_requests import recorded

QUOTA = QuotaKeyTarget("team-vision", "gpu", "requests.nvidia.com/gpu")
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("target", "version", "path"),
    [
        pytest.param(
            QUOTA, "", "/api/v1/namespaces/team-vision/resourcequotas/gpu", id="ResourceQuota"
        ),
        pytest.param(CELL, "", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq-a", id="Kueue"),
        pytest.param(
            CELL, "v1beta1", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/cq-a", id="older Kueue"
        ),
        pytest.param(
            VOLCANO, "", "/apis/scheduling.volcano.sh/v1beta1/queues/bronze", id="Volcano"
        ),
        pytest.param(
            QuotaKeyTarget("../kube-system", "a?b", "requests.nvidia.com/gpu"),
            "",
            "/api/v1/namespaces/..%2Fkube-system/resourcequotas/a%3Fb",
            id="names that would lead elsewhere",
        ),
    ],
)
def test_an_object_is_asked_for_where_it_is(target: Target, version: str, path: str) -> None:
    assert object_path(target, version) == path
    assert read_request(target, version).path == path
    assert read_request(target, version).query == {}


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "for good"])
def test_a_patch_names_the_portal_and_its_own_end(dry_run: bool) -> None:
    patch = patch_for(QUOTA, recorded.quota("gpu"), reviewed=quantity("6"), wanted=quantity("8"))
    found = patch_request(QUOTA, patch, dry_run=dry_run)
    assert found.method == "PATCH"
    assert found.headers["Content-Type"] == "application/json-patch+json"
    assert found.query["fieldManager"] == "gpuportal"
    assert found.query["timeout"] == "10s"
    assert found.query.get("dryRun") == ("All" if dry_run else None)
    assert json.loads(found.body) == patch
