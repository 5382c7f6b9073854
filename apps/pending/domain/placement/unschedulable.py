"""Unschedulable pods: the scheduler's message, the nodes and the ResourceClaims held together."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from apps.clusters.domain.observed.objects import (
    ClaimSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    Placement,
    PodSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex, Owner, bodies, plain
from apps.pending.domain.diagnosis import (
    Action,
    Cause,
    Diagnosis,
    Sentence,
    Suggestion,
    says,
)
from apps.pending.domain.placement.fits import constraints_of
from apps.pending.domain.placement.messages import (
    LATE,
    SchedulerMessage,
    cause_of,
    insufficient,
    parse,
    refusal,
)
from apps.pending.domain.placement.node_search import NONE_FREE, NodeFit, diagnose, fit
from apps.pending.domain.wording import listed

MISSING = "missing"
TEMPLATE = "not made from its template"
NO_CLASS = "class missing"
NOT_ALLOCATABLE = "not allocatable"
IN_USE = "in use"
_NO_CLASS = "device class "
UNKNOWN = "unknown verdict"
_BY_COUNT = (Cause.AFFINITY, Cause.TAINT, Cause.CORDON)
_SPREAD = (
    ("anti-affinity", "anti-affinity"),
    ("pod affinity", "pod-affinity"),
    ("topology spread", "topology-spread"),
    ("free ports", "host-port"),
)
ShapeKey = tuple[object, ...]


class PodClaims(Struct, frozen=True):
    """The claims of a cluster by namespace and name."""

    by_name: Mapping[tuple[str, str], tuple[ObservedObject, ClaimSnapshot]]

    def of(self, namespace: str, pod: PodSnapshot) -> list[tuple[ObservedObject, ClaimSnapshot]]:
        """Return the claims that a pod names and that are there."""
        keys = [(namespace, use.claim) for use in pod.claims if use.claim]
        return [self.by_name[key] for key in keys if key in self.by_name]


def claims_of(index: ClusterIndex) -> PodClaims:
    """Return the claims seen of a cluster."""
    seen = bodies(index.state.of(ObservedKind.RESOURCE_CLAIM), ClaimSnapshot)
    return PodClaims({(one.namespace, one.name): (one, claim) for one, claim in seen})


def unmade(
    namespace: str, pod: PodSnapshot, claims: PodClaims, events: list[EventSnapshot]
) -> Diagnosis | None:
    """Return what is the matter when a claim of the pod is not there; None when all are."""
    failed = next((e for e in events if e.reason == "FailedResourceClaimCreation"), None)
    for use in pod.claims:
        if not use.claim:
            return _not_made(namespace, use.template, failed)
        if (namespace, use.claim) not in claims.by_name:
            missing = says("claim_missing", claim=use.claim)
            change = {"namespace": namespace, "name": use.claim}
            step = Suggestion(Action.CREATE_CLAIM, change)
            return Diagnosis(Cause.CLAIM, MISSING, sentences=(missing,), suggestions=(step,))
    return None


def _not_made(namespace: str, template: str, failed: EventSnapshot | None) -> Diagnosis:
    message = plain(failed.message) if failed is not None else ""
    why = refusal(message) if message else None
    quota = "" if why is None else why.quota
    steps = []
    if why is not None and why.cause is Cause.QUOTA and quota:
        for key, limit in sorted(why.limited.items()):
            to = why.used.get(key, 0.0) + why.requested.get(key, 0.0)
            if to > limit:
                change = {
                    "namespace": namespace,
                    "quota": quota,
                    "key": key,
                    "from": limit,
                    "to": to,
                }
                steps.append(Suggestion(Action.RAISE_QUOTA, change, says("raise_claim_quota")))
    elif why is not None:
        change = {"namespace": namespace, "name": template}
        steps.append(Suggestion(Action.CREATE_CLAIM, change, says("look_at_claim")))
    else:
        wait = says("wait_for_claim", template=template)
        steps.append(Suggestion(Action.WAIT, {"what": "claim"}, wait))
    return Diagnosis(
        Cause.CLAIM,
        TEMPLATE,
        message,
        sentences=(says("claim_not_made", template=template, quota=quota),),
        suggestions=tuple(steps),
    )


def unallocated(
    namespace: str, pod: PodSnapshot, claims: PodClaims, texts: list[str], free_devices: int
) -> Diagnosis:
    """Return why the scheduler could not allocate the claims of a pod.

    `texts` are its reasons about claims, `free_devices` how many of the classes are free.
    """
    # Without its class, no other reason about a claim matters.
    missing = next((t for t in texts if _NO_CLASS in t and "not exist" in t), "")
    if missing:
        name = missing.partition(_NO_CLASS)[2].partition(" ")[0]
        step = Suggestion(Action.CREATE_CLASS, {"device_class": name})
        no_class = says("class_missing", device_class=name)
        return Diagnosis(Cause.CLAIM, NO_CLASS, sentences=(no_class,), suggestions=(step,))
    there = claims.of(namespace, pod)
    # Allocated claims can be the cause too: another pod may be using one.
    waiting = [(s, c) for s, c in there if c.allocated is None] or there
    return Diagnosis(
        Cause.CLAIM,
        IN_USE if any("in use" in t or "being allocated" in t for t in texts) else NOT_ALLOCATABLE,
        sentences=(_why(waiting, free_devices),),
        suggestions=tuple(_change(seen, claim) for seen, claim in waiting[:3]),
    )


def _why(waiting: list[tuple[ObservedObject, ClaimSnapshot]], free_devices: int) -> Sentence:
    selectors = [text for _, claim in waiting for one in claim.requests for text in one.selectors]
    names = [seen.name for seen, _ in waiting]
    if selectors:
        return says("no_device", claims=names, selectors=selectors, free=free_devices)
    return says("not_allocated", claims=names)


def _change(seen: ObservedObject, claim: ClaimSnapshot) -> Suggestion:
    name = claim.requests[0].device_class if claim.requests else ""
    selectors = [text for one in claim.requests for text in one.selectors]
    change = {"namespace": seen.namespace, "name": seen.name, "device_class": name}
    return Suggestion(Action.CHANGE_CLAIM, change, says("change_claim", selectors=selectors))


class PlacementDiagnoser:
    """Finds why pods have no place; pods of one shape are looked at once."""

    def __init__(self, index: ClusterIndex, claims: PodClaims) -> None:
        self._index = index
        self._claims = claims
        self._fits: dict[ShapeKey, NodeFit] = {}
        self._by_state: dict[ShapeKey, Diagnosis | None] = {}
        self._verdicts: dict[str, SchedulerMessage] = {}

    def why(
        self,
        seen: ObservedObject,
        pod: PodSnapshot,
        message: str,
        verdict: SchedulerMessage | None = None,
    ) -> Diagnosis:
        """Return the cause and how to fix it; the raw text is kept whatever it is.

        `verdict` is the text in its parts, where it is of another form than Kubernetes' own.
        """
        verdict = verdict or self._verdict(message)
        found = (
            # In this order: what was never held against nodes, unknown words, the nodes, and last
            # the text.
            self._by_sentence(seen, pod, verdict)
            or self._refused_otherwise(pod, verdict)
            or self._by_nodes(seen, pod, verdict)
            or self._by_text(seen, pod, verdict)
        )
        return replace(found, message=message, node_reasons=dict(verdict.reasons))

    def fit_of(self, requests: Mapping[str, float], placement: Placement) -> NodeFit:
        """Return which nodes fit a shape of pods."""
        key = shape_key(requests, placement)
        if key not in self._fits:
            constraints = constraints_of(requests, placement, self._index.is_gpu)
            self._fits[key] = fit(self._index.nodes, constraints)
        return self._fits[key]

    def by_state(
        self,
        requests: Mapping[str, float],
        placement: Placement,
        mine: tuple[Owner, ...] = (),
    ) -> Diagnosis | None:
        """Return what the nodes alone tell; None where one has room, or no node is known.

        `mine` are those whose holdings are the pod's own, see `ClusterIndex.mine`.
        """
        # By owner too: pods of the same owner are not asked to make room.
        key = (*shape_key(requests, placement), mine)
        if key not in self._by_state:
            known = len(self._index.nodes) > 0
            found = self.fit_of(requests, placement)
            around = self._index.around_of(mine)
            self._by_state[key] = diagnose(found, around) if known else None
        return self._by_state[key]

    def _verdict(self, message: str) -> SchedulerMessage:
        if message not in self._verdicts:
            self._verdicts[message] = parse(message)
        return self._verdicts[message]

    def _by_sentence(
        self, seen: ObservedObject, pod: PodSnapshot, verdict: SchedulerMessage
    ) -> Diagnosis | None:
        """Return what a sentence without counts says: the pod was not held against the nodes."""
        cause = cause_of(verdict.sentence) if verdict.sentence else None
        if cause is Cause.VOLUME:
            return _volume(seen.namespace, pod, verdict.sentence)
        if cause is Cause.CLAIM:
            return unallocated(seen.namespace, pod, self._claims, [verdict.sentence], 0)
        if cause is Cause.GANG:
            sentence = says("text", text=verdict.sentence)
            return Diagnosis(Cause.GANG, "gang incomplete", sentences=(sentence,))
        if cause is Cause.PREEMPTION or verdict.caused_by(Cause.PREEMPTION):
            return preempting(pod)
        if not verdict.reasons and "persistentvolumeclaim" in verdict.tail:
            return _volume(seen.namespace, pod, verdict.tail)
        return None

    def _by_nodes(
        self, seen: ObservedObject, pod: PodSnapshot, verdict: SchedulerMessage
    ) -> Diagnosis | None:
        """Return what the nodes tell; None where the scheduler found room and refused it later."""
        # These filters run last, on nodes that had room: capacity is not what they lacked.
        late = [c for c in LATE if verdict.caused_by(c)]
        if late and not insufficient(verdict.reasons) and Cause.CLAIM not in late:
            return None
        # Too few devices is a lack of capacity; a request that no device meets is not.
        if Cause.CLAIM in late and self._picky(pod, verdict):
            return None
        mine = self._index.mine(seen.namespace, pod)
        return self.by_state(pod.requests, pod.placement, mine)

    def _refused_otherwise(self, pod: PodSnapshot, verdict: SchedulerMessage) -> Diagnosis | None:
        """Return that nodes which fit by all that is known were refused in unknown words."""
        unknown = {t: n for t, n in verdict.reasons.items() if cause_of(t) is None}
        if not unknown or any(verdict.caused_by(cause) for cause in LATE):
            return None
        fitting = self.fit_of(pod.requests, pod.placement).now
        # More that fit than were so refused: the rest of the text may be from before.
        known_too = bool(insufficient(verdict.reasons))
        if not fitting or (known_too and fitting.bit_count() > sum(unknown.values())):
            return None
        names = self._index.nodes.names_of(fitting, 10)
        reason = listed(list(unknown))
        step = Suggestion(
            Action.CHECK_NODE, {"nodes": names, "reason": reason}, says("look_at_refusal")
        )
        refused = says("refused_otherwise", nodes=names, reason=reason)
        return Diagnosis(Cause.OTHER, UNKNOWN, sentences=(refused,), suggestions=(step,))

    def _picky(self, pod: PodSnapshot, verdict: SchedulerMessage) -> bool:
        """Say whether no device would do although some are free, or there is no such class."""
        texts = verdict.caused_by(Cause.CLAIM)
        if any("device class" in text or "in use" in text for text in texts):
            return True
        fitting = self.fit_of(pod.requests, pod.placement)
        wanted = self._index.gpus(pod.requests)
        return not wanted or bool(fitting.allowed & fitting.gpu_room) or not fitting.gpu_offering

    def _by_text(
        self, seen: ObservedObject, pod: PodSnapshot, verdict: SchedulerMessage
    ) -> Diagnosis:
        cause = _likeliest(verdict)
        match cause:
            case Cause.CLAIM:
                texts = verdict.caused_by(Cause.CLAIM)
                free = self._free_devices(pod)
                return unallocated(seen.namespace, pod, self._claims, texts, free)
            case Cause.VOLUME:
                return _volume(seen.namespace, pod, listed(verdict.caused_by(Cause.VOLUME)))
            case Cause.SPREAD:
                fitting = self.fit_of(pod.requests, pod.placement)
                return _spread(verdict, self._index.nodes.names_of(fitting.now, 10))
            case Cause.CAPACITY:
                return self._stale(pod, verdict)
            case None:
                return Diagnosis(Cause.OTHER, sentences=(says("unknown_text"),))
        found = verdict.caused_by(cause)
        quoted = says("scheduler_says", reasons=found)
        return Diagnosis(cause, _detail(cause, verdict), sentences=(quoted,))

    def _stale(self, pod: PodSnapshot, verdict: SchedulerMessage) -> Diagnosis:
        short = insufficient(verdict.reasons)
        detail = _short_of(short, self._index.is_gpu)
        asks = says("asks", requests=self._index.gpus(pod.requests))
        fitting = self.fit_of(pod.requests, pod.placement)
        names = self._index.nodes.names_of(fitting.now, 10)
        if not names:
            little = says("finds_too_little", resources=list(short))
            return Diagnosis(Cause.CAPACITY, detail, sentences=(asks, little))
        change = {"what": "binding", "on": names[0]}
        return Diagnosis(
            Cause.CAPACITY,
            detail,
            sentences=(asks, says("room_by_now", nodes=names)),
            suggestions=(Suggestion(Action.WAIT, change, says("wait_for_binding", nodes=names)),),
            blockers=tuple(f"node:{name}" for name in names),
        )

    def _free_devices(self, pod: PodSnapshot) -> int:
        classes = self._index.gpus(pod.requests)
        nodes = self._index.nodes
        return int(sum(nodes.free_in_all(nodes.every, one) for one in classes))


def preempting(pod: PodSnapshot) -> Diagnosis:
    """Return that a pod is pending until the pods that it preempts have gone."""
    on = pod.nominated_node
    return Diagnosis(
        Cause.PREEMPTION,
        "victims terminating",
        sentences=(says("has_preempted", node=on),),
        suggestions=(
            Suggestion(Action.WAIT, {"what": "preemption", "on": on}, says("wait_for_victims")),
        ),
    )


def shape_key(requests: Mapping[str, float], placement: Placement) -> ShapeKey:
    """Return what pods of one shape have in common."""
    return (
        tuple(sorted(requests.items())),
        tuple(sorted(placement.node_selector.items())),
        placement.affinity,
        placement.tolerations,
    )


def _likeliest(verdict: SchedulerMessage) -> Cause | None:
    """Return the cause of a text when the nodes tell none.

    What the late filters turn down had room; then comes what was too small; of the early ones
    (taint, affinity, cordon) that which most nodes have.
    """
    for cause in LATE:
        if verdict.caused_by(cause):
            return cause
    if insufficient(verdict.reasons):
        return Cause.CAPACITY
    counts = {
        cause: sum(verdict.reasons.get(text, 0) for text in verdict.caused_by(cause))
        for cause in _BY_COUNT
    }
    # Of equal counts the first wins: affinity, then taints, then cordons.
    best = max(_BY_COUNT, key=lambda cause: counts[cause])
    return best if counts[best] or verdict.caused_by(best) else None


def _detail(cause: Cause, verdict: SchedulerMessage) -> str:
    match cause:
        case Cause.TAINT:
            return listed([f"{k}={v}" if v else k for k, v in verdict.taints]) or "untolerated"
        case Cause.CORDON:
            return "cordoned"
        case Cause.AFFINITY:
            return "selector"
    return ""


def _short_of(short: Mapping[str, int], is_gpu: Callable[[str], bool]) -> str:
    """Return what a text lacks: GPUs before others, unless more nodes are short of another."""
    others = [r for r in short if not is_gpu(r)]
    gpu = max((n for r, n in short.items() if is_gpu(r)), default=0)
    worst = max(others, key=lambda r: short[r], default="")
    return f"{worst} short" if worst and short[worst] > gpu else NONE_FREE


def _volume(namespace: str, pod: PodSnapshot, text: str) -> Diagnosis:
    name = text.split('"')[1] if text.count('"') > 1 else ""
    missing = "not found" in text and bool(name)
    if missing:
        step = Suggestion(Action.CREATE_VOLUME, {"namespace": namespace, "name": name})
        gone = says("volume_missing", name=name)
        return Diagnosis(Cause.VOLUME, "claim missing", sentences=(gone,), suggestions=(step,))
    # The scheduler often names no claim; then those of the pod are meant.
    names = [name] if name else list(pod.placement.volumes)
    steps = tuple(
        Suggestion(
            Action.CREATE_VOLUME, {"namespace": namespace, "name": one}, says("provide_volume")
        )
        for one in names[:1]
    )
    detail = "unbound" if "unbound" in text or "to bind" in text else "not available there"
    quoted = says("scheduler_says", reasons=[text])
    return Diagnosis(Cause.VOLUME, detail, sentences=(quoted,), suggestions=steps)


def _spread(verdict: SchedulerMessage, names: list[str]) -> Diagnosis:
    found = verdict.caused_by(Cause.SPREAD)
    what = next((w for sign, w in _SPREAD if any(sign in t for t in found)), "topology-spread")
    room = [says("room_otherwise", nodes=names)] if names else []
    return Diagnosis(
        Cause.SPREAD,
        what,
        sentences=(says("scheduler_says", reasons=found), *room),
        suggestions=(Suggestion(Action.RELAX, {"what": what, "nodes": names}),),
    )
