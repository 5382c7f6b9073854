"""Why a pod that is bound does not run: images, containers, volumes, the node's own work."""

import re
from typing import Any

from apps.clusters.domain.observed.objects import ContainerWait, EventSnapshot, PodSnapshot
from apps.pending.domain.causes import Cause
from apps.pending.domain.cluster_index import plain
from apps.pending.domain.diagnosis import Action, Diagnosis, Suggestion, says
from apps.pending.domain.placement.refusals import LONGEST

_IMAGE = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull"),
        *("InvalidImageName", "RegistryUnavailable", "SignatureValidationFailed"),
    }
)
_CRASH = frozenset(
    {
        *("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"),
        *("RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError"),
    }
)
_DRIVER = re.compile(r"driver(?: name)? \"?(?P<name>[\w.-]+)\"? not found", re.ASCII)
_VOLUME = re.compile(
    r"(?:\b\w++\.\w++ failed for volume \"|unmounted volumes=\[)(?P<name>[\w.-]+)[^:]*", re.ASCII
)
_EVENTS = {
    "FailedMount": "volume not mounted",
    "FailedAttachVolume": "volume not attached",
    "FailedMapVolume": "volume not mounted",
    "FailedCreatePodSandBox": "no sandbox",
    "FailedPrepareDynamicResources": "devices not prepared",
    "NetworkNotReady": "no network",
}


def why_not_running(pod: PodSnapshot, events: list[EventSnapshot]) -> Diagnosis:
    """Return why a bound pod does not run; it holds its GPUs meanwhile.

    `events` are those about the pod, latest first.
    """
    wait = _worst(pod.waiting)
    if wait is not None and wait.reason in _IMAGE | _CRASH:
        return _of_container(pod, wait, events)
    if event := next((e for e in events if e.reason in _EVENTS), None):
        detail = _EVENTS[event.reason]
        return Diagnosis(
            Cause.STARTING,
            detail,
            plain(event.message),
            sentences=(says("bound_but", node=pod.node, problem=detail),),
            suggestions=(_fix_of(pod, event, detail),),
        )
    state = wait.reason if wait is not None and wait.reason else "Bound"
    step = Suggestion(Action.WAIT, {"what": "start"}, says("wait_for_start", node=pod.node))
    return Diagnosis(
        Cause.STARTING,
        _state(wait),
        wait.message if wait is not None else pod.message,
        sentences=(says("bound_and", node=pod.node, state=state),),
        suggestions=(step,),
    )


def _fix_of(pod: PodSnapshot, event: EventSnapshot, detail: str) -> Suggestion:
    """Suggest what the event names: a driver or a volume, else its node."""
    text = plain(event.message)[:LONGEST]
    driver, volume = _DRIVER.search(text), _VOLUME.search(text)
    if driver is None and volume is None:
        look: dict[str, Any] = {"nodes": [pod.node], "reason": event.reason}
        return Suggestion(Action.LOOK_AT_NODE, look, says("look_at_problem", problem=detail))
    change = {"node": pod.node, "what": detail}
    if volume is not None:
        change["volume"] = volume["name"]
    why = text.rpartition("desc = ")[2] or text
    if driver is not None:
        change["driver"] = driver["name"]
    else:
        why = why.removeprefix(volume[0] if volume else "").lstrip(" :")
    name = "mend_volume" if driver is None else "mend_driver"
    return Suggestion(Action.MEND_VOLUME, change, says(name, why=why.rstrip(".")))


def _of_container(pod: PodSnapshot, wait: ContainerWait, events: list[EventSnapshot]) -> Diagnosis:
    image = wait.reason in _IMAGE
    message = wait.message or next((plain(e.message) for e in events if e.reason == "Failed"), "")
    action = Action.MEND_IMAGE if image else Action.LOOK_AT_CONTAINER
    change = {"container": wait.container, "reason": wait.reason}
    down = says("no_image" if image else "container_down", node=pod.node, init=wait.init, **change)
    step = Suggestion(action, change, says(action.value, init=wait.init))
    return Diagnosis(Cause.STARTING, wait.reason, message, sentences=(down,), suggestions=(step,))


def _worst(waits: tuple[ContainerWait, ...]) -> ContainerWait | None:
    """Return the wait that tells most: what is broken first, then an init container."""
    return min(
        waits,
        key=lambda w: (w.reason not in _IMAGE, w.reason not in _CRASH, not w.init),
        default=None,
    )


def _state(wait: ContainerWait | None) -> str:
    if wait is None or not wait.reason:
        return "bound"
    if wait.init or wait.reason == "PodInitializing":
        return "initializing"
    return wait.reason
