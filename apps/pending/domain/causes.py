"""Why something waits: the closed list of causes, and what each counts as."""

from enum import StrEnum


class Cause(StrEnum):
    """The causes that the portal tells apart; what exactly is the matter is said beside."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    QUEUE = "queue"
    AFFINITY = "affinity"
    TAINT = "taint"
    CORDON = "cordon"
    SPREAD = "spread"
    TOPOLOGY = "topology"
    GANG = "gang"
    CLAIM = "claim"
    VOLUME = "volume"
    PREEMPTION = "preemption"
    SCHEDULER = "scheduler"
    ADMISSION = "admission"
    STARTING = "starting"
    OTHER = "other"
    UNSCHEDULABLE = "unschedulable"
    UNRECORDED = "unrecorded"


FROM_SERIES = frozenset({Cause.UNSCHEDULABLE, Cause.UNRECORDED})
"""Causes of pods that nobody watched pending: series tell at most that a scheduler refused them."""
OF_DEMAND = FROM_SERIES | {
    *(Cause.CAPACITY, Cause.QUOTA, Cause.QUEUE, Cause.GANG, Cause.PREEMPTION),
}
"""Causes that count as demand for fairness; of the others the workload's owner is the cause."""


class Counts(StrEnum):
    """What an episode's GPUs add to; a gang and its pods are counted once (by top owner).

    `pending`: pods that are not bound. `suppressed`: work refused or held before a pod existed.
    `starting`: bound and not running yet, which the ledger counts as allocated. `nothing`: what
    others stand for, as a claim whose pod waits, or that asks for no GPU any more.
    """

    PENDING = "pending"
    SUPPRESSED = "suppressed"
    STARTING = "starting"
    NOTHING = "nothing"


class Outcome(StrEnum):
    """How an episode ended; empty while it lasts. `gave_up` went without ever having started."""

    STARTED = "started"
    GAVE_UP = "gave_up"
    REFUSED = "refused"
    SETTLED = "settled"
