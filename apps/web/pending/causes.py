"""Causes of waiting as pages show them: words, classes with a colour and a pattern of their own.

The causes that are for whoever asks to mend are one class; each cause that counts as demand has
its own. See docs/definitions.md#pending.
"""

from dataclasses import dataclass

from apps.pending.domain.diagnosis import OF_DEMAND, Cause
from apps.web.components.ledger import LedgerClass

CAPACITY = LedgerClass("wait_capacity", "Capacity", "nodes that may take it have too little free")
QUOTA = LedgerClass("wait_quota", "Quota", "a ResourceQuota refuses its pods or claims", "/")
QUEUE = LedgerClass("wait_queue", "Queue", "a queue or a scheduling gate holds it")
GANG = LedgerClass("wait_gang", "Gang", "it starts only with others, and not all fit", "x")
PREEMPTION = LedgerClass(
    "wait_preemption", "Preemption", "pods that must go for it are still there"
)
MISCONFIGURED = LedgerClass(
    "wait_mend",
    "To mend",
    "for whoever asks to mend: selector, taint, cordon, spread, claim, volume and the like",
    "/",
)
SERIES = LedgerClass("wait_series", "From series", "before the watch: series tell no cause")
OTHER = LedgerClass("wait_other", "Other", "the cause cannot be told", "x")
CLASSES = (CAPACITY, QUOTA, QUEUE, GANG, PREEMPTION, MISCONFIGURED, SERIES, OTHER)

_OF_DEMAND = {
    Cause.CAPACITY: CAPACITY,
    Cause.QUOTA: QUOTA,
    Cause.QUEUE: QUEUE,
    Cause.GANG: GANG,
    Cause.PREEMPTION: PREEMPTION,
    Cause.UNSCHEDULABLE: SERIES,
    Cause.UNRECORDED: SERIES,
}
MEANINGS = {
    Cause.CAPACITY: "nodes that may take it have too little free",
    Cause.QUOTA: "a ResourceQuota refuses its pods or claims",
    Cause.QUEUE: "a queue or a scheduling gate holds it",
    Cause.AFFINITY: "no node matches its selector or affinity",
    Cause.TAINT: "it does not tolerate a taint of the nodes",
    Cause.CORDON: "the nodes that could take it are cordoned",
    Cause.SPREAD: "anti-affinity, topology spread or a host port leaves no node",
    Cause.TOPOLOGY: "the kubelet could not align its devices",
    Cause.GANG: "it starts only with others, and not all fit",
    Cause.CLAIM: "a ResourceClaim is missing or no device satisfies it",
    Cause.VOLUME: "a volume is missing or cannot be bound",
    Cause.PREEMPTION: "pods that must go for it are still there",
    Cause.SCHEDULER: "no scheduler has looked at it",
    Cause.ADMISSION: "a kubelet or an admission check refused it",
    Cause.STARTING: "bound to a node and not running yet",
    Cause.OTHER: "the cause cannot be told",
    Cause.UNSCHEDULABLE: "before the watch: series show that a scheduler refused it",
    Cause.UNRECORDED: "before the watch: series tell no cause",
}
NAMES = tuple(cause.value for cause in Cause)


@dataclass(frozen=True, slots=True)
class Badge:
    """A cause in a list: its name, the detail beside it, and what it means."""

    cause: str
    detail: str
    meaning: str
    css: str


def class_of(cause: str) -> LedgerClass:
    """Return the class of a cause; of one that is not known here that of `other`."""
    try:
        known = Cause(cause)
    except ValueError:
        return OTHER
    if known in OF_DEMAND:
        return _OF_DEMAND[known]
    return OTHER if known is Cause.OTHER else MISCONFIGURED


def badge(cause: str, detail: str) -> Badge:
    """Return the badge of a cause."""
    meaning = MEANINGS.get(Cause(cause), "") if cause in NAMES else ""
    return Badge(cause, detail, meaning, class_of(cause).css)


def of_asker(cause: str) -> bool:
    """Say whether it is for whoever asks to mend."""
    return class_of(cause) is MISCONFIGURED and cause != Cause.STARTING
