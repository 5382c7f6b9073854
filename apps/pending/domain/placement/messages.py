"""Messages of the scheduler, the API server and the kubelet about a pod, read into their parts.

The grammar and the texts of the scheduler are those of its FitError and of its plug-ins, of old
and new versions (facts, sections 5.1 and 5.2). A message of another shape is kept as it is. What
refused a controller its pods is read from such messages too.
"""

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache

from msgspec import Struct, field

from apps.clusters.domain.observed.objects import (
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaScope,
    QuotaSnapshot,
)
from apps.pending.domain.cluster_index import SIMILAR, ClusterIndex, bodies, plain
from apps.pending.domain.diagnosis import BLOCKING_QUOTA, Action, Cause, Diagnosis, Suggestion, says
from apps.pending.domain.placement.fits import EPSILON, all_needed
from apps.pending.domain.wording import listed

_HEAD = re.compile(r"^\s*[0-9]{1,9}/([0-9]{1,9}) nodes are available: ?", re.ASCII)
# Reasons hold commas themselves: only one before a number begins the next reason.
_NEXT_REASON = re.compile(r", (?=[0-9]+ \S)", re.ASCII)
_REASON = re.compile(r"^([0-9]{1,9}) (\S.*)$", re.ASCII | re.DOTALL)
# What follows counts the same nodes again, for preemption: added up they would count twice.
_TAIL = re.compile(
    r"\.? (?=still not schedulable|no new claims to deallocate|deallocation of ResourceClaim"
    r"|plugin disabled|preemption: )"
)
_SENTENCE_END = re.compile(r"\. ")
# From Kubernetes 1.35 on the text names no key: then only the nodes' taints tell which one.
_TAINT = re.compile(r"taint \{([^{}:]+)(?:: ?([^{}]*))?\}")

# The first word that is found in a reason decides; in the order of how much each one tells.
_SIGNS: tuple[tuple[str, Cause], ...] = (
    ("insufficient ", Cause.CAPACITY),
    ("too many pods", Cause.CAPACITY),
    ("waiting for the preemption", Cause.PREEMPTION),
    ("scheduling gates", Cause.QUEUE),
    ("pod group", Cause.GANG),
    ("gang", Cause.GANG),
    ("minmember", Cause.GANG),
    ("placements are available", Cause.GANG),
    ("resourceclaim", Cause.CLAIM),
    ("resource claim", Cause.CLAIM),
    ("allocate all claims", Cause.CLAIM),
    ("device class", Cause.CLAIM),
    ("cannot fit resource", Cause.CLAIM),
    ("topology spread", Cause.SPREAD),
    ("free ports", Cause.SPREAD),
    ("pod affinity", Cause.SPREAD),
    ("anti-affinity", Cause.SPREAD),
    # Before affinity: `didn't match PersistentVolume's node affinity` speaks of a volume.
    ("persistentvolume", Cause.VOLUME),
    ("persistent volume", Cause.VOLUME),
    ("pvc", Cause.VOLUME),
    ("volume", Cause.VOLUME),
    ("free storage", Cause.VOLUME),
    ("available disk", Cause.VOLUME),
    ("taint", Cause.TAINT),
    ("node affinity", Cause.AFFINITY),
    ("node selector", Cause.AFFINITY),
    ("requested node name", Cause.AFFINITY),
    ("were unschedulable", Cause.CORDON),
)
LATE = (Cause.GANG, Cause.CLAIM, Cause.VOLUME, Cause.SPREAD)
"""Causes of filters that only see nodes which had room: what they turn down was nearest."""
_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*?), used: (?P<used>.*?),"
    r" limited: (?P<limited>.*)",
    re.DOTALL,
)
_INSUFFICIENT = re.compile(r"insufficient quota to (?:consume|match these scopes): ?(?P<what>.*)")
_UNSPECIFIED = re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.*)")
_UNKNOWN = re.compile(r"status unknown for quota: (?P<quota>[^,]+)")
_AMOUNT = re.compile(r"^([0-9]{1,18}(?:\.[0-9]{0,9})?)(m|[kMGTPE]i?)?$", re.ASCII)
_SUFFIXES = {"": 1.0, "m": 1e-3} | {
    letter + i: base**power
    for i, base in (("", 1000.0), ("i", 1024.0))
    for power, letter in enumerate("kMGTPE", start=1)
}
# Kubernetes writes 1000 as `k` and 1024 as `Ki`: of this letter alone the case differs.
_SUFFIXES["Ki"] = 1024.0
SPEC_KEYS = "must-specify"
EXCEEDED = "exceeded"
LONGEST = 8192
"""Of a text no more is read: patterns take time that grows faster than what they search."""
_REJECTED_PREFIX = "Pod was rejected: "
_OVER = frozenset({"Evicted", "Shutdown", "NodeShutdown", "Terminated", "NodeLost", "Preempting"})


class SchedulerMessage(Struct, frozen=True):
    """A scheduler's message in its parts.

    `nodes` is how many it looked at (None: it did not say), `reasons` how many nodes each reason
    turned down (a node may have several), `sentence` what stands there instead of reasons, `tail`
    what follows them (preemption). `taints` are those that older versions name, as key and value.
    """

    nodes: int | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    sentence: str = ""
    tail: str = ""
    taints: tuple[tuple[str, str], ...] = ()

    def caused_by(self, cause: Cause) -> list[str]:
        """Return the reasons, or the sentence, that speak of a cause."""
        texts = [*self.reasons, *([self.sentence] if self.sentence else [])]
        return [text for text in texts if cause_of(text) is cause]


def parse(message: str) -> SchedulerMessage:
    """Return the parts of a scheduler's message; never raises."""
    # The recorder of events puts this in front after ten similar ones.
    text = message.replace(SIMILAR, "", 1).strip()
    head = _HEAD.match(text)
    if head is None:
        return SchedulerMessage(sentence=text)
    body, tail = _split_tail(text[head.end() :])
    reasons, rest = _reasons(body)
    return SchedulerMessage(
        nodes=int(head[1]),
        reasons=reasons,
        sentence=rest,
        tail=tail,
        taints=tuple((key.strip(), value.strip()) for key, value in _TAINT.findall(body)),
    )


# Thousands of pods share a few texts, and each refresh reads all of them again.
@lru_cache(maxsize=4096)
def cause_of(text: str) -> Cause | None:
    """Return the cause that a reason's text stands for; None for an unknown text."""
    lower = text.lower()
    return next((cause for sign, cause in _SIGNS if sign in lower), None)


def insufficient(reasons: Mapping[str, int]) -> dict[str, int]:
    """Return resource → nodes that have too little of it, of a verdict's reasons."""
    short = "Insufficient "
    found = {text.removeprefix(short): n for text, n in reasons.items() if text.startswith(short)}
    return found | ({"pods": reasons["Too many pods"]} if "Too many pods" in reasons else {})


def _split_tail(text: str) -> tuple[str, str]:
    cut = _TAIL.search(text) or _SENTENCE_END.search(text)
    if cut is None:
        return text.removesuffix("."), ""
    return text[: cut.start()].removesuffix("."), text[cut.end() :]


def _reasons(body: str) -> tuple[dict[str, int], str]:
    """Return reason → nodes, and what is no counted reason."""
    counts: dict[str, int] = {}
    other = []
    for part in _NEXT_REASON.split(body):
        match = _REASON.match(part)
        if match is None:
            other.append(part)
            continue
        counts[match[2]] = counts.get(match[2], 0) + int(match[1])
    return counts, ", ".join(other).strip()


class Refusal(Struct, frozen=True):
    """Why no pod was made: `quota` names the ResourceQuota where there is one.

    `requested`, `used` and `limited` are by quota key, what could be read of them; `specify` are
    the keys that a quota asks every pod to state.
    """

    cause: Cause
    detail: str
    quota: str = ""
    requested: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    limited: Mapping[str, float] = field(default_factory=dict)
    specify: tuple[str, ...] = ()


def refusal(message: str) -> Refusal:
    """Return what a text of `FailedCreate` says; never raises."""
    message = message[:LONGEST]
    if found := _EXCEEDED.search(message):
        requested, used, limited = map(_amounts, found.group("requested", "used", "limited"))
        return Refusal(Cause.QUOTA, EXCEEDED, found["quota"].strip(), requested, used, limited)
    if found := _UNSPECIFIED.search(message):
        # `a,b` before 1.23, since then `a for: container; b for: container`.
        lists = [part.partition(" for: ")[0] for part in found["what"].split(";")]
        keys = tuple(key.strip() for part in lists for key in part.split(",") if key.strip())
        return Refusal(Cause.ADMISSION, SPEC_KEYS, found["quota"].strip(), specify=keys)
    if _INSUFFICIENT.search(message):
        return Refusal(Cause.QUOTA, "no quota covers it")
    if found := _UNKNOWN.search(message):
        return Refusal(Cause.QUOTA, "status unknown", found["quota"].strip())
    return Refusal(Cause.ADMISSION, "refused")


def rejection(reason: str, message: str) -> Cause | None:
    """Return the cause of a Failed pod that a kubelet turned away; None for one that ran."""
    # Refused pods are Failed, not Pending, and never had a container: phase alone does not tell.
    if reason == "TopologyAffinityError":
        return Cause.TOPOLOGY
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        return Cause.ADMISSION
    if message.startswith(_REJECTED_PREFIX) and reason not in _OVER:
        return Cause.ADMISSION
    return None


def _amounts(text: str) -> dict[str, float]:
    """Read `key=amount,key=amount`; what is no amount is left out."""
    found = {}
    for part in text.split(","):
        key, _, value = part.strip().rpartition("=")
        amount = _AMOUNT.match(value.strip())
        if key and amount:
            found[key] = float(amount[1]) * _SUFFIXES[amount[2] or ""]
    return found


SUSPENDED = "suspended"
_FAILED_CREATE = ("FailedCreate", "FailedToCreatePod")
_REPLICA_FAILURE = "ReplicaFailure"
_REQUESTS = "requests."
_COUNTS = ("pods", "count/pods")
_SETTLE_SECONDS = 60.0
_SPEAKS_SECONDS = 3600.0
"""A controller tries again within minutes: what it was told longer ago explains nothing now."""


class Shortfall(Struct, frozen=True):
    """A key of a quota that does not let all the missing pods in; `to` would.

    `others` is the part for other controllers that the same quota refused: they try again as soon
    as there is room, in any order.
    """

    quota: str
    key: str
    limit: float
    used: float
    to: float
    others: float = 0.0


class BlockedControllers:
    """The controllers of a cluster that have fewer pods than they want, and why."""

    def __init__(self, index: ClusterIndex) -> None:
        self._index = index
        self._quotas: dict[str, list[tuple[str, QuotaSnapshot]]] = {}
        self._sums: dict[tuple[str, str], float] = {}
        for seen, quota in bodies(index.state.of(ObservedKind.RESOURCE_QUOTA), QuotaSnapshot):
            self._quotas.setdefault(seen.namespace, []).append((seen.name, quota))

    @cached_property
    def _in_want(self) -> dict[str, dict[str, ControllerSnapshot]]:
        """Return by namespace the controllers, by uid, that a quota refused pods of."""
        found: dict[str, dict[str, ControllerSnapshot]] = {}
        for seen, body in self._index.controllers.values():
            if body.wanted > body.pods and not body.suspended:
                why = refusal(self._message(seen, body))
                if why.cause is Cause.QUOTA:
                    found.setdefault(seen.namespace, {})[seen.uid] = body
        return found

    def _of_others(self, seen: ObservedObject, key: str) -> float:
        """Return what refused pods of other controllers of the namespace add to a key."""
        refused = self._in_want.get(seen.namespace, {})
        place = (seen.namespace, key)
        if place not in self._sums:
            self._sums[place] = sum(_lacks(key, body) for body in refused.values())
        mine = refused.get(seen.uid)
        return self._sums[place] - (_lacks(key, mine) if mine is not None else 0.0)

    def refused(self, seen: ObservedObject, body: ControllerSnapshot) -> Diagnosis | None:
        """Return why pods of a controller were refused; None when none were."""
        # No pod exists that could be pending: only the difference shows what is missing.
        missing = body.wanted - body.pods
        if missing <= 0 or body.suspended:
            return None
        message = self._message(seen, body)
        why = refusal(message)
        short = self._shortfalls(seen, body, missing, why.quota)
        if not message:
            # A controller that just changed has had no time to make its pods: their lack proves
            # nothing.
            settled = self._index.state.at - seen.changed >= _SETTLE_SECONDS
            return self._by_quota(seen, body, missing, short, "") if short and settled else None
        if why.cause is not Cause.QUOTA:
            return self._not_admitted(body, missing, why, message)
        # The message is as old as the last try; the quota may have been raised since.
        known = self._quota(seen.namespace, why.quota)
        short = short or _of_message(why, missing, known)
        if short or known is None or why.detail != EXCEEDED or not why.limited:
            return self._by_quota(seen, body, missing, short, message)
        return _room_by_now(body, missing, why, message) if _fails(body) else None

    def since(self, seen: ObservedObject, body: ControllerSnapshot) -> float:
        """Return since when pods are refused, or none are made: as conditions and events tell."""
        known = [c for c in body.conditions if c.since is not None]
        failing = [c for c in known if c.type == _REPLICA_FAILURE and c.status == "True"]
        conditions = [*failing, *(c for c in known if c.type == "Suspended")]
        times = [c.since for c in conditions if c.since is not None]
        if not failing and not body.suspended:
            events = self._failed_creates(seen)
            failed = [e.first or e.last or seen.changed for e in events]
            times.append(min(failed, default=seen.changed))
        return max([body.created, *times])

    def suspended(self, seen: ObservedObject, body: ControllerSnapshot) -> Diagnosis:
        """Return that a Job is suspended, so that no pods are made."""
        change = {"kind": seen.kind.short, "namespace": seen.namespace, "name": seen.name}
        requests = self._index.gpus(body.requests)
        message = next((c.message for c in body.conditions if c.type == "Suspended"), "")
        return Diagnosis(
            Cause.ADMISSION,
            SUSPENDED,
            message,
            sentences=(says("suspended", wanted=body.wanted, requests=requests),),
            suggestions=(Suggestion(Action.UNSUSPEND, change),),
        )

    def _message(self, seen: ObservedObject, body: ControllerSnapshot) -> str:
        """Return why the last pod was not made: the condition before the event."""
        found = [
            c.message for c in body.conditions if c.type == _REPLICA_FAILURE and c.status == "True"
        ]
        events = [plain(e.message) for e in self._failed_creates(seen)]
        return next((text for text in (*found, *events) if text), "")

    def _failed_creates(self, seen: ObservedObject) -> list[EventSnapshot]:
        """Return the events of pods not made of the last hour, latest first."""
        earliest = self._index.state.at - _SPEAKS_SECONDS
        found = self._index.events(seen, *_FAILED_CREATE)
        return [e for e in found if (e.last or e.first or earliest) >= earliest]

    def _quota(self, namespace: str, name: str) -> QuotaSnapshot | None:
        found = self._quotas.get(namespace, ())
        return next((quota for named, quota in found if named == name), None)

    def _by_quota(
        self,
        seen: ObservedObject,
        body: ControllerSnapshot,
        missing: int,
        short: list[Shortfall],
        message: str,
    ) -> Diagnosis:
        full = says(
            "quota_full",
            missing=missing,
            wanted=body.wanted,
            requests=self._index.gpus(body.requests),
            shortfalls=[
                {"quota": s.quota, "key": s.key, "used": s.used, "limit": s.limit} for s in short
            ],
        )
        return Diagnosis(
            Cause.QUOTA,
            listed([s.quota for s in short]),
            message,
            sentences=(full,),
            suggestions=all_needed([_raise(seen.namespace, one) for one in short]),
            blockers=tuple(dict.fromkeys(BLOCKING_QUOTA + one.quota for one in short)),
        )

    def _not_admitted(
        self, body: ControllerSnapshot, missing: int, why: Refusal, message: str
    ) -> Diagnosis:
        steps: tuple[Suggestion, ...] = ()
        if why.detail == SPEC_KEYS:
            change = {"keys": list(why.specify)}
            steps = (Suggestion(Action.SPECIFY, change, says("specify", quota=why.quota)),)
        refused = says("not_admitted", missing=missing, wanted=body.wanted)
        return Diagnosis(
            Cause.ADMISSION, why.detail, message, sentences=(refused,), suggestions=steps
        )

    def _shortfalls(
        self, seen: ObservedObject, body: ControllerSnapshot, missing: int, named: str
    ) -> list[Shortfall]:
        """Return every key of every quota of the namespace that does not let all of them in.

        Of quotas with scopes that pods need not have, only the one that the refusal names.
        """
        found = []
        for name, quota in sorted(self._quotas.get(seen.namespace, ()), key=lambda q: q[0]):
            if name != named and not counts_all(quota.scopes):
                continue
            for key, limit in sorted(quota.hard.items()):
                used = quota.used.get(key)
                each = each_pod(key, body.counted)
                # A key that no evaluator counts (`nvidia.com/gpu` without `requests.`) limits
                # nothing.
                if used is None or not each:
                    continue
                to = used + each * missing
                if to > limit + EPSILON:
                    others = self._of_others(seen, key)
                    found.append(Shortfall(name, key, limit, used, to + others, others))
        return found


def _lacks(key: str, body: ControllerSnapshot) -> float:
    return each_pod(key, body.counted) * (body.wanted - body.pods)


def each_pod(key: str, requests: Mapping[str, float]) -> float:
    """Return how much one pod adds to a quota's key."""
    if key in _COUNTS:
        return 1.0
    # Devices of a class are charged to the claim, not to the pod.
    counted = key.startswith(_REQUESTS) or key in ("cpu", "memory")
    return requests.get(key.removeprefix(_REQUESTS), 0.0) if counted else 0.0


def counts_all(scopes: tuple[QuotaScope, ...]) -> bool:
    """Say whether a quota is sure to count a pod of a controller; scopes by priority are not."""
    return all(scope.name in ("NotBestEffort", "NotTerminating") for scope in scopes)


def _fails(body: ControllerSnapshot) -> bool:
    """Say whether a controller itself says that it cannot make its pods."""
    return any(c.type == _REPLICA_FAILURE and c.status == "True" for c in body.conditions)


def _room_by_now(body: ControllerSnapshot, missing: int, why: Refusal, message: str) -> Diagnosis:
    """Return that the quota has room since: the controller tries again, ever less often."""
    room = says("quota_has_room", missing=missing, wanted=body.wanted, quota=why.quota)
    change = {"what": "pods", "on": why.quota}
    step = Suggestion(Action.WAIT, change, says("wait_for_controller"))
    return Diagnosis(
        Cause.QUOTA,
        why.quota,
        message,
        sentences=(room,),
        suggestions=(step,),
        blockers=(BLOCKING_QUOTA + why.quota,),
    )


def _of_message(why: Refusal, missing: int, quota: QuotaSnapshot | None) -> list[Shortfall]:
    """Return what the refusal says is short, by the figures of the quota where it is seen."""
    found = []
    for key, limited in sorted(why.limited.items()):
        limit = limited if quota is None else quota.hard.get(key, float("inf"))
        used = why.used.get(key, 0.0)
        used = used if quota is None else quota.used.get(key, used)
        to = used + why.requested.get(key, 0.0) * missing
        if to > limit + EPSILON:
            found.append(Shortfall(why.quota, key, limit, used, to))
    return found


def _raise(namespace: str, one: Shortfall) -> Suggestion:
    change = {
        "namespace": namespace,
        "quota": one.quota,
        "key": one.key,
        "from": one.limit,
        "to": one.to,
    }
    more = says("raise_quota", more=one.to - one.limit, others=max(0.0, one.others))
    return Suggestion(Action.RAISE_QUOTA, change, more)
