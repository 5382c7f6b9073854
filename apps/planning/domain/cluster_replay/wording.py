"""The sentences of what a replay of a cluster takes for granted."""

from collections.abc import Mapping

from apps.planning.domain.cluster_replay.inputs import Packing
from apps.planning.domain.cluster_replay.inputs import ReplayAssumption as Assumption

_TEXTS: Mapping[Assumption, str] = {
    Assumption.SAME_DEMAND: (
        "The same work is requested at the same times and runs as long as it did. Demand does not "
        "follow supply."
    ),
    Assumption.WHOLE_GANGS: "All pods of a gang start together, or none does.",
    Assumption.GREEDY_PLACEMENT: (
        "Each pod takes the best node at that moment. Running pods are never moved."
    ),
    Assumption.RECORDED_NODES: "Work takes the nodes that it ran on where these have room.",
    Assumption.SMALL_PASSES: "Small work may pass large work that does not fit.",
    Assumption.STRICT_ORDER: "Work that does not fit lets no later work of its tier pass.",
    Assumption.KUEUE_ORDER: (
        "Queues admit as Kueue does: work within nominal quota before work that borrows, then by "
        "priority, then the oldest. Flavors are tried in their order."
    ),
    Assumption.FAIR_SHARING: (
        "Queues admit as Kueue does with fair sharing: work within nominal quota first, by "
        "priority, then the oldest. Of work that borrows, that of the queue with the least share "
        "comes first, whatever its priority. Flavors are tried in their order. Weights of cohorts "
        "are not followed."
    ),
    Assumption.VICTIMS_BY_PRIORITY: (
        "Fair sharing does not choose who is preempted: of queues that borrow, work of the lowest "
        "priority goes first, then the newest. Kueue would preempt by share."
    ),
    Assumption.RESTARTS: "Preempted work starts again from its beginning.",
    Assumption.PREEMPTION_CIRCLES: (
        "Some queues preempt one another's work in a circle. Work that is preempted three times at "
        "one moment returns to its queue when something else changes."
    ),
    Assumption.NO_PREEMPTION: "Nothing is preempted.",
    Assumption.OPEN_END: "Work whose end is not known holds its GPUs until the replay ends.",
    Assumption.RUNNING_KEEPS: "What ran at the start goes on running where it fits.",
    Assumption.START_DELAYS: (
        "Delays that neither quota nor room explains, and admission checks, last as long as they "
        "did. While it is checked work holds its quota."
    ),
    Assumption.IDLE_ENDED: "Work that is idle until its end is ended at the idle-time limit.",
    Assumption.NO_OTHER_RESOURCES: "CPU and memory are never short, only GPUs are.",
    Assumption.NODES_FROM_SERIES: (
        "From series: nodes before the first watch, with their capacity to the hour. They have the "
        "labels and taints that the watch found later."
    ),
    Assumption.LABELS_UNKNOWN: (
        "Of nodes that no watch ever saw, labels and taints are unknown, but for those of their "
        "tier. Work that selects nodes is not placed exactly on them."
    ),
    Assumption.PENDING_FROM_SERIES: (
        "From series: queue times before the first watch, from creation to binding of pods. "
        "Blocked work without pods, gangs, priorities and node selectors are unknown there."
    ),
    Assumption.DELAYS_FROM_SERIES: (
        "From series: some work was pending though it had quota and a node had room. What held it "
        "up is unknown, and lasts as long as it did."
    ),
    Assumption.LIMITS_UNKNOWN: (
        "On clusters without a watch, limits of queues and namespaces are unknown: none is applied."
    ),
    Assumption.LIMITS_AS_WATCHED: (
        "Limits of queues and namespaces before the first watch are taken to be as it found them. "
        "Work is in the queue that leads its namespace to its tier, where one alone does."
    ),
    Assumption.BORROWERS_WAIT: (
        "Work that has to borrow preempts nothing in its cohort, though a queue allows it (Kueue: "
        "borrowWithinCohort)."
    ),
    Assumption.EQUALS_STAY: (
        "Work preempts only lower priority in its queue, though a queue also allows newer work of "
        "equal priority (Kueue: LowerOrNewerEqualPriority)."
    ),
    Assumption.FLAVORS_FIRST: (
        "All flavors are tried before work is preempted, though a queue preempts first (Kueue: "
        "whenCanPreempt)."
    ),
    Assumption.NO_FAIR_SHARING: (
        "Weights of fair sharing in Kueue are not applied, neither to admission nor to preemption."
    ),
}


def assumption_text(assumption: Assumption) -> str:
    """Return the sentence of an assumption."""
    return _TEXTS[assumption]


_PACKING: Mapping[Packing, str] = {
    Packing.PACK: "work goes to the fullest node with room",
    Packing.SPREAD: "work goes to the emptiest node",
    Packing.FIRST: "work goes to the first node with room",
}


def packing_text(packing: Packing) -> str:
    """Return how nodes are chosen, as a part of a sentence."""
    return _PACKING[packing]
