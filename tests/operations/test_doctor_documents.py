"""What is written about the doctor, and the rights it needs, against what the code does."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.operations.domain.alert_rules import rule_file
from apps.operations.domain.findings import KINDS
from apps.operations.domain.observations import (
    ANYTHING,
    QUEUES,
    READER_EXCESS,
    WRITER_EXCESS,
    Right,
    changing,
    needed,
)
from apps.quota_requests.domain.execution.kube_requests import (
    KubeRequest,
    patch_request,
    read_request,
)
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    VolcanoField,
)

ROOT = Path(__file__).resolve().parent.parent.parent
HOW_TO = ROOT / "docs" / "how-to"
PAGE = (HOW_TO / "doctor.md").read_text(encoding="utf-8")
OF_CLAIMS = TierRule("dra", GpuSharing.DRA, (), ("gpu.nvidia.com",))


def test_every_kind_of_finding_has_a_section() -> None:
    assert set(re.findall(r"^### (\S+)$", PAGE, flags=re.MULTILINE)) == KINDS.keys()


def test_every_alert_is_described() -> None:
    alerts = {rule["alert"] for group in rule_file()["groups"] for rule in group["rules"]}
    pages = PAGE + (HOW_TO / "monitor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(Gpu\w+)`", pages)) == alerts


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text(encoding="utf-8")))


def granted(name: str) -> set[Right]:
    return {
        Right(verb, group, resource)
        for role in manifests(name)
        if role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("right", list(needed([])), ids=lambda right: right.words)
def test_the_manifest_grants_what_the_doctor_says_is_needed(right: Right) -> None:
    assert right in granted("rbac-reader.yaml")


def test_the_manifest_of_claims_grants_the_rest_to_the_same_account() -> None:
    name = "rbac-reader-claims.yaml"
    rest = set(needed([OF_CLAIMS])) - set(needed([]))
    assert rest < granted(name)
    assert {right.verb for right in granted(name)} == {"get", "list", "watch"}
    assert {right.resource for right in granted(name)} == {right.resource for right in rest}
    bindings = [
        one
        for file in ("rbac-reader.yaml", name)
        for one in manifests(file)
        if one["kind"] == "ClusterRoleBinding"
    ]
    assert bindings[0]["subjects"] == bindings[1]["subjects"]
    assert bindings[1]["roleRef"]["name"] == manifests(name)[0]["metadata"]["name"]


def test_the_manifest_of_the_writer_grants_what_the_doctor_requests_and_no_more() -> None:
    collections = [f"/apis/{group}/v1/{resource}" for group, resource in QUEUES]
    assert granted("rbac-quota-writer.yaml") == set(changing(collections))


@pytest.mark.parametrize(
    ("beyond", "files"),
    [
        pytest.param(WRITER_EXCESS, ("rbac-quota-writer.yaml",), id="writer"),
        pytest.param(READER_EXCESS, ("rbac-reader.yaml", "rbac-reader-claims.yaml"), id="reader"),
    ],
)
def test_no_manifest_grants_what_the_doctor_says_is_too_much(
    beyond: tuple[Right, ...], files: tuple[str, ...]
) -> None:
    for name in files:
        assert not granted(name) & {*beyond, ANYTHING}
        assert not any("*" in right for right in granted(name))
        assert {one["kind"] for one in manifests(name)} <= {
            *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"),
        }


@pytest.mark.parametrize(
    "target",
    [
        QuotaKeyTarget("ns", "gpus", "requests.nvidia.com/gpu"),
        QueueCell("queue", "flavor", "nvidia.com/gpu"),
        VolcanoCell("queue", VolcanoField.CAPABILITY, "nvidia.com/gpu"),
    ],
    ids=lambda target: type(target).__name__,
)
def test_what_is_sent_to_change_a_limit_is_what_its_account_may(target: Target) -> None:
    sent = (
        read_request(target),
        patch_request(target, [], dry_run=True),
        patch_request(target, [], dry_run=False),
    )
    assert {_right(each) for each in sent} <= granted("rbac-quota-writer.yaml")


def _right(request: KubeRequest) -> Right:
    """Return the right that the API server asks for before it answers."""
    parts = request.path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    return Right(request.method.lower(), group, parts[-2])
