"""The file to commit, read back by a YAML reader and put to the object as its tool would."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apps.quota_requests.domain.execution.patches import ValueChanged, live_amount, patch_file
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    VolcanoField,
)
from tests.quota_requests import recorded
from tests.quota_requests.json_patches import patched

GPU = "requests.nvidia.com/gpu"
QUOTA = QuotaKeyTarget("team-vision", "gpu", GPU)
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")


def merged(live: Any, change: Any) -> Any:
    """Merge as a merge patch does (RFC 7386, without removals)."""
    if not isinstance(live, dict) or not isinstance(change, dict):
        return change
    return live | {key: merged(live.get(key), value) for key, value in change.items()}


@pytest.mark.parametrize(
    ("target", "live", "reviewed", "kind"),
    [
        pytest.param(QUOTA, recorded.quota("gpu"), "6", "ResourceQuota", id="ResourceQuota"),
        pytest.param(VOLCANO, recorded.volcano_queue("bronze"), "4", "Queue", id="Volcano"),
    ],
)
def test_a_merge_patch_holds_the_one_key(
    target: Target, live: dict[str, Any], reviewed: str, kind: str
) -> None:
    made = patch_file(target, live, reviewed=quantity(reviewed), wanted=quantity("12"))
    change = yaml.safe_load(made.text)
    assert change["kind"] == kind
    assert change["apiVersion"] == live["apiVersion"]
    after = merged(live, change)
    assert live_amount(target, after) == quantity("12")
    patch_back = patch_file(target, after, reviewed=quantity("12"), wanted=quantity(reviewed))
    assert merged(after, yaml.safe_load(patch_back.text)) == live
    assert made.name in made.how


def test_a_queue_gets_a_json_patch_with_its_tests() -> None:
    live = recorded.cluster_queue("cq-a")
    made = patch_file(CELL, live, reviewed=quantity("2"), wanted=quantity("4"))
    operations = yaml.safe_load(made.text)
    assert [operation["op"] for operation in operations] == ["test", "test", "test", "replace"]
    assert live_amount(CELL, patched(live, operations)) == quantity("4")
    assert made.name == "clusterqueue-cq-a-a100-nvidia.com-gpu-2-to-4.yaml"
    assert "kind: ClusterQueue, name: cq-a" in made.how


def test_the_file_that_takes_a_queue_back_stands_below_the_one_that_raised_it() -> None:
    """A build applies all that are listed, one after the other, to the manifest as it was."""
    manifest = recorded.cluster_queue("cq-a")
    raised = patch_file(CELL, manifest, reviewed=quantity("2"), wanted=quantity("4"))
    built = patched(manifest, yaml.safe_load(raised.text))
    back = patch_file(CELL, built, reviewed=quantity("4"), wanted=quantity("2"))
    assert raised.name != back.name
    assert "below earlier ones of this queue" in back.how
    assert patched(built, yaml.safe_load(back.text)) == manifest


def test_files_of_two_keys_of_one_quota_do_not_take_each_others_place() -> None:
    live = recorded.quota("gpu")
    other = QuotaKeyTarget("team-vision", "gpu", "requests.nvidia.com/mig-1g.10gb")
    live["spec"]["hard"][other.key] = "4"
    names = {
        patch_file(target, live, reviewed=quantity(before), wanted=quantity(after)).name
        for target, before, after in ((QUOTA, "6", "8"), (QUOTA, "6", "7"), (other, "4", "5"))
    }
    assert names == {
        "team-vision-gpu-requests.nvidia.com-gpu.yaml",
        "team-vision-gpu-requests.nvidia.com-mig-1g.10gb.yaml",
    }


def test_an_object_without_its_version_gets_the_usual_one() -> None:
    live = recorded.quota("gpu")
    del live["apiVersion"]
    made = patch_file(QUOTA, live, reviewed=quantity("6"), wanted=quantity("8"))
    assert yaml.safe_load(made.text)["apiVersion"] == "v1"


def test_a_file_is_made_only_from_what_was_reviewed() -> None:
    with pytest.raises(ValueChanged):
        patch_file(QUOTA, recorded.quota("gpu"), reviewed=quantity("5"), wanted=quantity("8"))


@given(st.text(alphabet="abc\n\r\t:{}[]\"'#-&*!|>%@ \\", min_size=1))
def test_no_name_breaks_out_of_its_place(name: str) -> None:
    live = recorded.quota("gpu")
    live["metadata"]["name"] = name
    target = QuotaKeyTarget("team-vision", name, GPU)
    made = patch_file(target, live, reviewed=quantity("6"), wanted=quantity("8"))
    assert yaml.safe_load(made.text) == {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "team-vision"},
        "spec": {"hard": {GPU: "8"}},
    }
