"""States of an hour's collection: whether its sources agree, whether it is complete, when to retry.

An outage of some series looks like objects that are not there. One source alone cannot tell the
two apart, several can: devices still name the pods, pods still name their nodes, quotas still
count what is used. A number that is low, or zero, in all of them is true.

Each rule takes what was counted and says what contradicts what. Thresholds are arguments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.resources import counted, gpus
from apps.usage.domain.attribution.attribute_hour import HourFacts

# The codes are stored with the hours: only their words may change.
HOUR_FINDINGS: Mapping[str, str] = {
    "overcommitted": "nodes on which more was held than there is; holdings were scaled to fit",
    "label_without_pod": "rows of devices that name a pod which held nothing: unattributed",
    "label_outlived_pod": "devices whose label was there while its pod did not run; cut from raw "
    "samples",
    "cut_at_pod_times": "shared devices whose pods came or went within a half hour; cut from raw "
    "samples",
    "raw_samples_refused": "devices whose slots could not be cut, as the server gives no raw "
    "samples; graded from series",
    "pods_without_node": "pods that held GPUs on a node that is not known",
    "scrape_interval_differs": "the scrape interval is another than the catalog says",
    "serving_without_pod": "series of inference servers without a label of their pod: not counted",
    "stuck_counter": "devices and half hours in which the profiling counter stayed at 0 on an "
    "active GPU; GPU_UTIL was used instead",
    "no_process_values": "shared devices whose pods all read 0 on an active GPU: the exporter "
    "lacks hostPID",
}
_FIRST = timedelta(minutes=1)
_LONGEST = timedelta(minutes=30)
_PARTIAL_ATTEMPTS = 6
_DAY = timedelta(days=1)
# Under this coverage samples lack that pods coming and going do not explain.
_WHOLE_FROM = 0.995
REQUESTS = "kube_pod_container_resource_requests"
CAPACITY = "kube_node_status_capacity"
RUNNING = "kube_pod_container_state_started and kube_pod_container_status_running"
NODE_LABELS = "kube_node_labels"
_QUOTA = "kube_resourcequota"
# Scrapes at the edges of pods cost a little coverage; below this something is missing.
COMPLETE_FROM = 0.95
_NAMED_NODES = 3
_NOTHING = (
    "no pods and nodes are known for this hour: neither `watch` nor kube-state-metrics was there, "
    "or Prometheus no longer keeps it (see its retention and the matchers in the catalog)"
)


class CollectionState(StrEnum):
    """`waiting` is enqueued or at work; the other three are the outcome of the last attempt."""

    WAITING = "waiting"
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"


def finding_text(code: str, count: int) -> str:
    """Return a finding with how often it was made; a code without words stands as it is."""
    return f"{HOUR_FINDINGS.get(code, code)} ({count})"


def due_again(
    state: CollectionState,
    attempts: int,
    *,
    partials: int = 0,
    last: datetime | None,
    now: datetime,
    again: datetime | None = None,
) -> bool:
    """Say whether to try an hour again that no worker has.

    Hours not tried yet are due at once. After a failure the pauses double from a minute up to half
    an hour, for as long as the hour lies in the span in which gaps are filled. An hour that was
    partial a few times in a row is left: what an exporter never sent does not come back. From
    `again` on an hour is due once more, whatever its state. A try that is to come was noted by a
    clock that was ahead: it says nothing, and could be years off.
    """
    if state is CollectionState.WAITING or last is None:
        return True
    if last > now and state is not CollectionState.COMPLETE:
        return True
    if again is not None and again <= now:
        # Tried since it became due and still due: that try failed, so a pause follows.
        return last < again or now >= last + _LONGEST
    if state is CollectionState.COMPLETE:
        return False
    if state is CollectionState.PARTIAL and partials >= _PARTIAL_ATTEMPTS:
        return False
    # Capped before the power: an hour that fails for weeks has thousands of attempts.
    doubled: int = 2 ** min(max(attempts, 1) - 1, 10)
    return now >= last + min(_FIRST * doubled, _LONGEST)


def next_daily_try(end: datetime, *, retention: timedelta, now: datetime) -> datetime | None:
    """Return when an hour that ended at `end` is tried again, at most once a day.

    None when Prometheus does not keep it until then: what it says then is no longer the hour.
    """
    again = now + _DAY
    return again if again < end + retention else None


def late_recheck(
    end: datetime,
    coverage: float | None,
    *,
    is_partial: bool,
    late: timedelta,
    now: datetime,
) -> datetime | None:
    """Return when to look once more for what came late; None where nothing lacks.

    An hour that is looked at when that time is over is not looked at again. By a clock that is
    ahead all tries of a partial hour may be over before the hour is.
    """
    whole = coverage is None or coverage >= _WHOLE_FROM
    if (whole and not is_partial) or now >= end + late:
        return None
    return end + late


class ReferenceHour(Struct, frozen=True):
    """What an hour that is complete had: GPU nodes, pods, and the series' shares."""

    nodes: int
    pods: int
    shares: Mapping[str, float] = field(default_factory=dict)


class HourEvidence(Struct, frozen=True):
    """What the sources of one hour say, counted where one can be held against another.

    Only slots that were read from series count in it: in the others `watch` saw every change.
    `from_series` says whether there are any.

    `nodes` offer GPUs, `pods` request them. `held_seconds` are those of pods that are bound, and
    `nowhere_seconds` the part on nodes that offer nothing. `named_samples` are samples of devices
    that name a pod, `unknown_samples` those of an unknown pod. `busy_samples` are those of active
    devices that name one, `stopped_samples` the part whose pod held GPUs and did not run. `devices`
    have samples, and `active_devices` of them are active on nodes that offer GPUs; `unheld_devices`
    of these are more than what pods hold on their node. `claims` says whether tiers give devices
    by ResourceClaims, which are in no series. `unlabelled_gpus` are the GPU-equivalents of nodes
    without any label that are many more than the `unlabelled_devices` seen on them.

    `shares` and `nameless` are as in ShownSeries. `incomplete` are warnings of the server.
    `without_devices`: the cluster is known by a job log, to which no device series belong.
    `quota_used` and `quota_unexplained` are units that quotas count as used, and the part that no
    known pod explains; None where they were not read.
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
    devices: int = 0
    active_devices: int = 0
    unheld_devices: int = 0
    claims: bool = False
    unlabelled_gpus: float = 0.0
    unlabelled_devices: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    without_devices: bool = False
    quota_used: float | None = None
    quota_unexplained: float = 0.0

    @property
    def reference(self) -> ReferenceHour:
        """What other hours may be held against, once this one is complete."""
        return ReferenceHour(self.nodes, self.pods, self.shares)


class Thresholds(Struct, frozen=True):
    """`tolerated`: a smaller part of samples or time that does not fit means nothing.

    `fallen`: a count under this part of the reference's is a drop, which needs a second witness.
    `gpus_per_device`: so many GPU-equivalents for each GPU seen are too many.
    """

    tolerated: float = 0.1
    fallen: float = 0.7
    gpus_per_device: float = 1.5


class Contradiction(NamedTuple):
    """`series` are not all there; `text` says which source knows better."""

    series: str
    text: str


def contradictions(
    evidence: HourEvidence, reference: ReferenceHour | None, thresholds: Thresholds
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


def has_fallen(
    evidence: HourEvidence, reference: ReferenceHour | None, thresholds: Thresholds
) -> bool:
    """Say whether there is much less than there was: true, or an outage that all sources share.

    Without a reference only an hour without any pod is doubted.
    """
    if reference is None:
        return not evidence.pods
    return (
        evidence.nodes < thresholds.fallen * reference.nodes
        or evidence.pods < thresholds.fallen * reference.pods
    )


_Findings = Iterator[Contradiction]
_Rule = Callable[[HourEvidence, ReferenceHour | None, Thresholds], _Findings]


def _nameless(one: HourEvidence, _: ReferenceHour | None, __: Thresholds) -> _Findings:
    """Series without the labels that tell objects apart are one object each: nothing adds up."""
    for metric in one.nameless:
        yield Contradiction(metric, "its series come without the labels of pods or nodes")


def _warned(one: HourEvidence, reference: ReferenceHour | None, t: Thresholds) -> _Findings:
    """The server itself says that its answer lacks something, and there is less than there was.

    Where there is as much as before, what lacks may be of no concern here: another cluster's store.
    """
    if one.incomplete and reference is not None and has_fallen(one, reference, t):
        yield Contradiction(
            "answers of the metrics server",
            f"it says that they are not whole ({one.incomplete[0]})",
        )


def _unknown_pods(one: HourEvidence, _: ReferenceHour | None, t: Thresholds) -> _Findings:
    """Exporters and kube-state-metrics learn of pods in different ways: both see the same pods."""
    if one.unknown_samples > t.tolerated * one.named_samples:
        share = one.unknown_samples / one.named_samples
        yield Contradiction(
            REQUESTS,
            f"{share:.0%} of the device samples with a pod name a pod that it does not show (is "
            "kube-state-metrics limited to some namespaces?)",
        )


def _stopped(one: HourEvidence, _: ReferenceHour | None, t: Thresholds) -> _Findings:
    """A pod whose containers do not run makes no device active."""
    if one.stopped_samples > t.tolerated * one.busy_samples:
        share = one.stopped_samples / one.busy_samples
        yield Contradiction(
            RUNNING, f"{share:.0%} of the samples of active devices name a pod that does not run"
        )


def _pods_without_nodes(one: HourEvidence, _: ReferenceHour | None, t: Thresholds) -> _Findings:
    """A pod is bound to a node that offers its requests."""
    if one.nowhere_seconds > t.tolerated * one.held_seconds:
        share = one.nowhere_seconds / one.held_seconds
        yield Contradiction(
            CAPACITY, f"{share:.0%} of what pods hold is on nodes of which it shows no GPUs"
        )


def _no_capacity(one: HourEvidence, _: ReferenceHour | None, __: Thresholds) -> _Findings:
    """Devices are on nodes. Only those given by claims are on nodes that offer no resource."""
    if one.devices and not one.nodes and not one.claims:
        yield Contradiction(CAPACITY, f"{one.devices} devices have samples and no node offers GPUs")


def _nobody(one: HourEvidence, _: ReferenceHour | None, t: Thresholds) -> _Findings:
    """Something makes devices active: without a single pod on the cluster that is unlikely."""
    if not one.held_seconds and one.active_devices > t.tolerated * one.devices:
        yield Contradiction(
            REQUESTS, f"{one.active_devices} devices are active and it shows no pod that holds one"
        )


def _too_few(one: HourEvidence, reference: ReferenceHour | None, t: Thresholds) -> _Findings:
    """Where there are much fewer pods than there were, devices do not stay active without them."""
    if (
        reference is not None
        and has_fallen(one, reference, t)
        and one.unheld_devices > t.tolerated * one.devices
    ):
        yield Contradiction(
            REQUESTS,
            f"{one.unheld_devices} active devices are more than its pods hold, with "
            f"{counted(one.pods, 'pod')} after {reference.pods} in the last complete hour",
        )


def _quota(one: HourEvidence, _: ReferenceHour | None, t: Thresholds) -> _Findings:
    """What a ResourceQuota counts as used are pods, as the API server itself counts them."""
    if one.quota_used and one.quota_unexplained > t.tolerated * one.quota_used:
        share = one.quota_unexplained / one.quota_used
        yield Contradiction(
            REQUESTS, f"its pods explain not {share:.0%} of what {_QUOTA} has as used"
        )


def _fewer_series(one: HourEvidence, reference: ReferenceHour | None, t: Thresholds) -> _Findings:
    """A metric that every object has does not lack for many of them, where it was there before."""
    for metric, before in sorted(reference.shares.items() if reference else ()):
        share = one.shares.get(metric)
        # None: the hour has no such objects, which contradicts nothing.
        if share is not None and share < t.fallen * before:
            yield Contradiction(
                metric,
                f"{share:.0%} of the objects have it, {before:.0%} in the last complete hour",
            )


def _unlabelled(one: HourEvidence, _: ReferenceHour | None, __: Thresholds) -> _Findings:
    """Labels say that units are shares of a GPU: without them each counts as a whole one."""
    if one.unlabelled_devices:
        yield Contradiction(
            NODE_LABELS,
            f"nodes without labels offer {gpus(one.unlabelled_gpus)} on "
            f"{counted(one.unlabelled_devices, 'physical GPU')}: which units share a GPU is not "
            "known",
        )


# Of several findings about a series the first is told: the plainest reasons come first.
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


_NO_EVIDENCE = HourEvidence()
_USUAL = Thresholds()


class HourVerdict(Struct, frozen=True):
    """`coverage_ratio` is None when nothing ran; `error` is empty when all is well.

    `withheld`: the sources contradict each other, so that no figure of the hour is to be shown.
    """

    state: CollectionState
    coverage_ratio: float | None
    error: str
    withheld: bool = False


def judge(
    facts: HourFacts,
    *,
    slots_without_ledger: int,
    device_rows: int,
    evidence: HourEvidence = _NO_EVIDENCE,
    reference: ReferenceHour | None = None,
    thresholds: Thresholds = _USUAL,
) -> HourVerdict:
    """Judge an hour: complete, partial, or failed when there is nothing to tell of it.

    An hour in which somebody looked and no node with GPUs was there is complete: clusters are
    scaled to zero.

    `slots_without_ledger` counts half hours in which neither `watch` nor kube-state-metrics
    was there; `device_rows` the device series found. `evidence` is held against itself and
    against `reference`, the nearest complete hour: where sources contradict each other the hour
    is partial, whatever the figures are.
    """
    total = facts.total()
    coverage = total.coverage_ratio
    against = contradictions(evidence, reference, thresholds)
    if against:
        return HourVerdict(CollectionState.PARTIAL, coverage, _contradicted(against), withheld=True)
    if not total.capacity and slots_without_ledger:
        return HourVerdict(CollectionState.FAILED, None, _NOTHING)
    # One stands for all: each query of an outage may bring a warning of its own.
    reasons = [f"the metrics server warns: {text}" for text in evidence.incomplete[:1]]
    if slots_without_ledger:
        reasons.append(
            "pods and nodes are unknown for part of the hour: neither `watch` nor "
            "kube-state-metrics was there; see that both run and that Prometheus scrapes the latter"
        )
    if coverage is not None and coverage < COMPLETE_FROM and not evidence.without_devices:
        reasons.append(_uncovered(facts, 1.0 - coverage, device_rows))
    state = CollectionState.PARTIAL if reasons else CollectionState.COMPLETE
    return HourVerdict(state, coverage, "; ".join(reasons))


def _contradicted(against: Sequence[Contradiction]) -> str:
    found = "; ".join(f"{one.series}: {one.text}" for one in against)
    return (
        f"sources contradict each other, so the hour has no figures. {found}. See that "
        "kube-state-metrics and Prometheus ran; the hour is tried again while Prometheus keeps it"
    )


def _uncovered(facts: HourFacts, missing: float, device_rows: int) -> str:
    if not device_rows:
        return (
            "no device samples at all: see that dcgm-exporter runs, that Prometheus scrapes it, "
            "and that the matchers in the catalog fit its labels"
        )
    nodes = ", ".join(facts.least_measured_nodes(_NAMED_NODES))
    return (
        f"{missing:.1%} of the running GPU time has no device samples, most on {nodes}: see "
        "that dcgm-exporter runs there and that its pods are labelled"
    )
