"""Tasks and pipelines of Tekton as the pods that they make."""

from typing import Any

import pytest
import yaml

from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.manifests.submissions import PodTemplate
from tests.planning.test_manifests import GPU, refusal, written


def gpus(amount: int) -> dict[str, Any]:
    return {"computeResources": {"limits": {GPU: amount}}}


def task(amount: int, **spec: Any) -> dict[str, Any]:
    return {"steps": [{"name": "main"} | gpus(amount)], **spec}


def made(kind: str, spec: dict[str, Any]) -> list[PodTemplate]:
    (one,) = read_manifest(yaml.safe_dump(written(kind, spec))).submissions
    return list(one.templates)


def amount(pod: PodTemplate) -> int:
    return sum(one["resources"].get("limits", {}).get(GPU, 0) for one in pod.spec["containers"])


def test_tasks_of_a_pipeline_that_run_at_its_end_are_counted() -> None:
    pipeline = {
        "tasks": [{"name": "fit", "taskSpec": task(8)}],
        "finally": [{"name": "test", "taskSpec": task(1)}],
    }
    assert [(one.role, amount(one)) for one in made("Pipeline", pipeline)] == [
        ("fit", 8),
        ("test", 1),
    ]


def test_tasks_of_another_object_are_said() -> None:
    tasks = [{"name": "fit", "taskSpec": task(8)}, {"name": "load", "taskRef": {"name": "load"}}]
    (found,) = made("PipelineRun", {"pipelineSpec": {"tasks": tasks}})
    assert found.notes == ("load runs a task of another object: its pods are not counted.",)


@pytest.mark.parametrize(
    ("matrix", "pods", "notes"),
    [
        pytest.param({"params": [{"name": "a", "value": [1, 2, 3]}]}, 3, 0, id="one list"),
        pytest.param(
            {"params": [{"value": [1, 2]}, {"value": ["x", "y"]}]}, 4, 0, id="each with each"
        ),
        pytest.param({"include": [{"name": "a"}, {"name": "b"}]}, 2, 0, id="told one by one"),
        pytest.param({"params": [{"value": "$(tasks.list.results.all[*])"}]}, 1, 1, id="not known"),
    ],
)
def test_a_task_of_a_matrix_runs_for_each_of_its_values(
    matrix: dict[str, Any], pods: int, notes: int
) -> None:
    tasks = [{"name": "fit", "taskSpec": task(1), "matrix": matrix}]
    (found,) = made("Pipeline", {"tasks": tasks})
    assert (found.count, len(found.notes)) == (pods, notes)


def test_a_step_requests_what_its_template_tells_or_itself() -> None:
    steps = [{"name": "a"}, {"name": "b"} | gpus(1)]
    (found,) = made("Task", {"stepTemplate": gpus(4), "steps": steps})
    assert amount(found) == 5


@pytest.mark.parametrize(
    ("run", "units"),
    [
        pytest.param({}, 3, id="as the task says"),
        pytest.param({"computeResources": {"limits": {GPU: 8}}}, 9, id="as a whole"),
        pytest.param({"stepSpecs": [{"name": "main"} | gpus(5)]}, 6, id="of a step"),
        pytest.param({"sidecarSpecs": [{"name": "beside"} | gpus(7)]}, 9, id="of a sidecar"),
    ],
)
def test_a_run_overrides_what_its_task_requests(run: dict[str, Any], units: int) -> None:
    spec = task(2, sidecars=[{"name": "beside"} | gpus(1)])
    (found,) = made("TaskRun", {"taskSpec": spec} | run)
    assert amount(found) == units


def test_a_run_of_a_pipeline_overrides_single_tasks() -> None:
    tasks = [{"name": name, "taskSpec": task(2)} for name in ("fit", "test")]
    own = {
        "pipelineTaskName": "fit",
        "podTemplate": {"nodeSelector": {"pool": "h100"}},
        "stepSpecs": [{"name": "main"} | gpus(8)],
    }
    whole = {"podTemplate": {"nodeSelector": {"pool": "a100"}, "schedulerName": "other"}}
    spec = {"pipelineSpec": {"tasks": tasks}, "taskRunTemplate": whole, "taskRunSpecs": [own]}
    fit, test = made("PipelineRun", spec)
    assert [amount(fit), amount(test)] == [8, 2]
    assert fit.spec["nodeSelector"] == {"pool": "h100"}
    assert test.spec["nodeSelector"] == {"pool": "a100"}
    assert fit.spec["schedulerName"] == "other"


def test_an_amount_that_is_none_is_refused_where_it_stands() -> None:
    spec = {"steps": [{"computeResources": {"limits": {GPU: "many"}}}]}
    error = refusal(yaml.safe_dump(written("Task", spec)))
    assert error is not None
    assert error.field == f"spec.steps[0].computeResources.limits.{GPU}"
