"""Whether the sources of an hour contradict each other.

An outage of some series looks like objects that are not there. One source alone cannot tell the
two apart, several can: devices still name the pods, pods still name their nodes, quotas still
count what is used. A number that is low, or zero, in all of them is true.

Each rule takes what was counted and says what contradicts what. Thresholds are arguments.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.clusters.domain.quantities import counted, gpus

REQUESTS = "kube_pod_container_resource_requests"
CAPACITY = "kube_node_status_capacity"
RUNNING = "kube_pod_container_state_started and kube_pod_container_status_running"
NODE_LABELS = "kube_node_labels"
_QUOTA = "kube_resourcequota"


@dataclass(frozen=True, slots=True)
class Reference:
    """What an hour that is complete had: GPU nodes, pods, and the series' shares."""

    nodes: int
    pods: int
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the sources of one hour say, counted where one can be held against another.

    Only slots that were read from series count in it: in the others `watch` saw every change.
    `from_series` says whether there are any.

    `nodes` offer GPUs, `pods` ask for them. `held_seconds` are those of pods that are bound, and
    `nowhere_seconds` the part on nodes that offer nothing. `named_samples` are samples of devices
    that name a pod, `unknown_samples` those whose pod nobody knows. `busy_samples` are those of
    active devices that name one, `stopped_samples` the part whose pod held GPUs and did not run.
    `cards` have samples, and
    `active_cards` of them are active on nodes that offer GPUs; `unheld_cards` of these are more
    than what pods hold on their node. `claims` says whether tiers give
    devices by ResourceClaims, which are in no series. `unlabelled_gpus` are the GPU-equivalents of
    nodes without any label that are many more than the `unlabelled_cards` seen on them.

    `shares` and `nameless` are as in ShownSeries. `incomplete` are warnings of the server.
    `quota_used` and `quota_unexplained` are units that quotas count as used, and the part that no
    known pod explains; None where nobody asked.
    """

    from_series: bool = False
    nodes: int = 0
    pods: int = 0
    held_seconds: float = 0.0
    nowhere_seconds: float = 0.0
    named_samples: int = 0
    unknown_samples: int = 0
    busy_samples: int = 0
    stopped_samples: int = 0
    cards: int = 0
    active_cards: int = 0
    unheld_cards: int = 0
    claims: bool = False
    unlabelled_gpus: float = 0.0
    unlabelled_cards: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    quota_used: float | None = None
    quota_unexplained: float = 0.0

    @property
    def reference(self) -> Reference:
        """What other hours may be held against, once this one is complete."""
        return Reference(self.nodes, self.pods, self.shares)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """`tolerated`: a smaller part of samples or time that does not fit means nothing.

    `fallen`: a count under this part of the reference's is a drop, which needs a second witness.
    `cards`: so many GPU-equivalents for each card seen are too many.
    """

    tolerated: float = 0.1
    fallen: float = 0.7
    cards: float = 1.5


class Contradiction(NamedTuple):
    """`series` are not all there; `text` says which source knows better."""

    series: str
    text: str


def contradictions(
    evidence: Evidence, reference: Reference | None, thresholds: Thresholds
) -> list[Contradiction]:
    """Return what the sources of an hour say against each other, each series once.

    `reference` is the nearest complete hour, None where there is none.
    """
    found: dict[str, Contradiction] = {}
    if evidence.from_series:
        for rule in _RULES:
            for one in rule(evidence, reference, thresholds):
                found.setdefault(one.series, one)
    return list(found.values())


def has_fallen(evidence: Evidence, reference: Reference | None, thresholds: Thresholds) -> bool:
    """Say whether there is much less than there was: true, or an outage that all sources share.

    Without a reference only an hour without any pod is doubted.
    """
    if reference is None:
        return not evidence.pods
    return (
        evidence.nodes < thresholds.fallen * reference.nodes
        or evidence.pods < thresholds.fallen * reference.pods
    )


_Rule = Callable[[Evidence, Reference | None, Thresholds], Iterator[Contradiction]]


def _nameless(one: Evidence, _: Reference | None, __: Thresholds) -> Iterator[Contradiction]:
    """Series without the labels that tell objects apart are one object each: nothing adds up."""
    for metric in one.nameless:
        yield Contradiction(metric, "its series come without the labels of pods or nodes")


def _warned(one: Evidence, reference: Reference | None, t: Thresholds) -> Iterator[Contradiction]:
    """The server itself says that its answer lacks something, and there is less than there was.

    Where there is as much as before, what lacks may be of no concern here: another cluster's store.
    """
    if one.incomplete and reference is not None and has_fallen(one, reference, t):
        yield Contradiction(
            "answers of the metrics server",
            f"it says that they are not whole ({one.incomplete[0]})",
        )


def _unknown_pods(one: Evidence, _: Reference | None, t: Thresholds) -> Iterator[Contradiction]:
    """Exporters and kube-state-metrics learn of pods in different ways: both see the same pods."""
    if one.unknown_samples > t.tolerated * one.named_samples:
        share = one.unknown_samples / one.named_samples
        yield Contradiction(
            REQUESTS,
            f"{share:.0%} of the device samples with a pod name a pod that it does not show (is "
            "kube-state-metrics limited to some namespaces?)",
        )


def _stopped(one: Evidence, _: Reference | None, t: Thresholds) -> Iterator[Contradiction]:
    """A pod whose containers do not run makes no device busy."""
    if one.stopped_samples > t.tolerated * one.busy_samples:
        share = one.stopped_samples / one.busy_samples
        yield Contradiction(
            RUNNING, f"{share:.0%} of the samples of active devices name a pod that does not run"
        )


def _pods_without_nodes(
    one: Evidence, _: Reference | None, t: Thresholds
) -> Iterator[Contradiction]:
    """A pod is bound to a node that offers what it asks for."""
    if one.nowhere_seconds > t.tolerated * one.held_seconds:
        share = one.nowhere_seconds / one.held_seconds
        yield Contradiction(
            CAPACITY, f"{share:.0%} of what pods hold is on nodes of which it shows no GPUs"
        )


def _no_capacity(one: Evidence, _: Reference | None, __: Thresholds) -> Iterator[Contradiction]:
    """Devices are on nodes. Only those given by claims are on nodes that offer no resource."""
    if one.cards and not one.nodes and not one.claims:
        yield Contradiction(CAPACITY, f"{one.cards} devices have samples and no node offers GPUs")


def _nobody(one: Evidence, _: Reference | None, t: Thresholds) -> Iterator[Contradiction]:
    """Somebody makes devices busy: not one pod on all the cluster is unlikely."""
    if not one.held_seconds and one.active_cards > t.tolerated * one.cards:
        yield Contradiction(
            REQUESTS, f"{one.active_cards} devices are active and it shows no pod that holds one"
        )


def _too_few(one: Evidence, reference: Reference | None, t: Thresholds) -> Iterator[Contradiction]:
    """Where there are much fewer pods than there were, devices do not stay active without them."""
    if (
        reference is not None
        and has_fallen(one, reference, t)
        and one.unheld_cards > t.tolerated * one.cards
    ):
        yield Contradiction(
            REQUESTS,
            f"{one.unheld_cards} active devices are more than its pods hold, with "
            f"{one.pods} pods after {reference.pods} in the last complete hour",
        )


def _quota(one: Evidence, _: Reference | None, t: Thresholds) -> Iterator[Contradiction]:
    """What a ResourceQuota counts as used are pods, as the API server itself counts them."""
    if one.quota_used and one.quota_unexplained > t.tolerated * one.quota_used:
        share = one.quota_unexplained / one.quota_used
        yield Contradiction(
            REQUESTS, f"its pods explain not {share:.0%} of what {_QUOTA} has as used"
        )


def _fewer_series(
    one: Evidence, reference: Reference | None, t: Thresholds
) -> Iterator[Contradiction]:
    """A metric that every object has does not lack for many of them, where it was there before."""
    for metric, before in sorted(reference.shares.items() if reference else ()):
        share = one.shares.get(metric)
        if share is not None and share < t.fallen * before:
            yield Contradiction(
                metric,
                f"{share:.0%} of the objects have it, {before:.0%} in the last complete hour",
            )


def _unlabelled(one: Evidence, _: Reference | None, __: Thresholds) -> Iterator[Contradiction]:
    """Labels say that units are shares of a card: without them each counts as a whole one."""
    if one.unlabelled_cards:
        yield Contradiction(
            NODE_LABELS,
            f"nodes without labels offer {gpus(one.unlabelled_gpus)} on "
            f"{counted(one.unlabelled_cards, 'card')}: which units share a card is not known",
        )


_RULES: tuple[_Rule, ...] = (
    _nameless,
    _unknown_pods,
    _nobody,
    _too_few,
    _quota,
    _stopped,
    _pods_without_nodes,
    _no_capacity,
    _fewer_series,
    _unlabelled,
    _warned,
)
