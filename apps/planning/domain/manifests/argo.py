"""Which pods a workflow of Argo makes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from apps.clusters.domain.kube_json import JsonObject, items, mapping, text
from apps.planning.domain.manifests.documents import ManifestError, read_documents
from apps.planning.domain.manifests.pod_specs import (
    check_amounts,
    check_placement,
    check_resources,
    step_spec,
)
from apps.planning.domain.manifests.submissions import MOST_PODS, PodTemplate, Reader

_DEEPEST = 16
"""How many templates may call one another for their items to be counted."""
_PARAMETER = "{{"


def workflow_pods(spec: Reader) -> Iterator[PodTemplate]:
    """Yield the pods of each template; `count` are those that run at the same time.

    Items that only a parameter tells count as one. Raises ManifestError.
    """
    check_placement(spec)
    templates = spec.objects("templates")
    times = _times(templates)
    most = spec.count("parallelism", default=MOST_PODS) or MOST_PODS
    whole = {**spec.body, "priorityClassName": spec.text("podPriorityClassName")}
    for template in templates:
        containers = list(_containers(template))
        # One without containers puts others together: steps, dag, suspend.
        if not containers:
            continue
        check_placement(template)
        pod = step_spec(containers, template.body, whole)
        if first := _checked(template, "initContainers"):
            pod = {**pod, "initContainers": first}
        # Argo merges the patch of the template over that of the workflow.
        for holder in (spec, template):
            pod = _patched(pod, holder)
        metadata = template.maybe("metadata")
        name = template.text("name")
        yield PodTemplate(
            pod,
            {} if metadata is None else metadata.body,
            count=min(times.get(name, 1), most),
            role=name,
        )


def _containers(template: Reader) -> Iterator[JsonObject]:
    for key in ("container", "script"):
        if (one := template.maybe(key)) is not None:
            check_resources(one)
            # By this name Argo calls it, and patches do.
            yield {**one.body, "name": "main"}
    if template.maybe("containerSet") is not None:
        yield from _checked(template, "containerSet", "containers")
    yield from _checked(template, "sidecars")


def _checked(template: Reader, *path: str) -> list[JsonObject]:
    found = template.objects(*path)
    for one in found:
        check_resources(one)
    return [one.body for one in found]


# ---------------------------------------------------------------- how many at the same time


def _times(templates: Sequence[Reader]) -> Mapping[str, int]:
    """Return by template how many of it run at the same time."""
    calls = [
        (template.text("name"), named, count)
        for template in templates
        for group in _groups(template)
        for named, count in _called(group).items()
    ]
    times: Counter[str] = Counter()
    # Templates may call themselves, one after the other: deeper calls are not followed.
    for _ in range(_DEEPEST):
        before, times = times, Counter()
        for caller, named, count in calls:
            own = min(max(1, before[caller]) * count, MOST_PODS)
            times[named] = max(times[named], own)
        if times == before:
            break
    return times


def _groups(template: Reader) -> Iterator[list[Reader]]:
    """Yield the steps or tasks of a template that run at the same time."""
    steps = template.body.get("steps")
    if isinstance(steps, list):
        for at, group in enumerate(steps):
            if not isinstance(group, list):
                raise template.error("a list is expected", "steps", at)
            yield template.at("steps", at).objects()
    elif steps is not None:
        raise template.error("a list is expected", "steps")
    if template.maybe("dag") is not None:
        # Which tasks wait for which is not followed: as many as there could be at once.
        yield template.objects("dag", "tasks")


def _called(group: Sequence[Reader]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in group:
        if named := one.text("template"):
            found[named] += _items(one)
    return found


def _items(step: Reader) -> int:
    """Return how often a step runs at the same time."""
    given = step.body.get("withItems")
    if isinstance(given, list):
        return len(given)
    if given is not None and not isinstance(given, str):
        raise step.error("a list is expected", "withItems")
    if param := (given or step.text("withParam")):
        return _listed(param)
    if step.maybe("withSequence") is None:
        return 1
    sequence = mapping(step.body, "withSequence")
    count, start, end = (_number(sequence.get(key)) for key in ("count", "start", "end"))
    if count is not None:
        return count
    return 1 if end is None else abs(end - (start or 0)) + 1


def _listed(param: str) -> int:
    """Return how many items a list in JSON has; 1 where it is known only when it runs."""
    try:
        found = json.loads(param)
    except (ValueError, RecursionError):
        return 1
    return len(found) if isinstance(found, list) else 1


def _number(value: object) -> int | None:
    digits = str(value)[:8] if isinstance(value, int | str) else ""
    return min(int(digits), MOST_PODS) if digits.isascii() and digits.isdigit() else None


# ---------------------------------------------------------------- patches


def _patched(pod: JsonObject, holder: Reader) -> JsonObject:
    """Return a pod spec with the strategic merge patch of a workflow or template."""
    patch = holder.text("podSpecPatch")
    if not patch.strip():
        return pod
    if _PARAMETER in patch:
        raise holder.error(
            "has a parameter, whose value is known only when it runs", "podSpecPatch"
        )
    try:
        read = Reader(read_documents(patch)[0])
        check_placement(read)
        for key in ("containers", "initContainers"):
            for one in read.objects(key):
                check_amounts(one)
    except ManifestError as error:
        path = ("podSpecPatch", *([error.field] if error.field else []))
        raise holder.error(error.problem, *path) from error
    return _merged(pod, read.body)


def _merged(pod: JsonObject, patch: JsonObject) -> JsonObject:
    found = {**pod, **patch}
    found["nodeSelector"] = {**mapping(pod, "nodeSelector"), **mapping(patch, "nodeSelector")}
    found["tolerations"] = [*items(pod.get("tolerations")), *items(patch.get("tolerations"))]
    for key in ("containers", "initContainers"):
        named = {text(one.get("name")): one for one in items(pod.get(key))}
        for one in items(patch.get(key)):
            name = text(one.get("name"))
            named[name] = _merged_container(named.get(name, {}), one)
        found[key] = list(named.values())
    return found


def _merged_container(container: JsonObject, patch: JsonObject) -> JsonObject:
    resources = {
        kind: {
            **mapping(container, "resources", kind),
            **mapping(patch, "resources", kind),
        }
        for kind in ("limits", "requests")
    }
    return {**container, **patch, "resources": resources}
