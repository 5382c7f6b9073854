"""Which pods tasks and pipelines of Tekton make: one for each task that runs."""

from collections.abc import Iterator
from math import prod

from apps.accounts.domain.structs import replace
from apps.clusters.domain.kube_json import JsonObject, items, text
from apps.planning.domain.manifests.pod_specs import check_placement, check_resources, step_spec
from apps.planning.domain.manifests.submissions import MOST_PODS, PodTemplate, Reader

_LONGEST_NAME = 80
_OF_ANOTHER = "{} runs a task of another object: its pods are not counted."
_REPEATED = "How often {} runs is known only when it runs: it is counted once."


def task_pods(item: Reader) -> Iterator[PodTemplate]:
    """Yield the pod of a Task. Raises ManifestError, as the others here do."""
    yield from _pods(item.required("spec"), [], "")


def task_run_pods(item: Reader) -> Iterator[PodTemplate]:
    """Yield the pod of a TaskRun; none where it names a Task, which the manifest need not have."""
    spec = item.required("spec")
    if (task := spec.maybe("taskSpec")) is not None:
        yield from _pods(task, [spec], "")


def pipeline_pods(item: Reader) -> Iterator[PodTemplate]:
    """Yield the pods of the tasks of a Pipeline."""
    yield from _task_pods(item.required("spec"), [])


def pipeline_run_pods(item: Reader) -> Iterator[PodTemplate]:
    """Yield the pods of the tasks of a PipelineRun; none where it names a Pipeline."""
    spec = item.required("spec")
    if (pipeline := spec.maybe("pipelineSpec")) is not None:
        whole = [one for one in (spec.maybe("taskRunTemplate"), spec) if one is not None]
        yield from _task_pods(pipeline, whole, spec.objects("taskRunSpecs"))


def _task_pods(
    spec: Reader, runs: list[Reader], own_runs: list[Reader] | None = None
) -> Iterator[PodTemplate]:
    tasks = [*spec.objects("tasks"), *spec.objects("finally")]
    elsewhere = tuple(
        _OF_ANOTHER.format(_shown(task.text("name")))
        for task in tasks
        if task.maybe("taskSpec") is None
    )
    for task in tasks:
        own, name = task.maybe("taskSpec"), task.text("name")
        if own is None:
            continue
        of_task = [one for one in own_runs or () if one.text("pipelineTaskName") == name]
        times = _times(task)
        unknown = () if times is not None else (_REPEATED.format(_shown(name)),)
        for pod in _pods(own, [*of_task, *runs], name):
            yield replace(pod, count=1 if times is None else times, notes=(*elsewhere, *unknown))


def _shown(name: str) -> str:
    return name[:_LONGEST_NAME] or "A task"


def _times(task: Reader) -> int | None:
    """Return how often a task of a matrix runs; None where that is known only when it runs."""
    matrix = task.maybe("matrix")
    if matrix is None:
        return 1
    values = [one.get("value") for one in items(matrix.body.get("params"))]
    if not values:
        return max(1, len(items(matrix.body.get("include"))))
    if not all(isinstance(one, list) for one in values):
        return None
    return min(prod(len(one) for one in values if isinstance(one, list)), MOST_PODS)


def _pods(task: Reader, runs: list[Reader], role: str) -> Iterator[PodTemplate]:
    """Yield the pod of a task, as its runs override it; the nearest run comes first."""
    places = [place for one in runs if (place := one.maybe("podTemplate")) is not None]
    for place in places:
        check_placement(place)
    usual = task.maybe("stepTemplate")
    if usual is not None:
        _resources(usual)
    steps: list[JsonObject] = []
    for step in task.objects("steps"):
        resources = _overridden(runs, "stepSpecs", step.text("name")) or _resources(step)
        steps.append({"resources": resources or (_resources(usual) if usual else {})})
    # What a run requests for the task as a whole takes the place of what its steps request.
    whole = next((found for one in runs if (found := _resources(one))), None)
    if steps and whole:
        steps = [{"resources": whole}]
    beside: list[JsonObject] = [
        {"resources": _overridden(runs, "sidecarSpecs", one.text("name")) or _resources(one)}
        for one in task.objects("sidecars")
    ]
    if steps or beside:
        pod = step_spec([*steps, *beside], *(place.body for place in places))
        yield PodTemplate(pod, role=role)


def _resources(holder: Reader) -> JsonObject:
    """Return what a step requests; `resources` is how older versions call it."""
    check_resources(holder)
    found = holder.maybe("computeResources")
    if found is not None:
        check_resources(holder, "computeResources")
    found = found or holder.maybe("resources")
    return {} if found is None else found.body


def _overridden(runs: list[Reader], key: str, name: str) -> JsonObject:
    """Return what a run requests for a step instead; empty where none does."""
    for run in runs:
        for one in run.objects(key):
            if name and text(one.body.get("name")) == name and (found := _resources(one)):
                return found
    return {}
