"""What there is of Kueue's kinds in a scenario whose pods go through queues."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from simulator.epochs import EMPTY, Epoch, QueueSteps
from simulator.fleet import FOREVER, Controller, Pod
from simulator.kubernetes.entity import Entity
from simulator.kubernetes.objects import Object
from simulator.kubernetes.pods import workload_name
from simulator.kubernetes.queues import (
    check_object,
    cluster_queue_object,
    cohort_object,
    flavor_object,
    job_workload_name,
    job_workload_object,
    local_queue_object,
    workload_changes,
    workload_object,
)
from simulator.scenarios.base import Queue, Scenario

_Render = Callable[[Queue, QueueSteps, int], Object]


def flavors(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for name, labels in scenario.flavors.items():
        yield Entity.lasting(flavor_object(name, labels, scenario.begins), scenario.begins)


def cohorts(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    if scenario.queues:
        yield Entity.lasting(cohort_object(scenario.begins), scenario.begins)


def checks(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    if scenario.queues:
        yield Entity.lasting(check_object(scenario.begins), scenario.begins)


def cluster_queues(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    epochs = list(scenario.epochs(start, end))
    for queue in scenario.queues:
        yield _queue(scenario, queue, epochs, start, end, cluster_queue_object)


def local_queues(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    epochs = list(scenario.epochs(start, end))
    for queue in scenario.queues:
        yield _queue(scenario, queue, epochs, start, end, local_queue_object)


def _queue(
    scenario: Scenario, queue: Queue, epochs: Iterable[Epoch], start: int, end: int, render: _Render
) -> Entity:
    changes = {queue.created}
    for epoch in epochs:
        changes |= epoch.queues.get(queue.name, EMPTY).between(start, end)

    def at(when: int) -> Object:
        epoch = scenario.epoch_at(when)
        steps = epoch.queues.get(queue.name, EMPTY) if epoch else EMPTY
        return render(queue, steps, when)

    local = render is local_queue_object
    return Entity(
        queue.namespace if local else "",
        queue.local if local else queue.name,
        queue.created,
        FOREVER,
        sorted(changes),
        at,
    )


def workloads(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    """Yield the Workload of every pod that goes through a queue, and of every suspended Job."""
    queues = {queue.name: queue for queue in scenario.queues}
    for epoch in scenario.epochs(start, end) if queues else ():
        for pod in epoch.pods_between(start, end):
            if pod.admission is not None and pod.admission.queue:
                yield _workload(pod, queues[pod.admission.queue], epoch)
        for job in epoch.controllers:
            if job.suspension is not None and job.created <= end and job.deleted > start:
                yield _of_job(job, queues[job.suspension.queue], epoch)


def _of_job(job: Controller, queue: Queue, epoch: Epoch) -> Entity:
    steps = epoch.queues[queue.name]
    changes = steps.reserved_units.between(job.created, job.deleted - 1)
    return Entity(
        job.namespace,
        job_workload_name(job),
        job.created,
        job.deleted,
        sorted({job.created, *changes, job.deleted} - {FOREVER}),
        partial(job_workload_object, job, queue, steps),
    )


def _workload(pod: Pod, queue: Queue, epoch: Epoch) -> Entity:
    steps = epoch.queues[queue.name]
    times = set(workload_changes(pod, pod.admission, steps)) if pod.admission else set()
    return Entity(
        pod.namespace,
        workload_name(pod),
        pod.created,
        pod.deleted,
        sorted(at for at in times if pod.created <= at <= pod.deleted),
        partial(workload_object, pod, queue, steps),
    )
