"""Pods as a real API server writes them, as of an instant of the scenario."""

from simulator import identity
from simulator.fleet import Claim, Controller, Pod
from simulator.kubernetes.fields.specs import CONTAINER, IMAGE, pod_ip, pod_requests
from simulator.kubernetes.objects import Object, owner_reference, rfc3339, version
from simulator.people import person_marks
from simulator.scheduler.admission import TOLERATIONS
from simulator.scheduler.kueue import MANAGED, POD_GROUP, POD_GROUP_SIZE, QUEUE
from simulator.scheduler.placing import GATED

_CLAIM = "gpu"
_GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
CHECKPOINT = "gpuportal.io/last-checkpoint"
"""The annotation by which work tells the portal when it saved its state."""
EVICTED = "Evicted"
_DISRUPTIONS = {
    EVICTED: "TerminationByKubelet",
    "PreemptionByScheduler": "PreemptionByScheduler",
    "DeletionByTaintManager": "DeletionByTaintManager",
}
"""What ends pods from without, and the reason of the condition by which they say so."""
_EXIT_CODES = {"": 0, "Error": 1}
_KILLED = 137
_TERMINATION = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def pod_object(pod: Pod, at: int) -> Object:
    """Return a pod as of `at`, which must lie between its creation and its deletion."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": _pod_metadata(pod, at),
        "spec": _pod_spec(pod, at),
        "status": _pod_status(pod, at),
    }


def _pod_metadata(pod: Pod, at: int) -> Object:
    owner = pod.owner
    metadata: Object = {
        "name": pod.name,
        "generateName": f"{owner.name}-",
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": version(pod.changed(at)),
        "generation": 1,
        "creationTimestamp": rfc3339(pod.created),
        "labels": {"app": owner.name, **_owner_labels(owner)},
        "ownerReferences": [owner_reference(owner)],
    }
    if pod.admission is not None and pod.admission.queue:
        metadata["labels"] |= {
            QUEUE: pod.admission.local,
            MANAGED: "true",
            POD_GROUP: workload_name(pod),
        }
        metadata["annotations"] = {POD_GROUP_SIZE: "1"}
    saved = pod.checkpoint(at)
    if saved is not None and pod.annotating:
        metadata["annotations"] = {**metadata.get("annotations", {}), CHECKPOINT: rfc3339(saved)}
    person = person_marks(pod)
    metadata["labels"] |= person.labels
    marks = {**person.annotations, **pod.annotations}
    if marks:
        metadata["annotations"] = {**metadata.get("annotations", {}), **marks}
    if owner.kind == "StatefulSet":
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = pod.name
    if owner.kind == "Job":
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    elif pod.finished <= at:
        # Scaled down: the kubelet has made it terminal, a finalizer still holds the object.
        metadata["deletionTimestamp"] = rfc3339(pod.finished)
        metadata["deletionGracePeriodSeconds"] = 30
        metadata["finalizers"] = ["lab.example/clean-up"]
    return metadata


def _owner_labels(owner: Controller) -> dict[str, str]:
    if owner.kind == "ReplicaSet":
        return {"pod-template-hash": owner.name.rsplit("-", 1)[-1]}
    if owner.kind == "Job":
        return {
            "batch.kubernetes.io/controller-uid": owner.uid,
            "batch.kubernetes.io/job-name": owner.name,
            "controller-uid": owner.uid,
            "job-name": owner.name,
        }
    return {}


def _pod_spec(pod: Pod, at: int) -> Object:
    spec = requested_spec(pod)
    spec |= {
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    selector = dict(pod.node_selector)
    if pod.admission is not None and at < pod.admission.at:
        spec["schedulingGates"] = [{"name": pod.admission.gate}]
    elif pod.admission is not None:
        selector |= pod.admission.adds
    if selector:
        spec["nodeSelector"] = selector
    if pod.bound <= at:
        spec["nodeName"] = pod.node
    return spec


def workload_name(pod: Pod) -> str:
    """Return the name of the Workload of a pod that goes through a queue, a group of one."""
    return f"{pod.owner.name}-{identity.suffix(8, pod.uid, 'workload')}"


def requested_spec(pod: Pod) -> Object:
    """Return the spec of a pod as its user wrote it, as far as scheduling goes."""
    of_job = "OnFailure" if pod.crashes else "Never"
    spec = _template_spec(pod, of_job if pod.owner.kind == "Job" else "Always")
    spec["tolerations"] = [
        *TOLERATIONS,
        *([_GPU_TOLERATION] if pod.tolerates_gpu else []),
        *({"key": k, "value": value, "effect": effect} for k, value, effect in pod.tolerates),
    ]
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
    return spec


def _template_spec(pod: Pod, restart_policy: str) -> Object:
    quantities = {name: quantity for name, (_, _, quantity) in pod_requests(pod).items()}
    resources: Object = {"requests": quantities}
    if pod.claim is not None:
        resources["claims"] = [{"name": _CLAIM}]
    else:
        resources = {"limits": {pod.resource: quantities[pod.resource]}, **resources}
    container = {
        "name": CONTAINER,
        "image": IMAGE,
        "resources": resources,
        **_TERMINATION,
        "imagePullPolicy": "IfNotPresent",
    }
    spec: Object = {
        "containers": [container],
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    return spec if pod.claim is None else {**spec, "resourceClaims": [_claim_reference(pod.claim)]}


def _claim_reference(claim: Claim) -> Object:
    if claim.template:
        return {"name": _CLAIM, "resourceClaimTemplateName": claim.template}
    return {"name": _CLAIM, "resourceClaimName": claim.name}


def _claim_statuses(pod: Pod) -> Object:
    """Return which claims a pod's references became: those of a template have made-up names."""
    if pod.claim is None:
        return {}
    return {"resourceClaimStatuses": [{"name": _CLAIM, "resourceClaimName": pod.claim.name}]}


def _pod_status(pod: Pod, at: int) -> Object:
    if pod.bound > at:
        return {
            "phase": "Pending",
            "conditions": [_unscheduled(pod, at)],
            "qosClass": "Burstable",
            **_claim_statuses(pod),
        }
    status: Object = {
        "phase": _phase(pod, at),
        "conditions": _conditions(pod, at),
        "hostIP": pod.host_ip,
        "hostIPs": [{"ip": pod.host_ip}],
        "startTime": rfc3339(pod.bound),
        "containerStatuses": [_container_status(pod, at)],
        "qosClass": "Burstable",
        **_claim_statuses(pod),
    }
    if pod.finished <= at and pod.end_reason in _DISRUPTIONS:
        status["conditions"].append(_disrupted(pod))
    if pod.finished <= at and pod.end_reason == EVICTED:
        status["reason"] = EVICTED
    if pod.started <= at:
        status["podIP"] = pod_ip(pod)
        status["podIPs"] = [{"ip": pod_ip(pod)}]
    return status


def _unscheduled(pod: Pod, at: int) -> Object:
    """Return why a pod is on no node: it has scheduling gates, or what the scheduler said last."""
    if at < pod.admitted:
        reason, message = "SchedulingGated", GATED
    else:
        said = [text for looked, text in pod.tried if looked <= at]
        reason, message = "Unschedulable", said[-1] if said else pod.pending_message
    return {
        "type": "PodScheduled",
        "observedGeneration": 1,
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(pod.created),
        "reason": reason,
        "message": message,
    }


def _disrupted(pod: Pod) -> Object:
    reason = _DISRUPTIONS[pod.end_reason]
    return _condition("DisruptionTarget", holds=True, since=pod.finished, reason=reason)


def _phase(pod: Pod, at: int) -> str:
    if pod.finished <= at:
        return "Failed" if pod.end_reason else "Succeeded"
    return "Running" if pod.started <= at else "Pending"


def _conditions(pod: Pod, at: int) -> list[Object]:
    running = pod.started <= at < pod.finished
    if pod.finished <= at:
        since, reason = pod.finished, "PodCompleted"
    elif running:
        since, reason = pod.started, ""
    else:
        since, reason = pod.bound, "ContainersNotReady"
    return [
        _condition("PodScheduled", holds=True, since=pod.bound),
        _condition("PodReadyToStartContainers", holds=running, since=since),
        _condition("Initialized", holds=True, since=pod.bound),
        _condition("Ready", holds=running, since=since, reason=reason),
        _condition("ContainersReady", holds=running, since=since, reason=reason),
    ]


def _condition(kind: str, *, holds: bool, since: int, reason: str = "") -> Object:
    condition: Object = {
        "type": kind,
        "status": "True" if holds else "False",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(since),
    }
    return {**condition, "reason": reason} if reason else condition


def _container_status(pod: Pod, at: int) -> Object:
    crash = pod.crash(at)
    backs_off = crash is not None and at < crash.restarted
    running = pod.started <= at < pod.finished and not backs_off
    container_id = f"containerd://{identity.uid('container', pod.uid).replace('-', '') * 2}"
    status: Object = {
        "name": CONTAINER,
        "state": _container_state(pod, at, container_id),
        "lastState": {},
        "ready": running,
        "restartCount": sum(one.restarted <= at for one in pod.crashes),
        "image": IMAGE,
        "imageID": "",
        "started": running,
    }
    if pod.started <= at:
        status["containerID"] = container_id
    if crash is not None:
        began = next(start for start, end in pod.runs if end == crash.at)
        status["lastState"] = _terminated(crash.reason, began, crash.at, container_id)
    return status


def _container_state(pod: Pod, at: int, container_id: str) -> Object:
    if pod.started > at:
        return {"waiting": {"reason": "ContainerCreating"}}
    crash = pod.crash(at)
    if crash is not None and at < crash.restarted and at < pod.finished:
        return {"waiting": {"reason": "CrashLoopBackOff"}}
    began = pod.started if crash is None else crash.restarted
    if pod.finished > at:
        return {"running": {"startedAt": rfc3339(began)}}
    # What is disrupted from without is killed, and its container says no more than that.
    reason = "Error" if pod.end_reason in _DISRUPTIONS else pod.end_reason
    return _terminated(reason, began, pod.finished, container_id)


def _terminated(reason: str, began: int, ended: int, container_id: str) -> Object:
    return {
        "terminated": {
            "exitCode": _EXIT_CODES.get(reason, _KILLED),
            "reason": reason or "Completed",
            "startedAt": rfc3339(began),
            "finishedAt": rfc3339(ended),
            "containerID": container_id,
        }
    }
