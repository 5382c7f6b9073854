"""Kueue's objects of a scenario whose pods go through queues, as of an instant.

Every pod of a queue is a group of one, with a Workload as long as it is there. Few queues borrow,
and few lend: the limits of all others in the cohort are nothing.
"""

from collections.abc import Iterator, Mapping

from simulator import identity
from simulator.epochs import EMPTY, ActivitySteps, QueueSteps
from simulator.fleet import FOREVER, Admission, Controller, Pod
from simulator.kubernetes.fields.specs import pod_requests
from simulator.kubernetes.objects import Object, rfc3339, version, wanted_template
from simulator.kubernetes.pods import requested_spec, workload_name
from simulator.scenarios.base import Queue
from simulator.scheduler.conditions import set_condition
from simulator.scheduler.kueue import API_VERSION

COHORT = "campus"
CHECK = "data-staged"
_STAGED = "The data sets are on the nodes of the flavor"
_STAGING = "The data sets are being copied to the nodes of the flavor"


def made(kind: str, name: str, created: int, *, namespace: str = "") -> Object:
    """Return the frame of an object that is there since `created`."""
    metadata: Object = {
        "name": name,
        "uid": identity.uid("kueue", kind, namespace, name, created),
        "resourceVersion": version(created),
        "generation": 1,
        "creationTimestamp": rfc3339(created),
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata}


def flavor_object(name: str, labels: Mapping[str, str], created: int) -> Object:
    return {**made("ResourceFlavor", name, created), "spec": {"nodeLabels": dict(labels)}}


def cohort_object(created: int) -> Object:
    return {**made("Cohort", COHORT, created), "spec": {}}


def check_object(created: int) -> Object:
    """Return the admission check that all queues have."""
    found = made("AdmissionCheck", CHECK, created)
    found["spec"] = {"controllerName": "campus.example/staging"}
    set_condition(found, "Active", true=True, at=created, reason="Active",
                  message="The admission check is active")  # fmt: skip
    return found


# ---------------------------------------------------------------- queues


def cluster_queue_object(queue: Queue, steps: QueueSteps, at: int) -> Object:
    found = made("ClusterQueue", queue.name, queue.created)
    found["metadata"]["resourceVersion"] = version(max(queue.created, steps.changed(at)))
    quota = {
        "name": queue.resource,
        "nominalQuota": str(queue.nominal),
        "borrowingLimit": str(queue.borrowing),
        "lendingLimit": str(queue.lending),
    }
    found["spec"] = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": queue.namespace}},
        "queueingStrategy": "StrictFIFO" if queue.strict else "BestEffortFIFO",
        "stopPolicy": "None",
        "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
        "resourceGroups": [
            {
                "coveredResources": [queue.resource],
                "flavors": [{"name": queue.flavor, "resources": [quota]}],
            }
        ],
    }
    return _counted(found, queue, steps, at, "Can admit new workloads", borrows=True)


def local_queue_object(queue: Queue, steps: QueueSteps, at: int) -> Object:
    found = made("LocalQueue", queue.local, queue.created, namespace=queue.namespace)
    found["metadata"]["resourceVersion"] = version(max(queue.created, steps.changed(at)))
    found["spec"] = {"clusterQueue": queue.name, "stopPolicy": "None"}
    return _counted(found, queue, steps, at, "Can submit new workloads to localQueue")


def _counted(
    found: Object, queue: Queue, steps: QueueSteps, at: int, text: str, *, borrows: bool = False
) -> Object:
    def use(units: ActivitySteps) -> list[Object]:
        count = units.at(at)
        total = {"name": queue.resource, "total": str(count)}
        if borrows:
            total["borrowed"] = str(max(0, count - queue.nominal))
        return [{"name": queue.flavor, "resources": [total]}]

    found["status"] = {
        "pendingWorkloads": steps.pending.at(at),
        "reservingWorkloads": steps.reserving.at(at),
        "admittedWorkloads": steps.admitted.at(at),
        "flavorsReservation": use(steps.reserved_units),
        "flavorsUsage": use(steps.used_units),
    }
    set_condition(found, "Active", true=True, at=queue.created, reason="Ready", message=text)
    return found


# ---------------------------------------------------------------- workloads


def workload_changes(pod: Pod, admission: Admission, steps: QueueSteps) -> Iterator[int]:
    """Yield when the Workload of a pod becomes another, in no order."""
    yield from (pod.created, pod.deleted, pod.finished, pod.started, admission.at)
    yield from (admission.reserved, admission.evaluated_at)
    waited = min(admission.reserved, pod.released)
    if admission.evaluated_at < waited:
        yield from steps.reserved_units.between(admission.evaluated_at, waited - 1)


def workload_object(pod: Pod, queue: Queue, steps: QueueSteps | None, at: int) -> Object:
    """Return the Workload of a pod that goes through a queue, as of `at`."""
    admission, steps = pod.admission or Admission(""), steps or EMPTY
    changes = [one for one in workload_changes(pod, admission, steps) if one <= at]
    found = made("Workload", workload_name(pod), pod.created, namespace=pod.namespace)
    found["metadata"] |= {
        "uid": admission.workload,
        "resourceVersion": version(max(changes)),
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}],
    }
    template = {"metadata": {"labels": {"app": pod.owner.name}}, "spec": requested_spec(pod)}
    found["spec"] = {
        "active": True,
        "priority": 0,
        "queueName": queue.local,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    found["status"] = {}
    if admission.reserved <= at:
        _admitted(found, pod, admission, queue, at)
    elif admission.evaluated_at <= at:
        missing = steps.reserved_units.at(at) + pod.units - queue.most
        _waiting(found, pod, admission, queue, missing)
    return found


def job_workload_name(job: Controller) -> str:
    """Return the name of the Workload of a suspended Job."""
    return f"job-{job.name}-{identity.suffix(5, job.uid, 'workload')}"


def job_workload_object(job: Controller, queue: Queue, steps: QueueSteps, at: int) -> Object:
    """Return the Workload of a suspended Job, as of `at`: it never gets quota."""
    suspension = job.suspension
    if suspension is None:
        raise ValueError(f"{job.name} is not suspended")
    changed = max(job.created, steps.reserved_units.changed(min(at, job.deleted)) or 0)
    found = made("Workload", job_workload_name(job), job.created, namespace=job.namespace)
    found["metadata"] |= {
        "uid": suspension.workload,
        "resourceVersion": version(changed),
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job.name,
                "uid": job.uid,
                "controller": True,
            }
        ],
    }
    found["spec"] = {
        "active": True,
        # Behind everything else: who is before it is let through as if it were not there.
        "priority": -1,
        "queueName": queue.local,
        "podSets": [
            {
                "name": "main",
                "count": suspension.parallelism,
                "template": wanted_template(job.name, suspension),
            }
        ],
    }
    found["status"] = {}
    missing = steps.reserved_units.at(at) + suspension.wanted - queue.most
    _refused(found, suspension.wanted, job.created, queue, missing)
    return found


def _waiting(found: Object, pod: Pod, admission: Admission, queue: Queue, missing: int) -> None:
    """Tell what quota is missing for the Workload of a pod that was looked at."""
    _refused(found, pod.units, admission.evaluated_at, queue, missing)
    asked = {name: quantity for name, (_, _, quantity) in pod_requests(pod).items()}
    found["status"]["resourceRequests"] = [{"name": "main", "resources": asked}]


def _refused(found: Object, units: int, since: int, queue: Queue, missing: int) -> None:
    of = f"{queue.resource} in flavor {queue.flavor}"
    reason = "WaitingForQuota"
    text = f"insufficient unused quota for {of}, {missing} more needed"
    if units > queue.most:
        reason = "ExceedsMaxQuota"
        text = (
            f"insufficient quota for {of}, previously considered podsets requests (0) + current "
            f"podset request ({units}) > maximum capacity ({queue.most})"
        )
    set_condition(found, "QuotaReserved", true=False, at=since, reason=reason,
                  message=f"couldn't assign flavors to pod set main: {text}")  # fmt: skip
    set_condition(found, "Admitted", true=False, at=since, reason="NoReservation",
                  message="The workload has no reservation")  # fmt: skip


def _admitted(found: Object, pod: Pod, admission: Admission, queue: Queue, at: int) -> None:
    """Tell of quota that is reserved, and how far its pod has come since."""
    passed, since = admission.at <= at, admission.reserved
    found["status"]["admission"] = {
        "clusterQueue": queue.name,
        "podSetAssignments": [
            {
                "name": "main",
                "count": 1,
                "flavors": {queue.resource: queue.flavor},
                "resourceUsage": {queue.resource: str(pod.units)},
            }
        ],
    }
    found["status"]["admissionChecks"] = [
        {
            "name": CHECK,
            "state": "Ready" if passed else "Pending",
            "lastTransitionTime": rfc3339(admission.at if passed else since),
            "message": _STAGED if passed else _STAGING,
        }
    ]
    set_condition(found, "QuotaReserved", true=True, at=since, reason="QuotaReserved",
                  message=f"Quota reserved in ClusterQueue {queue.name}")  # fmt: skip
    if not passed:
        set_condition(found, "Admitted", true=False, at=since, reason="UnsatisfiedChecks",
                      message="The workload has not all checks ready")  # fmt: skip
        return
    set_condition(found, "Admitted", true=True, at=admission.at, reason="Admitted",
                  message="The workload is admitted")  # fmt: skip
    if pod.started <= at < FOREVER:
        set_condition(found, "PodsReady", true=True, at=pod.started, reason="Started",
                      message="All pods reached readiness and the workload is running")  # fmt: skip
    if pod.finished <= at:
        set_condition(found, "Finished", true=True, at=pod.finished, reason="Succeeded",
                      message="Pods succeeded: 1/1.")  # fmt: skip
