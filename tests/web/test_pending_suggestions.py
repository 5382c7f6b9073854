"""How to fix, as something to paste: exact, and quoted for where it is pasted."""

import shlex
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from apps.pending.domain.diagnosis import Action
from apps.pending.selectors.rows import PendingRow, SuggestionRow
from apps.web.pending.suggestions import FixStep, help_of

HOSTILE = "x'; rm -rf / #\n\"$(id)"


def row(*suggestions: SuggestionRow, **values: Any) -> PendingRow:
    """Return a pod that waits with these suggestions."""
    given: dict[str, Any] = {
        "id": 1,
        "cluster": "west",
        "namespace": "vision",
        "team": "vision",
        "kind": "Pod",
        "name": "train-0",
        "uid": "u",
        "workload": "Job/train",
        "tier": "gold",
        "resource": "nvidia.com/gpu",
        "units": 1.0,
        "gpu_equivalents": 1.0,
        "since": datetime(2026, 1, 1, tzinfo=UTC),
        "bound_at": None,
        "until": None,
        "outcome": "",
        "again": False,
        "wait_seconds": 1.0,
        "cause": "capacity",
        "detail": "",
        "explanation": "",
        "message": "",
        "node_reasons": {},
        "context": (),
        "suggestion": None,
        "suggestions": suggestions,
        "blockers": (),
        "counts": "pending",
        "counted": 1.0,
        "queue": "",
        "priority": 0,
        "stale": False,
        "as_of": None,
    }
    return PendingRow(**(given | values))


def helped(action: str, change: dict[str, Any], **values: Any) -> FixStep:
    (found,) = help_of(row(SuggestionRow(action, "Do it.", change), **values))
    return found


def test_a_snippet_is_to_be_pasted_once() -> None:
    """Pods of a manifest that are pending by one taint on other nodes need one toleration."""
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    found = help_of(
        row(
            SuggestionRow("tolerate", "Tolerate the taint of n-1.", taint),
            SuggestionRow("uncordon", "Uncordon n-3.", {"nodes": ["n-3"]}),
            SuggestionRow("tolerate", "Tolerate the taint of n-1 and n-2.", taint),
        )
    )
    assert [one.text for one in found] == ["Tolerate the taint of n-1 and n-2.", "Uncordon n-3."]


@pytest.mark.parametrize(
    ("action", "change", "words"),
    [
        pytest.param(
            "raise_quota",
            {"namespace": "vision", "quota": "gpus", "key": "requests.nvidia.com/gpu", "to": 6.0},
            [
                *("kubectl", "patch", "resourcequota", "gpus", "--type", "merge", "--patch"),
                '{"spec": {"hard": {"requests.nvidia.com/gpu": "6"}}}',
                *("--namespace", "vision"),
            ],
            id="quota",
        ),
        pytest.param("uncordon", {"nodes": ["n-1"]}, ["kubectl", "uncordon", "n-1"], id="uncordon"),
        pytest.param(
            "resume_queue",
            {"cluster_queue": "main"},
            [
                *("kubectl", "patch", "clusterqueue", "main", "--type", "merge", "--patch"),
                '{"spec": {"stopPolicy": "None"}}',
            ],
            id="cluster queue",
        ),
        pytest.param(
            "resume_queue",
            {"local_queue": "vision/mine"},
            [
                *("kubectl", "patch", "localqueue", "mine", "--type", "merge", "--patch"),
                '{"spec": {"stopPolicy": "None"}}',
                *("--namespace", "vision"),
            ],
            id="local queue",
        ),
        pytest.param(
            "unsuspend",
            {"kind": "Job", "namespace": "vision", "name": "train"},
            [
                *("kubectl", "patch", "job", "train", "--type", "merge", "--patch"),
                '{"spec": {"suspend": false}}',
                *("--namespace", "vision"),
            ],
            id="unsuspend",
        ),
        pytest.param(
            "activate",
            {"namespace": "vision", "name": "job-train"},
            [
                *("kubectl", "patch", "workloads.kueue.x-k8s.io", "job-train"),
                *("--type", "merge", "--patch", '{"spec": {"active": true}}'),
                *("--namespace", "vision"),
            ],
            id="activate",
        ),
        pytest.param(
            "look_at_node",
            {"nodes": ["n-1"], "reason": "not-ready"},
            ["kubectl", "describe", "node", "n-1"],
            id="node",
        ),
        pytest.param(
            "mend_image",
            {"container": "main", "reason": "ErrImagePull"},
            ["kubectl", "describe", "pod", "train-0", "--namespace", "vision"],
            id="image",
        ),
        pytest.param(
            "mend_volume",
            {"node": "n-1", "what": "volume not mounted", "volume": "data"},
            ["kubectl", "describe", "pod", "train-0", "--namespace", "vision"],
            id="volume",
        ),
    ],
)
def test_a_command_is_exact(action: str, change: dict[str, Any], words: list[str]) -> None:
    found = helped(action, change)
    assert shlex.split(found.code) == words
    assert found.code_is == "command"


@pytest.mark.parametrize(
    ("action", "change", "manifest"),
    [
        pytest.param(
            "tolerate",
            {"key": "dedicated", "value": "", "effect": "NoSchedule", "nodes": []},
            {
                "tolerations": [
                    {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
                ]
            },
            id="taint without a value",
        ),
        pytest.param(
            "tolerate",
            {"key": "dedicated", "value": "yes", "effect": "NoExecute", "nodes": []},
            {
                "tolerations": [
                    {
                        "key": "dedicated",
                        "operator": "Equal",
                        "value": "yes",
                        "effect": "NoExecute",
                    },
                ]
            },
            id="taint whose value reads as a truth",
        ),
        pytest.param(
            "select",
            {"remove": {"zone": "c"}, "add": {"zone": "a"}, "nodes": []},
            {"nodeSelector": {"zone": "a"}},
            id="selector",
        ),
        pytest.param(
            "request",
            {"resource": "nvidia.com/gpu", "from": 8.0, "to": 4.0},
            {"resources": {"limits": {"nvidia.com/gpu": "4"}}},
            id="less",
        ),
        pytest.param(
            "request",
            {"resource": "a", "from": 1.0, "to": 1.0, "instead": "nvidia.com/mig-2g.20gb"},
            {"resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}}},
            id="another resource",
        ),
        pytest.param(
            "set_scheduler",
            {"from": "none", "to": "default-scheduler"},
            {"schedulerName": "default-scheduler"},
            id="scheduler",
        ),
    ],
)
def test_a_snippet_is_the_manifest_it_stands_for(
    action: str, change: dict[str, Any], manifest: dict[str, Any]
) -> None:
    found = helped(action, change)
    assert yaml.safe_load(found.code) == manifest
    assert found.code_is == "snippet"


def test_where_a_driver_is_missing_those_of_the_node_are_looked_at_first() -> None:
    change = {"node": "n-1", "what": "volume not mounted", "driver": "nfs.csi.k8s.io"}
    assert helped("mend_volume", change).code.splitlines() == [
        "kubectl describe csinode n-1",
        "kubectl describe pod train-0 --namespace vision",
    ]


def test_a_volume_is_for_whoever_runs_the_cluster_and_its_words_stay() -> None:
    found = helped("mend_volume", {"node": "n-1", "what": "volume not mounted"})
    assert (found.text, found.who) == ("Do it.", "platform admin")


@pytest.mark.parametrize(
    ("count", "head"),
    [
        pytest.param({}, "# a node with at least", id="of no number"),
        pytest.param({"count": 1}, "# a node with at least", id="one"),
        pytest.param({"count": 3}, "# 3 nodes, each with at least", id="three"),
    ],
)
def test_nodes_to_add_are_as_many_as_are_lacking(count: dict[str, int], head: str) -> None:
    found = helped("add_node", {"resource": "nvidia.com/gpu", "amount": 8.0, **count})
    assert found.code.splitlines()[0] == head
    assert yaml.safe_load(found.code) == {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    assert found.code_is == "snippet"


def test_what_is_to_go_from_a_selector_is_a_comment() -> None:
    found = helped("select", {"remove": {"zone": "c"}, "nodes": []})
    assert found.code == '# remove "zone": "c"'


@pytest.mark.parametrize(
    "action", ["uncordon", "raise_quota", "look_at_node", "look_at_container", "mend_volume"]
)
def test_hostile_names_stay_one_word_of_a_command(action: str) -> None:
    change = {
        "node": HOSTILE,
        "driver": HOSTILE,
        "nodes": [HOSTILE],
        "namespace": HOSTILE,
        "quota": HOSTILE,
        "key": HOSTILE,
        "to": 1.0,
        "container": HOSTILE,
    }
    found = helped(action, change, name=HOSTILE, namespace=HOSTILE)
    assert all(word not in shlex.split(found.code) for word in ("rm", "-rf", "$(id)"))
    assert HOSTILE in shlex.split(found.code) or HOSTILE.replace('"', '\\"') in found.code


def test_hostile_names_stay_one_scalar_of_a_snippet() -> None:
    found = helped("tolerate", {"key": HOSTILE, "value": HOSTILE, "effect": "a: b"})
    (toleration,) = yaml.safe_load(found.code)["tolerations"]
    assert (toleration["key"], toleration["value"]) == (HOSTILE, HOSTILE)
    assert toleration["effect"] == "a: b"


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"nodes": None, "remove": None, "to": [], "namespace": 3, "key": None, "value": None},
        {"nodes": [3], "remove": ["a In b"], "local_queue": 7, "kind": 1, "container": None},
    ],
)
def test_no_change_of_any_shape_breaks_the_page(action: Action, change: dict[str, Any]) -> None:
    assert helped(action, change).text == "Do it."


def test_a_queue_of_volcano_is_not_patched_as_one_of_kueue() -> None:
    assert helped("resume_queue", {"cluster_queue": "q"}, kind="PodGroup").code == ""


def test_a_step_that_goes_with_another_is_marked_and_reads_by_itself() -> None:
    found = help_of(
        row(
            SuggestionRow("free", "Free 2 GPUs."),
            SuggestionRow("uncordon", "Also needed: uncordon n-1.", {"nodes": ["n-1"]}),
        )
    )
    assert [(one.also, one.text, one.who) for one in found] == [
        (False, "Free 2 GPUs.", "platform admin"),
        (True, "Uncordon n-1.", "platform admin"),
    ]


def test_pending_is_for_nobody_to_do() -> None:
    assert helped("wait", {"what": "start"}).who == ""
    assert helped("request", {}).who == "workload owner"
