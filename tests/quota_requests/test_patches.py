"""The patch that checks and writes in one step, from objects that real servers sent."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.quota_requests.domain.execution.patches import (
    KeyMissing,
    PatchRefused,
    ValueChanged,
    escaped,
    live_amount,
    patch_for,
)
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    TargetRefused,
    VolcanoCell,
    VolcanoField,
)
from tests.quota_requests import recorded
from tests.quota_requests.json_patches import PatchFailed, patched

GPU = "requests.nvidia.com/gpu"
QUOTA = QuotaKeyTarget("team-vision", "gpu", GPU)
MIG = QuotaKeyTarget("team-batch", "slices", "requests.nvidia.com/mig-1g.10gb")
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")


def test_the_patch_of_a_quota_tests_and_replaces_one_value() -> None:
    patch = patch_for(QUOTA, recorded.quota("gpu"), reviewed=quantity("6"), wanted=quantity("8"))
    assert patch == [
        {"op": "test", "path": "/spec/hard/requests.nvidia.com~1gpu", "value": "6"},
        {"op": "replace", "path": "/spec/hard/requests.nvidia.com~1gpu", "value": "8"},
    ]


def test_the_patch_of_a_queue_tests_flavor_resource_and_value() -> None:
    live = recorded.cluster_queue("cq-a")
    patch = patch_for(CELL, live, reviewed=quantity("2"), wanted=quantity("4"))
    flavor = "/spec/resourceGroups/0/flavors/1"
    assert patch == [
        {"op": "test", "path": f"{flavor}/name", "value": "a100"},
        {"op": "test", "path": f"{flavor}/resources/0/name", "value": "nvidia.com/gpu"},
        {"op": "test", "path": f"{flavor}/resources/0/nominalQuota", "value": "2"},
        {"op": "replace", "path": f"{flavor}/resources/0/nominalQuota", "value": "4"},
    ]


LIVE: list[Any] = [
    pytest.param(QUOTA, recorded.quota("gpu"), "6", id="ResourceQuota"),
    pytest.param(MIG, recorded.quota("slices"), "10", id="one key of three"),
    pytest.param(CELL, recorded.cluster_queue("cq-a"), "2", id="Kueue v1beta2"),
    pytest.param(CELL, recorded.cluster_queue("cq-a", "v1beta1"), "2", id="Kueue v1beta1"),
    pytest.param(VOLCANO, recorded.volcano_queue("bronze"), "4", id="Volcano"),
]


@pytest.mark.parametrize(("target", "live", "reviewed"), LIVE)
def test_the_patch_changes_that_value_and_nothing_else(
    target: Target, live: dict[str, Any], reviewed: str
) -> None:
    there = patch_for(target, live, reviewed=quantity(reviewed), wanted=quantity("37"))
    changed = patched(live, there)
    assert live_amount(target, changed) == quantity("37")
    back = patch_for(target, changed, reviewed=quantity("37"), wanted=quantity(reviewed))
    assert patched(changed, back) == live


@pytest.mark.parametrize(("target", "live", "reviewed"), LIVE)
def test_a_second_copy_of_the_patch_changes_nothing(
    target: Target, live: dict[str, Any], reviewed: str
) -> None:
    patch = patch_for(target, live, reviewed=quantity(reviewed), wanted=quantity("37"))
    with pytest.raises(PatchFailed):
        patched(patched(live, patch), patch)


def test_flavors_that_change_places_after_the_look_fail_the_test() -> None:
    live = recorded.cluster_queue("cq-a")
    patch = patch_for(CELL, live, reviewed=quantity("2"), wanted=quantity("4"))
    moved = copy.deepcopy(live)
    moved["spec"]["resourceGroups"][0]["flavors"].reverse()
    moved["spec"]["resourceGroups"][0]["flavors"][1]["resources"][0]["nominalQuota"] = "2"
    with pytest.raises(PatchFailed):
        patched(moved, patch)


@pytest.mark.parametrize(
    ("raw", "reviewed"),
    [
        pytest.param("2k", "2000", id="as Kubernetes writes it"),
        pytest.param(2000, "2000", id="a number, as Kueue allows"),
    ],
)
def test_the_test_carries_the_value_as_the_object_has_it(raw: str | int, reviewed: str) -> None:
    live = recorded.cluster_queue("cq-a")
    live["spec"]["resourceGroups"][0]["flavors"][1]["resources"][0]["nominalQuota"] = raw
    patch = patch_for(CELL, live, reviewed=quantity(reviewed), wanted=quantity("4"))
    assert patch[2]["value"] == raw
    assert live_amount(CELL, patched(live, patch)) == quantity("4")


def test_another_value_than_reviewed_is_refused_with_both() -> None:
    with pytest.raises(ValueChanged, match="is 6 now; 5 was reviewed") as refused:
        patch_for(QUOTA, recorded.quota("gpu"), reviewed=quantity("5"), wanted=quantity("8"))
    assert refused.value.live == quantity("6")


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(
            QuotaKeyTarget("team-vision", "gpu", "requests.amd.com/gpu"), id="another key"
        ),
        pytest.param(QueueCell("cq-a", "l4", "nvidia.com/gpu"), id="no such flavor"),
        pytest.param(QueueCell("cq-a", "any-cpu", "nvidia.com/gpu"), id="not in that flavor"),
        pytest.param(
            VolcanoCell("bronze", VolcanoField.DESERVED, "nvidia.com/gpu"), id="no deserved"
        ),
    ],
)
def test_a_key_that_is_not_there_is_never_added(target: Target) -> None:
    live = {
        "ResourceQuota": recorded.quota("gpu"),
        "ClusterQueue": recorded.cluster_queue("cq-a"),
        "Queue": recorded.volcano_queue("bronze"),
    }[target.source.value]
    with pytest.raises(KeyMissing, match="adds no limit by itself"):
        patch_for(target, live, reviewed=quantity("2"), wanted=quantity("4"))
    assert live_amount(target, live) is None


def test_a_key_that_limits_nothing_is_refused_even_where_it_is() -> None:
    target = QuotaKeyTarget("platform", "gpu-unprefixed", "nvidia.com/gpu")
    live = recorded.quota("gpu-unprefixed")
    with pytest.raises(TargetRefused, match="neither counts"):
        patch_for(target, live, reviewed=quantity("2"), wanted=quantity("4"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"kind": "LimitRange"}, "another object", id="kind"),
        pytest.param({"metadata": {"name": "gpu", "namespace": "b"}}, "another object", id="place"),
        pytest.param(
            {
                "metadata": {
                    "name": "gpu",
                    "namespace": "team-vision",
                    "deletionTimestamp": "2026-11-21T04:19:09Z",
                }
            },
            "being deleted",
            id="being deleted",
        ),
        pytest.param({"spec": None}, "no spec", id="no spec"),
        pytest.param({"spec": {"hard": {GPU: None}}}, "cannot be read", id="null"),
        pytest.param({"spec": {"hard": {GPU: "lots"}}}, "cannot be read", id="word"),
    ],
)
def test_an_odd_object_is_refused(change: dict[str, Any], words: str) -> None:
    live = recorded.quota("gpu") | change
    with pytest.raises(PatchRefused, match=words):
        patch_for(QUOTA, live, reviewed=quantity("6"), wanted=quantity("8"))


def test_a_flavor_that_is_there_twice_is_refused() -> None:
    live = recorded.cluster_queue("cq-a")
    groups = live["spec"]["resourceGroups"]
    groups.append(copy.deepcopy(groups[0]))
    with pytest.raises(PatchRefused, match="2 times"):
        patch_for(CELL, live, reviewed=quantity("2"), wanted=quantity("4"))


def test_odd_items_of_a_list_keep_their_places() -> None:
    live = recorded.cluster_queue("cq-a")
    live["spec"]["resourceGroups"].insert(0, "odd")
    patch = patch_for(CELL, live, reviewed=quantity("2"), wanted=quantity("4"))
    assert live_amount(CELL, patched(live, patch)) == quantity("4")


def test_a_queue_without_groups_has_no_amount() -> None:
    live = recorded.cluster_queue("cq-a") | {"spec": {"resourceGroups": None}}
    assert live_amount(CELL, live) is None
    assert live_amount(CELL, None) is None


@given(st.text(alphabet="~/01ab.", min_size=1))
def test_any_name_survives_as_a_step_of_a_pointer(name: str) -> None:
    document = {"spec": {name: "1"}}
    operations = [{"op": "replace", "path": f"/spec/{escaped(name)}", "value": "2"}]
    assert patched(document, operations) == {"spec": {name: "2"}}
