"""Workflows of Argo as the pods that they make, and what of them is known only when they run."""

import json
from typing import Any

import pytest
import yaml

from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.manifests.submissions import Manifest
from tests.planning.test_manifests import CONTAINER, GPU, pods, refusal, written


def amounts(manifest: Manifest) -> list[float]:
    """Return the GPUs of all containers of each template."""
    return [
        sum(
            float(one.get("resources", {}).get("limits", {}).get(GPU, 0))
            for one in template.spec["containers"]
        )
        for submission in manifest.submissions
        for template in submission.templates
    ]


def test_sidecars_and_first_containers_of_argo_are_in_its_pod() -> None:
    template = {
        "name": "train",
        "container": CONTAINER,
        "sidecars": [{"name": "watch", "resources": {"limits": {GPU: 1}}}],
        "initContainers": [{"name": "fetch", "resources": {"limits": {GPU: 2}}}],
    }
    found = read_manifest(yaml.safe_dump(written("Workflow", {"templates": [template]})))
    assert amounts(found) == [9.0]
    (one,) = found.submissions[0].templates
    assert one.spec["initContainers"] == template["initContainers"]


@pytest.mark.parametrize(
    ("step", "pods"),
    [
        pytest.param({"withItems": [1, 2, 3]}, 3, id="items"),
        pytest.param({"withParam": "[1, 2]"}, 2, id="a list in JSON"),
        pytest.param({"withParam": "{{steps.list.outputs.result}}"}, 1, id="known only later"),
        pytest.param({"withSequence": {"count": "4"}}, 4, id="a count"),
        pytest.param({"withSequence": {"start": "2", "end": 6}}, 5, id="a sequence"),
        pytest.param({}, 1, id="once"),
    ],
)
@pytest.mark.parametrize("kind", ["steps", "dag"])
def test_items_of_argo_run_at_the_same_time(kind: str, step: dict[str, Any], pods: int) -> None:
    call = {"name": "each", "template": "train"} | step
    outer = {"name": "all", "template": "inner", "withItems": ["a", "b"]}
    inner = {"steps": [[call]]} if kind == "steps" else {"dag": {"tasks": [call]}}
    spec: dict[str, Any] = {
        "templates": [
            {"name": "main", "steps": [[outer]]},
            {"name": "inner"} | inner,
            {"name": "train", "container": CONTAINER},
        ]
    }
    found = read_manifest(yaml.safe_dump(written("Workflow", spec)))
    assert [one.count for one in found.submissions[0].templates] == [2 * pods]
    found = read_manifest(yaml.safe_dump(written("Workflow", spec | {"parallelism": 2})))
    assert [one.count for one in found.submissions[0].templates] == [2]


def test_templates_of_argo_that_call_themselves_end() -> None:
    call = {"name": "again", "template": "main", "withItems": [1, 2]}
    calls = [call, call | {"template": "train"}]
    templates = [{"name": "main", "steps": [calls]}, {"name": "train", "container": CONTAINER}]
    found = read_manifest(yaml.safe_dump(written("Workflow", {"templates": templates})))
    assert found.submissions[0].templates[0].count == 2**16


def test_a_patch_of_argo_changes_the_pod() -> None:
    patch = {
        "nodeSelector": {"pool": "h100"},
        "containers": [{"name": "main", "resources": {"limits": {GPU: 2}}}],
    }
    template = {"name": "train", "container": CONTAINER, "podSpecPatch": json.dumps(patch)}
    whole = {"templates": [template], "nodeSelector": {"zone": "a"}}
    spec = whole | {
        "podSpecPatch": "priorityClassName: high\ncontainers: [{name: main, tty: true}]"
    }
    found = read_manifest(yaml.safe_dump(written("Workflow", spec)))
    assert amounts(found) == [2.0]
    (one,) = found.submissions[0].templates
    assert one.spec["nodeSelector"] == {"zone": "a", "pool": "h100"}
    assert one.spec["priorityClassName"] == "high"
    assert one.spec["containers"][0]["tty"] is True


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        pytest.param("{", "podSpecPatch", id="no YAML"),
        pytest.param("containers: [{resources: {limits: {cpu: much}}}]", "a quantity", id="amount"),
    ],
)
def test_a_patch_of_argo_that_cannot_be_read_is_refused(patch: str, problem: str) -> None:
    templates = [{"name": "train", "container": CONTAINER, "podSpecPatch": patch}]
    error = refusal(yaml.safe_dump(written("Workflow", {"templates": templates})))
    assert error is not None
    assert problem in str(error)
    assert "spec.templates[0].podSpecPatch" in error.field


def workflow_of(template: dict[str, Any], *calls: dict[str, Any], **spec: Any) -> Any:
    """Return the pods of a template `train` with 8 GPUs that such steps call."""
    steps = [{"name": f"step-{at}", "template": "train"} | one for at, one in enumerate(calls)]
    templates = [
        {"name": "main", "steps": [steps]},
        {"name": "train", "container": CONTAINER} | template,
    ]
    whole = {"entrypoint": "main", "templates": templates} | spec
    (one,) = read_manifest(yaml.safe_dump(written("Workflow", whole))).submissions
    (found,) = one.templates
    return found


def with_parameter(value: object) -> dict[str, Any]:
    return {"arguments": {"parameters": [{"name": "gpus", "value": value}]}}


PATCH = '{"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": %s}}}]}'
OF_INPUT = {
    "inputs": {"parameters": [{"name": "gpus", "default": 2}]},
    "podSpecPatch": PATCH % "{{inputs.parameters.gpus}}",
}


@pytest.mark.parametrize(
    ("template", "calls", "spec", "gpus"),
    [
        pytest.param(OF_INPUT, [{}], {}, 2, id="by default"),
        pytest.param(OF_INPUT, [with_parameter("4")] * 2, {}, 4, id="each call tells the same"),
        pytest.param(
            OF_INPUT,
            [with_parameter("{{workflow.parameters.gpus}}")],
            with_parameter(3),
            3,
            id="of the workflow, handed on",
        ),
        pytest.param(
            {"podSpecPatch": PATCH % "{{ workflow.parameters.gpus }}"},
            [{}],
            with_parameter(1),
            1,
            id="of the workflow",
        ),
        pytest.param(
            {"podSpecPatch": PATCH % '"{{inputs.parameters.gpus}}"'} | {"inputs": {}},
            [],
            with_parameter("5") | {"entrypoint": "train"},
            5,
            id="of the template that runs first",
        ),
    ],
)
def test_a_parameter_of_a_patch_of_argo_that_is_known_counts(
    template: dict[str, Any], calls: list[dict[str, Any]], spec: dict[str, Any], gpus: int
) -> None:
    found = workflow_of(template, *calls, **spec)
    assert float(found.spec["containers"][0]["resources"]["limits"][GPU]) == gpus
    assert found.notes == ()


@pytest.mark.parametrize(
    ("template", "calls", "spec"),
    [
        pytest.param(OF_INPUT, [with_parameter("1"), with_parameter("2")], {}, id="calls differ"),
        pytest.param(OF_INPUT, [with_parameter("{{item}}")], {}, id="an item"),
        pytest.param(OF_INPUT, [with_parameter("x" * 2000)], {}, id="a long one"),
        pytest.param(
            OF_INPUT,
            [with_parameter("{{workflow.parameters.gpus}}" * 9)],
            with_parameter("9" * 999),
            id="a long one of others",
        ),
        pytest.param({"podSpecPatch": PATCH % "{{=1+1}}"}, [{}], {}, id="an expression"),
        pytest.param(
            {"podSpecPatch": PATCH % "{{workflow.parameters.none}}"}, [{}], {}, id="not given"
        ),
    ],
)
def test_a_parameter_of_a_patch_of_argo_that_is_not_known_is_said(
    template: dict[str, Any], calls: list[dict[str, Any]], spec: dict[str, Any]
) -> None:
    found = workflow_of(template, *calls, **spec)
    assert found.spec["containers"][0]["resources"]["limits"][GPU] == 8
    assert found.notes == (
        "The patch of train has a parameter that is known only when it runs: it is not counted.",
    )


@pytest.mark.parametrize(
    ("step", "spec", "pods"),
    [
        pytest.param({"withParam": "{{workflow.parameters.gpus}}"}, "[1, 2, 3]", 3, id="a list"),
        pytest.param(
            {"withSequence": {"count": "{{workflow.parameters.gpus}}"}}, "4", 4, id="a count"
        ),
        pytest.param({"withParam": "{{steps.list.outputs.result}}"}, "", None, id="an output"),
        pytest.param({"withParam": '{"a": 1}'}, "", None, id="no list"),
        pytest.param({"withSequence": {"count": "{{item}}"}}, "", None, id="an item"),
        pytest.param({"withSequence": {"start": "{{item}}", "end": 3}}, "", None, id="a start"),
    ],
)
def test_items_of_argo_that_are_not_known_are_said(
    step: dict[str, Any], spec: str, pods: int | None
) -> None:
    found = workflow_of({}, step, **with_parameter(spec))
    assert found.count == (pods or 1)
    assert list(found.notes) == (
        []
        if pods
        else ["How often train runs at once is known only when it runs: it is counted once."]
    )


def test_items_of_a_group_of_argo_are_those_of_its_steps_too() -> None:
    templates = [
        {"name": "main", "steps": [[{"name": "all", "template": "group", "withParam": "{{x}}"}]]},
        {"name": "group", "dag": {"tasks": [{"name": "one", "template": "train"}]}},
        {"name": "train", "container": CONTAINER},
    ]
    found = read_manifest(yaml.safe_dump(written("Workflow", {"templates": templates})))
    assert found.submissions[0].templates[0].notes == (
        "How often train runs at once is known only when it runs: it is counted once.",
    )


def test_a_group_of_argo_runs_as_many_at_once_as_it_allows() -> None:
    templates = [
        {
            "name": "main",
            "parallelism": 2,
            "steps": [[{"name": "all", "template": "train", "withItems": [1, 2, 3]}]],
        },
        {"name": "train", "container": CONTAINER},
    ]
    found = read_manifest(yaml.safe_dump(written("Workflow", {"templates": templates})))
    assert found.submissions[0].templates[0].count == 2


def test_pods_of_argo_that_another_object_tells_are_said() -> None:
    templates = [
        {
            "name": "main",
            "steps": [
                [{"name": "fit", "template": "train"}, {"name": "job", "template": "make"}],
                [{"name": "test", "templateRef": {"name": "shared", "template": "test"}}],
            ],
        },
        {"name": "train", "container": CONTAINER},
        {"name": "make", "resource": {"action": "create", "manifest": "kind: Job"}},
    ]
    spec = {"entrypoint": "main", "templates": templates}
    found = read_manifest(yaml.safe_dump(written("Workflow", spec)))
    assert found.submissions[0].templates[0].notes == (
        "make creates another object: its pods are not counted.",
        "test runs a template of another object: its pods are not counted.",
    )


def test_only_templates_of_argo_that_run_are_counted() -> None:
    templates = [
        {"name": "main", "steps": [[{"name": "a", "template": "train"}]]},
        {"name": "train", "container": CONTAINER, "hooks": {"exit": {"template": "told"}}},
        {"name": "told", "container": CONTAINER},
        {"name": "last", "container": CONTAINER},
        {"name": "unused", "container": CONTAINER},
    ]
    spec = {"entrypoint": "main", "onExit": "last", "templates": templates}
    found = read_manifest(yaml.safe_dump(written("Workflow", spec)))
    assert [one.role for one in found.submissions[0].templates] == ["train", "told", "last"]
    found = read_manifest(yaml.safe_dump(written("Workflow", spec | {"entrypoint": "none"})))
    assert len(found.submissions[0].templates) == 4


@pytest.mark.parametrize("kind", ["steps", "dag"])
def test_a_template_within_a_step_of_argo_is_read(kind: str) -> None:
    call = {"name": "fit", "inline": {"container": CONTAINER}, "withItems": [1, 2]}
    outer = {"steps": [[call]]} if kind == "steps" else {"dag": {"tasks": [call]}}
    spec = {"entrypoint": "main", "templates": [{"name": "main"} | outer]}
    found = read_manifest(yaml.safe_dump(written("Workflow", spec)))
    role = "main 1.fit" if kind == "steps" else "main fit"
    assert pods(found) == [(role, 2, 1)]
    assert amounts(found) == [8.0]


def test_defaults_of_templates_of_argo_count_where_a_template_tells_nothing() -> None:
    defaults = {"container": CONTAINER, "nodeSelector": {"pool": "h100"}}
    templates = [
        {"name": "train", "container": {"image": "x"}},
        {"name": "test", "container": {"resources": {"limits": {GPU: 1}}}},
    ]
    spec = {"templateDefaults": defaults, "templates": templates}
    found = read_manifest(yaml.safe_dump(written("Workflow", spec)))
    assert amounts(found) == [8.0, 1.0]
    assert found.submissions[0].templates[0].spec["nodeSelector"] == {"pool": "h100"}
