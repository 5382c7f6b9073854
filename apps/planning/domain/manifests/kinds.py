"""Which pods an object of each kind makes."""

from collections.abc import Callable, Iterator, Mapping

from apps.accounts.domain.structs import replace
from apps.clusters.domain.kube_json import JsonObject, mapping
from apps.planning.domain.manifests.argo import workflow_pods
from apps.planning.domain.manifests.pod_specs import (
    check_placement,
    check_resources,
    check_spec,
    pod_template,
    step_spec,
)
from apps.planning.domain.manifests.submissions import PodTemplate, Reader
from apps.planning.domain.manifests.tekton import (
    pipeline_pods,
    pipeline_run_pods,
    task_pods,
    task_run_pods,
)

Templates = Iterator[PodTemplate]
_SUBMITTER: JsonObject = {
    "containers": [{"name": "submitter", "resources": {"requests": {"cpu": "500m"}}}]
}
"""What KubeRay submits a job with where the job does not tell."""
ONE_AFTER_THE_OTHER = frozenset(
    {
        *("Workflow", "CronWorkflow", "WorkflowTemplate", "ClusterWorkflowTemplate"),
        *("Pipeline", "PipelineRun"),
    }
)
"""Kinds whose templates are steps: not all of them run at the same time."""
QUEUED_ONE_BY_ONE = ONE_AFTER_THE_OTHER | {
    *("Deployment", "ReplicaSet", "ReplicationController", "Task", "TaskRun"),
}
"""Kinds whose pods Kueue admits each by itself; of others the object is admitted as a whole."""
QUEUED_BY_DEFAULT = frozenset(
    {
        *("Job", "CronJob", "JobSet", "RayCluster", "RayJob", "TrainJob"),
        *("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"),
    }
)
"""Kinds for which Kueue takes the LocalQueue `default` of their namespace where none is named."""


def pods_of(kind: str, item: Reader) -> list[PodTemplate] | None:
    """Return the pods that an object makes; None for a kind that makes none.

    Raises ManifestError for fields that cannot be what its API takes.
    """
    read = _KINDS.get(kind)
    return None if read is None else list(read(item))


def _pod(item: Reader) -> Templates:
    spec = item.required("spec")
    check_spec(spec)
    yield PodTemplate(spec.body, mapping(item.body, "metadata"))


def _replicas(item: Reader) -> Templates:
    yield pod_template(item.required("spec", "template"), count=item.count("spec", "replicas"))


def _daemon_set(item: Reader) -> Templates:
    yield pod_template(item.required("spec", "template"), count=None)


def _job(item: Reader) -> Templates:
    spec = item.required("spec")
    if is_of_volcano(item):
        yield from _volcano_job(spec)
    else:
        yield _job_pods(spec, "", 1)


def is_of_volcano(item: Reader) -> bool:
    """Say whether an object is of Volcano, whose jobs are called as those of Kubernetes."""
    return item.text("apiVersion").startswith("batch.volcano.sh/")


def _volcano_job(spec: Reader) -> Templates:
    tasks = [
        (task, task.count("replicas"), task.text("name") or f"task {at}")
        for at, task in enumerate(spec.objects("tasks"), 1)
    ]
    total = sum(count for _, count, _ in tasks)
    whole = spec.count("minAvailable", default=total) >= total
    of_job = {"schedulerName": spec.text("schedulerName") or "volcano"}
    if priority := spec.text("priorityClassName"):
        of_job["priorityClassName"] = priority
    for task, count, role in tasks:
        one = pod_template(task.required("template"), count=count, role=role)
        # Fewer than all: which of them start first is not told.
        yield replace(one, spec={**of_job, **one.spec}, gang=max(1, count) if whole else 1)


def _cron_job(item: Reader) -> Templates:
    yield _job_pods(item.required("spec", "jobTemplate", "spec"), "", 1)


def _job_pods(spec: Reader, role: str, times: int) -> PodTemplate:
    parallel, completions = spec.count("parallelism"), spec.body.get("completions")
    if completions is not None:
        # A Job never runs more pods than it has to complete.
        parallel = min(parallel, spec.count("completions"))
    # All indexes run at once: such a Job works on one task, as a gang does.
    indexed = spec.text("completionMode") == "Indexed" and parallel == completions
    count = parallel * times
    return pod_template(
        spec.required("template"), count=count, role=role, gang=parallel if indexed else 1
    )


def _job_set(item: Reader) -> Templates:
    jobs = item.objects("spec", "replicatedJobs")
    found = [
        _job_pods(one.required("template", "spec"), one.text("name"), one.count("replicas"))
        for one in jobs
    ]
    yield from map(_all_together, found)


def _all_together(one: PodTemplate) -> PodTemplate:
    return PodTemplate(one.spec, one.metadata, one.count, one.role, gang=max(1, one.count or 1))


def _kubeflow(key: str) -> Callable[[Reader], Templates]:
    def read(item: Reader) -> Templates:
        elastic = item.maybe("spec", "elasticPolicy")
        roles = item.items("spec", key)
        total = sum(one.count("replicas") for _, one in roles)
        policy = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")
        # Where fewer pods than all may start, which of them start first is not told.
        whole = item.count(*policy, default=total) >= total
        for role, one in roles:
            count = one.count("replicas")
            gang = count if whole else 1
            # An elastic job trains on with fewer workers than it would have.
            if elastic is not None and role == "Worker":
                gang = min(gang, elastic.count("minReplicas", default=count))
            yield pod_template(
                one.required("template"), count=count, role=role.lower(), gang=max(1, gang)
            )

    return read


def _train_job(item: Reader) -> Templates:
    # Its pod template is a runtime's, which the manifest does not have: its requests are what the
    # trainer overrides.
    spec = item.required("spec")
    trainer = spec.maybe("trainer")
    count = 1 if trainer is None else trainer.count("numNodes")
    resources: JsonObject = {}
    if trainer is not None and (own := trainer.maybe("resourcesPerNode")) is not None:
        resources = own.body
        check_resources(trainer, "resourcesPerNode")
    places = [
        *spec.objects("podTemplateOverrides"),
        *spec.objects("podSpecOverrides"),
    ]
    specs = []
    for one in places:
        place = one.maybe("spec") or one
        check_placement(place)
        specs.append(place.body)
    pod = step_spec([{"name": "node", "resources": resources}], *specs)
    yield PodTemplate(pod, count=count, role="node", gang=max(1, count))


def _ray_cluster(item: Reader) -> Templates:
    yield from _ray(item.required("spec"))


def _ray_job(item: Reader) -> Templates:
    spec = item.required("spec")
    if spec.maybe("rayClusterSpec") is not None or spec.maybe("clusterSelector") is None:
        yield from _ray(spec.required("rayClusterSpec"))
    elif (own := spec.maybe("submitterPodTemplate")) is not None:
        yield pod_template(own, role="submitter")
    else:
        # It runs on a cluster that is there: its own pod only submits it.
        yield PodTemplate(_SUBMITTER, role="submitter")


def _ray_service(item: Reader) -> Templates:
    yield from _ray(item.required("spec", "rayClusterConfig"))


def _ray(spec: Reader) -> Templates:
    yield pod_template(spec.required("headGroupSpec", "template"), role="head")
    for group in spec.objects("workerGroupSpecs"):
        hosts = group.count("numOfHosts")
        yield pod_template(
            group.required("template"),
            count=_ray_replicas(group) * hosts,
            role=group.text("groupName") or "worker",
            # A replica of several hosts is one slice: its hosts start together.
            gang=max(1, hosts),
            step=max(1, hosts),
        )


def _ray_replicas(group: Reader) -> int:
    """Return with how many replicas a group begins, as KubeRay does; an autoscaler comes later."""
    if group.body.get("suspend") is True:
        return 0
    least = group.count("minReplicas", default=0)
    wanted = group.count("replicas", default=least)
    if wanted < least:
        return least
    most = group.body.get("maxReplicas")
    # Its default is the largest number of 32 bits, which is no number of pods.
    return min(wanted, most) if isinstance(most, int) and most >= 0 else wanted


def _leader_worker_set(item: Reader) -> Templates:
    spec = item.required("spec")
    template = spec.required("leaderWorkerTemplate")
    groups, size = spec.count("replicas"), template.count("size")
    worker = template.required("workerTemplate")
    leader = template.maybe("leaderTemplate") or worker
    # Each group has a leader; `size` counts it too.
    yield pod_template(leader, count=groups, role="leader")
    if size > 1:
        count = groups * (size - 1)
        yield pod_template(worker, count=count, role="worker", gang=size - 1, step=size - 1)


def _workflow(item: Reader) -> Templates:
    yield from workflow_pods(item.required("spec"))


def _cron_workflow(item: Reader) -> Templates:
    yield from workflow_pods(item.required("spec", "workflowSpec"))


_KINDS: Mapping[str, Callable[[Reader], Templates]] = {
    "Pod": _pod,
    "Job": _job,
    "CronJob": _cron_job,
    "Deployment": _replicas,
    "ReplicaSet": _replicas,
    "StatefulSet": _replicas,
    "ReplicationController": _replicas,
    "DaemonSet": _daemon_set,
    "JobSet": _job_set,
    "TrainJob": _train_job,
    "PyTorchJob": _kubeflow("pytorchReplicaSpecs"),
    "TFJob": _kubeflow("tfReplicaSpecs"),
    "MPIJob": _kubeflow("mpiReplicaSpecs"),
    "XGBoostJob": _kubeflow("xgbReplicaSpecs"),
    "MXJob": _kubeflow("mxReplicaSpecs"),
    "PaddleJob": _kubeflow("paddleReplicaSpecs"),
    "JAXJob": _kubeflow("jaxReplicaSpecs"),
    "RayCluster": _ray_cluster,
    "RayJob": _ray_job,
    "RayService": _ray_service,
    "LeaderWorkerSet": _leader_worker_set,
    "Workflow": _workflow,
    "WorkflowTemplate": _workflow,
    "ClusterWorkflowTemplate": _workflow,
    "CronWorkflow": _cron_workflow,
    "Task": task_pods,
    "TaskRun": task_run_pods,
    "Pipeline": pipeline_pods,
    "PipelineRun": pipeline_run_pods,
}
KINDS = tuple(sorted(_KINDS))
