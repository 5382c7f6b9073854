"""Why a pod that is bound does not run: images, containers, volumes, the node's own work."""

import re
from typing import Any

from apps.clusters.domain.observed.objects import ContainerWait, EventSnapshot, PodSnapshot
from apps.pending.domain.causes import Cause
from apps.pending.domain.cluster_index import plain
from apps.pending.domain.diagnosis import Action, Diagnosis, Suggestion
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
    said = _worst(pod.waiting)
    if said is not None and said.reason in _IMAGE | _CRASH:
        return _of_container(pod, said, events)
    if told := next((e for e in events if e.reason in _EVENTS), None):
        detail = _EVENTS[told.reason]
        return Diagnosis(
            Cause.STARTING,
            detail,
            f"Bound to {pod.node}, but {detail}; it holds its GPUs meanwhile.",
            plain(told.message),
            suggestions=(_to_mend(pod, told, detail),),
        )
    doing = said.reason if said is not None and said.reason else "Bound"
    return Diagnosis(
        Cause.STARTING,
        _doing(said),
        f"Bound to {pod.node} and {doing}; it holds its GPUs meanwhile.",
        said.message if said is not None else pod.message,
        suggestions=(
            Suggestion(Action.WAIT, f"Wait: {pod.node} is starting it.", {"what": "start"}),
        ),
    )


def _to_mend(pod: PodSnapshot, told: EventSnapshot, detail: str) -> Suggestion:
    """Suggest what the event names: a driver or a volume, else its node."""
    text = plain(told.message)[:LONGEST]
    driver, volume = _DRIVER.search(text), _VOLUME.search(text)
    if driver is None and volume is None:
        change: dict[str, Any] = {"nodes": [pod.node], "reason": told.reason}
        return Suggestion(Action.LOOK_AT_NODE, f"Look at {pod.node}: {detail}.", change)
    change = {"node": pod.node, "what": detail}
    if volume is not None:
        change["volume"] = volume["name"]
    why = text.rpartition("desc = ")[2] or text
    if driver is not None:
        change["driver"] = driver["name"]
        doing = f"See that the driver {driver['name']} runs on {pod.node}"
    else:
        doing = f"Mend the volume {change['volume']}, or its driver on {pod.node}"
        why = why.removeprefix(volume[0] if volume else "").lstrip(" :")
    return Suggestion(Action.MEND_VOLUME, f"{doing}: {why.rstrip('.')}.", change)


def _of_container(pod: PodSnapshot, said: ContainerWait, events: list[EventSnapshot]) -> Diagnosis:
    image = said.reason in _IMAGE
    action = Action.MEND_IMAGE if image else Action.LOOK_AT_CONTAINER
    what = "its image cannot be had" if image else "it does not stay up"
    todo = "Mend the image of" if image else "Look at the log and settings of"
    kind = "init container" if said.init else "container"
    text = said.message or next((plain(e.message) for e in events if e.reason == "Failed"), "")
    return Diagnosis(
        Cause.STARTING,
        said.reason,
        f"Bound to {pod.node}; {kind} {said.container}: {what} ({said.reason}). "
        "It holds its GPUs meanwhile.",
        text,
        suggestions=(
            Suggestion(
                action,
                f"{todo} {kind} {said.container}: {said.reason}.",
                {"container": said.container, "reason": said.reason},
            ),
        ),
    )


def _worst(waits: tuple[ContainerWait, ...]) -> ContainerWait | None:
    """Return the wait that tells most: what is broken first, then an init container."""
    return min(
        waits,
        key=lambda w: (w.reason not in _IMAGE, w.reason not in _CRASH, not w.init),
        default=None,
    )


def _doing(said: ContainerWait | None) -> str:
    if said is None or not said.reason:
        return "bound"
    if said.init or said.reason == "PodInitializing":
        return "initializing"
    return said.reason
