"""What KAI Scheduler (and Run:ai) says of pods that it does not place, read into its parts.

KAI writes one text into a pod's condition and its events, and that a gang is not whole yet only
into an event of the PodGroup that it made. Its texts are those of its source, of 2025 and 2026.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from apps.clusters.domain.observed.objects import EventSnapshot, KaiQueueSnapshot, PodSnapshot
from apps.clusters.domain.resources import GPU, GPU_FRACTION
from apps.pending.domain.cluster_index import plain
from apps.pending.domain.diagnosis import Action, Cause, Diagnosis, Suggestion, says
from apps.pending.domain.placement.messages import LONGEST, SchedulerMessage

OVER_LIMIT = "queue-over-limit"
OVER_QUOTA = "queue-over-quota"
NO_QUEUE = "queue missing"
GANG = "not all can start"
TOO_FEW_PODS = "too few pods"
KAI_QUEUE = "kai_queue:"
SCHEDULERS = frozenset({"kai-scheduler", "runai-scheduler"})
"""Names of the scheduler: by itself, and as a part of Run:ai."""

_NUMBER = r"(?P<{}>[0-9.,]{{1,24}})"
_LIMIT = re.compile(
    r"(?P<queue>[^:\n]{1,200}?) quota has reached the allowable limit of (?P<of>[\w ]+)\. Limit is "
    rf"{_NUMBER.format('limit')} [\w ]+, currently {_NUMBER.format('used')} [\w ]+ allocated"
    rf" and workload requested {_NUMBER.format('asked')} "
)
_QUOTA = re.compile(
    rf"Workload requested {_NUMBER.format('asked')} (?P<of>GPUs|CPU cores|GB memory), but"
    rf" (?P<queue>.{{1,200}}?) quota is {_NUMBER.format('limit')} \w+, while"
    rf" {_NUMBER.format('used')} [\w ]+ are already allocated for non-preemptible pods"
)
_GANG = re.compile(
    r"Resources were found for (?P<could>[0-9]{1,9}) pods while (?P<needed>[0-9]{1,9}) are required"
)
_NOT_READY = re.compile(
    r"for (?P<needed>[0-9]{1,9}) pods\b.*?currently (?P<there>[0-9]{1,9}) exist"
)
_HEAD = "no nodes with enough resources were found"
_NODES = re.compile(r"^(?:([0-9]{1,9}) )?(.+)$", re.DOTALL)
_TOO_LITTLE = "node(s) didn't have enough resources: "
_MIG = "node(s) didn't have enough of mig profile: "
_RESOURCES = {"GPUs": GPU, "GPU memory": GPU, "CPU cores": "cpu", "memory": "memory"}
_NAMES = {"GPUs": GPU, "CPU cores": "cpu", "CPU": "cpu", "memory": "memory", "GB memory": "memory"}
_GB = 1e9


def queue_diagnosis(message: str, requests: Mapping[str, float]) -> Diagnosis | None:
    """Return why a queue of KAI holds a pod back; None for a text that is not of that kind."""
    text = message[:LONGEST]
    if found := _LIMIT.search(text):
        return _full(found, requests, OVER_LIMIT, "kai_over_limit", "raise_limit")
    if found := _QUOTA.search(text):
        return _full(found, requests, OVER_QUOTA, "kai_over_quota", "raise_deserved")
    return no_queue(requests) if "QueueDoesNotExist" in text else None


def counted_gpus(requests: Mapping[str, float]) -> float:
    """Return what a queue counts of requests: whole GPUs and parts of one, in GPUs."""
    return requests.get(GPU, 0.0) + requests.get(GPU_FRACTION, 0.0)


def queue_and_parents(
    name: str, queues: Mapping[str, KaiQueueSnapshot]
) -> Iterator[tuple[str, KaiQueueSnapshot]]:
    """Yield a queue and those above it, each of which has to let a pod in."""
    known: set[str] = set()
    # Nothing keeps two queues from naming each other.
    while name in queues and name not in known:
        known.add(name)
        yield name, queues[name]
        name = queues[name].parent


def no_queue(requests: Mapping[str, float]) -> Diagnosis:
    """Return that the queue of a pod is not there."""
    return Diagnosis(
        Cause.QUEUE, NO_QUEUE, sentences=(says("kai_no_queue", requests=dict(requests)),)
    )


def over_limit(
    queue: str, limit: float, used: float, asked: float, requests: Mapping[str, float]
) -> Diagnosis:
    """Return that the limit of a queue leaves too little for what is asked, in GPUs."""
    figures = {"resource": GPU, "used": used, "limit": limit}
    return _over(queue, figures, asked, requests, (OVER_LIMIT, "kai_over_limit", "raise_limit"))


def _full(
    found: re.Match[str], requests: Mapping[str, float], detail: str, why: str, how: str
) -> Diagnosis:
    queue, resource = found["queue"].strip(), _NAMES.get(found["of"], found["of"])
    # KAI writes memory in GB; everything here is in bytes.
    unit = _GB if resource == "memory" else 1.0
    numbers = [_number(found[name]) for name in ("limit", "used", "asked")]
    known = [number * unit for number in numbers if number is not None]
    if len(known) < len(numbers):
        # A limit of nought, or a raise to it, would be false: the words of KAI stand alone.
        return Diagnosis(Cause.QUEUE, detail, blockers=(KAI_QUEUE + queue,))
    limit, used, asked = known
    figures = {"resource": resource, "used": used, "limit": limit}
    return _over(queue, figures, asked, requests, (detail, why, how))


def _over(
    queue: str,
    figures: Mapping[str, Any],
    asked: float,
    requests: Mapping[str, float],
    words: tuple[str, str, str],
) -> Diagnosis:
    """Return that a queue is full; `words` are the detail, the sentence and the suggestion."""
    detail, why, how = words
    sentence = says(why, requests=dict(requests), queue=queue, **figures)
    change = {
        "cluster_queue": queue,
        "flavor": "",
        "resource": figures["resource"],
        "from": figures["limit"],
        "to": figures["used"] + asked,
    }
    return Diagnosis(
        Cause.QUEUE,
        detail,
        sentences=(sentence,),
        suggestions=(Suggestion(Action.RAISE_QUEUE_QUOTA, change, says(how)),),
        blockers=(KAI_QUEUE + queue,),
    )


def _number(text: str) -> float | None:
    try:
        # Figures may end a sentence, and have commas between thousands.
        return float(text.rstrip(".,").replace(",", ""))
    except ValueError:
        return None


class NodeVerdict(Struct, frozen=True):
    """What KAI says of the nodes, and of the gang that a pod belongs to (0: it is in none)."""

    nodes: SchedulerMessage
    could: int = 0
    needed: int = 0


def node_verdict(message: str) -> NodeVerdict | None:
    """Return what a text of KAI says of nodes, in the words of Kubernetes' own scheduler.

    None where it says nothing of them, as every text of another scheduler.
    """
    text = plain(message)[:LONGEST]
    gang = _GANG.search(text)
    if _HEAD not in text:
        if gang is None:
            return None
        return NodeVerdict(SchedulerMessage(), int(gang["could"]), int(gang["needed"]))
    reasons: dict[str, int] = {}
    # KAI writes one reason a line, where Kubernetes separates them by commas.
    for part in text.partition(_HEAD)[2].lstrip(": ").split(". \n"):
        counted = _NODES.match(part.strip().rstrip(".").strip())
        if counted is not None:
            reason = _as_kubernetes(counted[2])
            reasons[reason] = reasons.get(reason, 0) + int(counted[1] or 1)
    verdict = SchedulerMessage(reasons=reasons)
    if gang is None:
        return NodeVerdict(verdict)
    return NodeVerdict(verdict, int(gang["could"]), int(gang["needed"]))


def _as_kubernetes(reason: str) -> str:
    for head in (_TOO_LITTLE, _MIG):
        if reason.startswith(head):
            what = reason.removeprefix(head)
            return f"Insufficient {_RESOURCES.get(what, what)}"
    return reason


def incomplete_gang(pod: PodSnapshot, events: list[EventSnapshot]) -> Diagnosis | None:
    """Return that the gang of a pod lacks pods for KAI; `events` are those about its PodGroup.

    Until all are there KAI tries none of them, and says nothing of them.
    """
    texts = (plain(event.message) for event in events)
    # Other events of the group say nothing of its pods: the latest that does is told.
    told = next(((t, f) for t in texts if (f := _NOT_READY.search(t[:LONGEST]))), None)
    if told is None:
        return None
    message, found = told
    needed, there = int(found["needed"]), int(found["there"])
    change = {"group": pod.owner, "missing": max(1, needed - there)}
    return Diagnosis(
        Cause.GANG,
        TOO_FEW_PODS,
        message,
        sentences=(says("too_few_pods", needed=needed, there=there),),
        suggestions=(Suggestion(Action.COMPLETE_GANG, change),),
    )


def made_for(event: EventSnapshot, pod: PodSnapshot) -> bool:
    """Say whether an event is about the PodGroup that KAI made for a pod's top owner.

    It names them `pg-<owner>-<uid of the owner>`; the pod tells which one in an annotation only.
    """
    return event.about_kind == "PodGroup" and event.about_name.startswith(f"pg-{pod.owner}-")
