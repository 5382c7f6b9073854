"""Which pods a workflow of Argo makes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from apps.clusters.domain.kube_json import JsonObject, items, mapping, text
from apps.planning.domain.manifests.argo_parameters import MARK, ArgoParameters
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
_LONGEST_NAME = 80
_LONGEST_NUMBER = 200
_OF_ANOTHER = "{} runs a template of another object: its pods are not counted."
_CREATES = "{} creates another object: its pods are not counted."
_PATCHED = "The patch of {} has a parameter that is known only when it runs: it is not counted."
_REPEATED = "How often {} runs at once is known only when it runs: it is counted once."


class _Call(Struct, frozen=True):
    """A step or task: the template that it is in, that which it runs, and how often at once.

    Those of one `group` of a template run at the same time. `count` None: known only when it runs.
    """

    caller: str
    group: int
    named: str
    step: Reader
    count: int | None


def workflow_pods(spec: Reader) -> Iterator[PodTemplate]:
    """Yield the pods of each template that runs; `count` are those that run at the same time.

    What is known only when it runs is in their notes. Raises ManifestError.
    """
    check_placement(spec)
    templates = dict(_templates(spec))
    steps = [
        (name, at, key, one)
        for name, template in templates.items()
        for at, group in enumerate(_groups(template))
        for key, one in group
    ]
    parameters = ArgoParameters(
        spec.body,
        {name: template.body for name, template in templates.items()},
        [(key, one.body) for _, _, key, one in steps],
    )
    calls = [
        _Call(name, at, key, one, _items(one, name, parameters)) for name, at, key, one in steps
    ]
    runs = _reached(spec, templates, calls)
    left = [one for one in calls if one.caller in runs]
    others = list(_elsewhere([templates[name] for name in templates if name in runs], left))
    times, unknown = _times(templates, left), _repeated(left)
    most = spec.count("parallelism", default=MOST_PODS) or MOST_PODS
    for name, template in templates.items():
        pod = _pod(spec, template) if name in runs else None
        # One without containers puts others together: steps, dag, suspend.
        if pod is None:
            continue
        notes = [*others, *([_REPEATED.format(_shown(name))] if name in unknown else ())]
        # Argo merges the patch of the template over that of the workflow.
        for holder, of in ((spec, "the workflow"), (template, _shown(name))):
            patch = parameters.filled(holder.text("podSpecPatch"), name)
            if MARK in patch:
                notes.append(_PATCHED.format(of))
            elif patch.strip():
                pod = _patched(pod, patch, holder)
        metadata = template.maybe("metadata")
        yield PodTemplate(
            pod,
            {} if metadata is None else metadata.body,
            count=min(times.get(name, 1), most),
            role=name,
            notes=tuple(notes),
        )


def _shown(name: str) -> str:
    return name[:_LONGEST_NAME] or "A template"


def _templates(spec: Reader) -> Iterator[tuple[str, Reader]]:
    """Yield the templates by name, and those that a step has within itself."""
    for template in spec.objects("templates"):
        yield template.text("name"), template
        for group in _groups(template):
            for key, one in group:
                if (inline := one.maybe("inline")) is not None:
                    yield key, inline


def _pod(spec: Reader, template: Reader) -> JsonObject | None:
    """Return the pod of a template, without patches; None for one that has no containers."""
    defaults = spec.maybe("templateDefaults")
    usual: JsonObject = {} if defaults is None else defaults.body
    if defaults is not None:
        check_placement(defaults)
    containers = list(_containers(template, defaults))
    if not containers:
        return None
    check_placement(template)
    whole = {**spec.body, "priorityClassName": spec.text("podPriorityClassName")}
    pod = step_spec(containers, template.body, usual, whole)
    first = _checked(template, "initContainers")
    return {**pod, "initContainers": first} if first else pod


def _containers(template: Reader, defaults: Reader | None) -> Iterator[JsonObject]:
    for key in ("container", "script"):
        if (one := template.maybe(key)) is not None:
            check_resources(one)
            usual = None if defaults is None else defaults.maybe(key)
            if usual is not None:
                check_resources(usual)
            # By this name Argo calls it, and patches do.
            merged = _merged_container({} if usual is None else usual.body, one.body)
            yield {**merged, "name": "main"}
    if template.maybe("containerSet") is not None:
        yield from _checked(template, "containerSet", "containers")
    yield from _checked(template, "sidecars")


def _checked(template: Reader, *path: str) -> list[JsonObject]:
    found = template.objects(*path)
    for one in found:
        check_resources(one)
    return [one.body for one in found]


# ---------------------------------------------------------------- what runs


def _groups(template: Reader) -> Iterator[list[tuple[str, Reader]]]:
    """Yield the steps or tasks of a template that run at the same time, with what each runs."""
    steps = template.body.get("steps")
    if isinstance(steps, list):
        for at, group in enumerate(steps):
            if not isinstance(group, list):
                raise template.error("a list is expected", "steps", at)
            yield _named(template, template.at("steps", at).objects(), f"{at + 1}.")
    elif steps is not None:
        raise template.error("a list is expected", "steps")
    if template.maybe("dag") is not None:
        # Which tasks wait for which is not followed: as many as there could be at once.
        yield _named(template, template.objects("dag", "tasks"), "")


def _named(template: Reader, group: Sequence[Reader], before: str) -> list[tuple[str, Reader]]:
    """Return each with the name of its template; of one within itself a name that no other has."""
    return [
        (
            f"{template.text('name')} {before}{one.text('name') or at}"
            if one.maybe("inline") is not None
            else one.text("template"),
            one,
        )
        for at, one in enumerate(group, 1)
    ]


def _reached(
    spec: Reader, templates: Mapping[str, Reader], calls: Sequence[_Call]
) -> frozenset[str]:
    """Return the templates that run; all of them where it is not told with which it begins."""
    first = spec.text("entrypoint")
    if first not in templates:
        return frozenset(templates)
    hooks = [spec, *templates.values(), *(one.step for one in calls)]
    left = [first, spec.text("onExit")]
    left += [hook.text("template") for one in hooks for _, hook in one.items("hooks")]
    left += [one.text("onExit") for one in hooks]
    found: set[str] = set()
    while left:
        name = left.pop()
        if name in templates and name not in found:
            found.add(name)
            left += [one.named for one in calls if one.caller == name]
    return frozenset(found)


def _elsewhere(templates: Sequence[Reader], calls: Sequence[_Call]) -> Iterator[str]:
    """Yield which pods are not counted, since another object has them."""
    for template in templates:
        if template.maybe("resource") is not None:
            yield _CREATES.format(_shown(template.text("name")))
    for one in calls:
        if one.step.maybe("templateRef") is not None:
            yield _OF_ANOTHER.format(_shown(one.step.text("name")))


# ---------------------------------------------------------------- how many at the same time


def _times(templates: Mapping[str, Reader], calls: Sequence[_Call]) -> Mapping[str, int]:
    """Return by template how many of it run at the same time."""
    most = {name: one.count("parallelism", default=0) for name, one in templates.items()}
    together: Counter[tuple[str, int, str]] = Counter()
    for one in calls:
        together[one.caller, one.group, one.named] += 1 if one.count is None else one.count
    times: Counter[str] = Counter()
    # Templates may call themselves, one after the other: deeper calls are not followed.
    for _ in range(_DEEPEST):
        before, times = times, Counter()
        for (caller, _, named), count in together.items():
            at_once = min(count, most[caller] or MOST_PODS)
            times[named] = max(times[named], min(max(1, before[caller]) * at_once, MOST_PODS))
        if times == before:
            break
    return times


def _repeated(calls: Sequence[_Call]) -> frozenset[str]:
    """Return the templates that run a number of times which is known only when they run."""
    found = {one.named for one in calls if one.count is None}
    left = list(found)
    while left:
        name = left.pop()
        more = {one.named for one in calls if one.caller == name} - found
        found |= more
        left += more
    return frozenset(found)


def _items(step: Reader, template: str, parameters: ArgoParameters) -> int | None:
    """Return how often a step runs at the same time; None where it is known only when it runs."""
    given = step.body.get("withItems")
    if isinstance(given, list):
        return len(given)
    if given is not None and not isinstance(given, str):
        raise step.error("a list is expected", "withItems")
    if param := (given or step.text("withParam")):
        return _listed(parameters.filled(param, template))
    if step.maybe("withSequence") is None:
        return 1
    sequence = mapping(step.body, "withSequence")
    count, start, end = (
        _number(parameters.filled(str(sequence.get(key, ""))[:_LONGEST_NUMBER], template))
        for key in ("count", "start", "end")
    )
    if count is not None:
        return count
    # Without a start, it is 0; one that is known only later is none.
    if end is None or (start is None and "start" in sequence):
        return None
    return abs(end - (start or 0)) + 1


def _listed(param: str) -> int | None:
    """Return how many items a list in JSON has; None where it is known only when it runs."""
    try:
        found = json.loads(param)
    except (ValueError, RecursionError):
        return None
    return len(found) if isinstance(found, list) else None


def _number(digits: str) -> int | None:
    return min(int(digits[:8]), MOST_PODS) if digits.isascii() and digits.isdigit() else None


# ---------------------------------------------------------------- patches


def _patched(pod: JsonObject, patch: str, holder: Reader) -> JsonObject:
    """Return a pod spec with the strategic merge patch of a workflow or template."""
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
