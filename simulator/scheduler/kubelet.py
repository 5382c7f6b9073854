"""What kubelets do with bound pods: refuse, start, let them run and end them.

A container runs as long as its command sleeps; one that is told to `crash` does. An image with the
tag `missing` cannot be pulled. A node with the annotation `lab.example/refuses` turns pods away
with that reason, and a pod with `lab.example/mount-seconds` needs so long for its volume.
"""

from simulator.scheduler import claims
from simulator.scheduler.amounts import is_bound, is_over, requests_of
from simulator.scheduler.conditions import set_condition
from simulator.scheduler.events import counted
from simulator.scheduler.placing import due_to_go
from simulator.scheduler.store import Object, Store, rfc3339, seconds_of

START_SECONDS = 3
BACK_OFF_SECONDS = 20
REFUSES = "lab.example/refuses"
MOUNT = "lab.example/mount-seconds"
MISSING_TAG = ":missing"
CRASH = "crash"
_LINGER_SECONDS = 300
_TEXTS = {
    "TopologyAffinityError": "Resources cannot be allocated with Topology locality",
    "UnexpectedAdmissionError": (
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
        "nvidia.com/gpu, which is unexpected"
    ),
}
_READINESS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class Kubelets:
    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> None:
        """Do what is due by now for every pod on a node."""
        for pod in self._store.all("pods"):
            if is_bound(pod) and pod["spec"]["nodeName"]:
                self._one(pod)

    def next_time(self) -> int | None:
        """Return when there is something to do again."""
        times = [_due(pod) for pod in self._store.all("pods") if is_bound(pod)]
        return min((at for at in times if at is not None and at > self._store.now), default=None)

    def _one(self, pod: Object) -> None:
        at = due_to_go(pod)
        if at is not None and at <= self._store.now:
            claims.release(self._store, pod)
            self._store.remove("pods", pod)
        elif "containerStatuses" not in pod["status"] and not is_over(pod):
            if not self._refused(pod):
                self._creating(pod)
        elif not is_over(pod):
            self._on(pod)
        elif at is None and _due(pod) == self._store.now and _of_nobody(pod):
            self._store.remove("pods", pod)

    def _refused(self, pod: Object) -> bool:
        node = self._store.get("nodes", "", pod["spec"]["nodeName"]) or {"metadata": {}}
        reason = node["metadata"].get("annotations", {}).get(REFUSES, "")
        if not reason or not any("/" in name for name in requests_of(pod["spec"])):
            return False

        def edit(item: Object) -> None:
            text = f"Pod was rejected: {_TEXTS[reason]}"
            item["status"] |= {"phase": "Failed", "reason": reason, "message": text}

        rejected = self._store.change("pods", pod, edit)
        counted(self._store, "pods", rejected, reason, _TEXTS[reason], by="kubelet")
        return True

    def _creating(self, pod: Object) -> None:
        def edit(item: Object) -> None:
            _unready(item, self._store.now)
            item["status"]["containerStatuses"] = [_status(item, "ContainerCreating")]

        made = self._store.change("pods", pod, edit)
        if _mount_seconds(pod):
            text = (
                'MountVolume.SetUp failed for volume "data" : rpc error: code = DeadlineExceeded '
                "desc = context deadline exceeded"
            )
            counted(self._store, "pods", made, "FailedMount", text, by="kubelet")

    def _on(self, pod: Object) -> None:
        """Take the one container a step further, when it is time."""
        due = _due(pod)
        if due is None or due > self._store.now or due_to_go(pod):
            return
        state = pod["status"]["containerStatuses"][0]["state"]
        if "running" in state:
            self._end(pod, state["running"]["startedAt"])
        elif pod["spec"]["containers"][0]["image"].endswith(MISSING_TAG):
            self._back_off_pulling(pod)
        elif CRASH in _command(pod):
            self._back_off_crashing(pod)
        else:
            self._store.change("pods", pod, lambda item: _running(item, self._store.now))

    def _end(self, pod: Object, started: str) -> None:
        def edit(item: Object) -> None:
            item["status"]["phase"] = "Succeeded"
            for kind in _READINESS:
                done = kind == "Initialized"
                set_condition(item, kind, true=done, at=self._store.now, reason="PodCompleted")
            status = _status(item, "")
            status["state"] = {
                "terminated": {
                    "exitCode": 0,
                    "reason": "Completed",
                    "startedAt": started,
                    "finishedAt": rfc3339(self._store.now),
                }
            }
            item["status"]["containerStatuses"] = [status]

        claims.release(self._store, self._store.change("pods", pod, edit))

    def _back_off_pulling(self, pod: Object) -> None:
        image = pod["spec"]["containers"][0]["image"]
        cause = (
            f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
            f"{image}: not found"
        )
        text = f'Back-off pulling image "{image}": ErrImagePull: {cause}'

        def edit(item: Object) -> None:
            item["status"]["containerStatuses"] = [_status(item, "ImagePullBackOff", text)]

        said = self._store.change("pods", pod, edit)
        counted(self._store, "pods", said, "Failed", f'Failed to pull image "{image}": {cause}',
                by="kubelet")  # fmt: skip
        counted(
            self._store, "pods", said, "BackOff", f'Back-off pulling image "{image}"',
            by="kubelet", warning=False,
        )  # fmt: skip

    def _back_off_crashing(self, pod: Object) -> None:
        meta = pod["metadata"]
        text = (
            "back-off 5m0s restarting failed container=main "
            f"pod={meta['name']}_{meta['namespace']}({meta['uid']})"
        )

        def edit(item: Object) -> None:
            item["status"]["phase"] = "Running"
            status = _status(item, "CrashLoopBackOff", text)
            status["restartCount"] = 4
            status["lastState"] = {
                "terminated": {
                    "exitCode": 1,
                    "reason": "Error",
                    "startedAt": rfc3339(self._store.now - 2),
                    "finishedAt": rfc3339(self._store.now),
                }
            }
            item["status"]["containerStatuses"] = [status]

        said = self._store.change("pods", pod, edit)
        short = f"Back-off restarting failed container main in pod {meta['name']}"
        counted(self._store, "pods", said, "BackOff", short, by="kubelet")


def _due(pod: Object) -> int | None:
    """Return when a pod has something to happen to it next."""
    gone = due_to_go(pod)
    if gone is not None:
        return gone
    if is_over(pod):
        return _ended(pod) + _LINGER_SECONDS if _of_nobody(pod) else None
    statuses = pod["status"].get("containerStatuses")
    bound = seconds_of(pod["status"]["startTime"])
    if not statuses:
        return bound
    state = statuses[0]["state"]
    if "running" in state:
        lasts = _sleeps(pod)
        return None if lasts is None else seconds_of(state["running"]["startedAt"]) + lasts
    if state["waiting"]["reason"] != "ContainerCreating":
        return None
    delay = _mount_seconds(pod)
    spec = pod["spec"]["containers"][0]
    if spec["image"].endswith(MISSING_TAG) or CRASH in _command(pod):
        delay = BACK_OFF_SECONDS
    return bound + (delay or START_SECONDS)


def _of_nobody(pod: Object) -> bool:
    return not pod["metadata"].get("ownerReferences")


def _ended(pod: Object) -> int:
    for status in pod["status"].get("containerStatuses", []):
        if "terminated" in status["state"]:
            return seconds_of(status["state"]["terminated"]["finishedAt"])
    return seconds_of(pod["status"]["startTime"])


def _command(pod: Object) -> list[str]:
    command: list[str] = pod["spec"]["containers"][0].get("command", [])
    return command


def _sleeps(pod: Object) -> int | None:
    command = _command(pod)
    return int(command[1]) if command[:1] == ["sleep"] and command[1].isdecimal() else None


def _mount_seconds(pod: Object) -> int:
    return int(pod["metadata"].get("annotations", {}).get(MOUNT, "0"))


def _unready(item: Object, at: int) -> None:
    text = "containers with unready status: [main]"
    for kind in _READINESS:
        if kind == "Initialized":
            set_condition(item, kind, true=True, at=at)
        else:
            reason = "ContainersNotReady" if kind != _READINESS[0] else ""
            set_condition(item, kind, true=False, at=at, reason=reason, message=reason and text)


def _running(item: Object, at: int) -> None:
    item["status"]["phase"] = "Running"
    for kind in _READINESS:
        set_condition(item, kind, true=True, at=at)
    status = _status(item, "")
    status |= {"state": {"running": {"startedAt": rfc3339(at)}}, "ready": True, "started": True}
    item["status"]["containerStatuses"] = [status]


def _status(item: Object, reason: str, message: str = "") -> Object:
    waiting = {"reason": reason, **({"message": message} if message else {})}
    container = item["spec"]["containers"][0]
    return {
        "name": container["name"],
        "state": {"waiting": waiting},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": container["image"],
        "imageID": "",
        "started": False,
    }
