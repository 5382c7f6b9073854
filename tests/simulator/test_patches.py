"""JSON patches and merge patches, as RFC 6902 and RFC 7386 have them."""

from typing import Any

import pytest

from simulator.kubernetes.fields.managed_fields import managed
from simulator.kubernetes.fields.patches import (
    MalformedPatch,
    PatchFailed,
    json_patched,
    merge_patched,
)

_ITEM = {"a": {"x/y": "1"}, "b": [1, 2]}


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        pytest.param({"op": "add", "path": "/c", "value": 3}, {**_ITEM, "c": 3}, id="add"),
        pytest.param({"op": "add", "path": "/b/1", "value": 9}, {**_ITEM, "b": [1, 9, 2]},
                     id="insert"),
        pytest.param({"op": "add", "path": "/b/-", "value": 9}, {**_ITEM, "b": [1, 2, 9]},
                     id="append"),
        pytest.param({"op": "remove", "path": "/b/0"}, {**_ITEM, "b": [2]}, id="remove"),
        pytest.param({"op": "replace", "path": "/a/x~1y", "value": "2"},
                     {**_ITEM, "a": {"x/y": "2"}}, id="replace"),
        pytest.param({"op": "move", "from": "/b", "path": "/c"},
                     {"a": {"x/y": "1"}, "c": [1, 2]}, id="move"),
        pytest.param({"op": "copy", "from": "/b", "path": "/c"}, {**_ITEM, "c": [1, 2]},
                     id="copy"),
        pytest.param({"op": "test", "path": "/a/x~1y", "value": "1"}, _ITEM, id="test"),
    ],
)  # fmt: skip
def test_operations(operation: dict[str, Any], wanted: Any) -> None:
    assert json_patched(_ITEM, [operation]) == wanted
    assert _ITEM == {"a": {"x/y": "1"}, "b": [1, 2]}


@pytest.mark.parametrize(
    ("operations", "error"),
    [
        ([{"op": "test", "path": "/a/x~1y", "value": "2"}], PatchFailed),
        ([{"op": "replace", "path": "/nope", "value": 1}], PatchFailed),
        ([{"op": "remove", "path": "/b/7"}], PatchFailed),
        ([{"op": "add", "path": "/b/x", "value": 1}], PatchFailed),
        ([{"op": "replace", "path": "", "value": 1}], PatchFailed),
        ([{"op": "bend", "path": "/a"}], MalformedPatch),
        ([{"op": "add", "path": "a"}], MalformedPatch),
        ({"op": "add"}, MalformedPatch),
        (["add"], MalformedPatch),
    ],
)
def test_operations_that_do_not_fit(operations: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        json_patched(_ITEM, operations)


@pytest.mark.parametrize(
    ("patch", "wanted"),
    [
        ({"a": None}, {"b": [1, 2]}),
        ({"a": {"z": 1}}, {"a": {"x/y": "1", "z": 1}, "b": [1, 2]}),
        ({"b": [3]}, {"a": {"x/y": "1"}, "b": [3]}),
        ({"b": {"c": 1}}, {"a": {"x/y": "1"}, "b": {"c": 1}}),
    ],
)
def test_merges(patch: Any, wanted: Any) -> None:
    assert merge_patched(_ITEM, patch) == wanted


def test_fields_belong_to_who_set_them_last() -> None:
    old: dict[str, Any] = {
        "apiVersion": "v1",
        "metadata": {},
        "spec": {"hard": {"a": "1", "b": "1"}},
    }
    managed(None, old, "maker", 0)
    new: dict[str, Any] = {
        **old,
        "metadata": dict(old["metadata"]),
        "spec": {"hard": {"a": "2", "b": "1"}},
    }
    managed(old, new, "portal", 60)

    assert [(e["manager"], e["fieldsV1"]) for e in new["metadata"]["managedFields"]] == [
        ("maker", {"f:spec": {"f:hard": {"f:b": {}}}}),
        ("portal", {"f:spec": {"f:hard": {"f:a": {}}}}),
    ]
    assert new["metadata"]["managedFields"][1]["time"] == "1970-01-01T00:01:00Z"
