"""Messages of the scheduler, the API server and the kubelet about a pod, read into their parts.

The grammar and the texts of the scheduler are those of its FitError and of its plug-ins, of old
and new versions (facts, sections 5.1 and 5.2). A message of another shape is kept as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from apps.pending.domain.diagnosis import Cause

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
_SIMILAR = "(combined from similar events): "

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


@dataclass(frozen=True, slots=True)
class SchedulerMessage:
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
    text = message.replace(_SIMILAR, "", 1).strip()
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


# Thousands of pods share a few texts, and each refresh asks for all of them again.
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


@dataclass(frozen=True, slots=True)
class Refusal:
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
