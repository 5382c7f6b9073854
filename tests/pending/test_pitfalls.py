"""Pitfalls of naive readings of what waits (the numbered ones of the facts), each avoided."""

from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import EventSnapshot, ObservedObject, PodSnapshot
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.domain.placement.messages import parse
from tests.pending.cluster_states import AT, GPU, node, only, pod, world
from tests.pending.pending_objects import event, job, turned_away

HOUR = 3600.0


def test_pitfall_23_work_that_a_quota_refused_is_seen_without_a_pod() -> None:
    """A Deployment wants 6 and may have 4: no pod waits, and 2 are wanted."""
    refused = (
        'Error creating: pods "x" is forbidden: exceeded quota: gpus, requested: '
        f"requests.{GPU}=1, used: requests.{GPU}=4, limited: requests.{GPU}=4"
    )
    one = job("serve", wanted=6, pods=4, gpus=1)
    waiting = only(world(one, event("FailedCreate", one, refused)))
    assert waiting.counts is Counts.SUPPRESSED
    assert waiting.requests == {GPU: 2.0}
    assert waiting.diagnosis.cause is Cause.QUOTA


@pytest.mark.parametrize(
    "text",
    [
        "1 node(s) had untolerated taint(s)",
        "1 node(s) had untolerated taint {dedicated: llm}",
        "1 node(s) had taints that the pod didn't tolerate",
    ],
)
def test_pitfall_24_taints_are_known_by_every_wording(text: str) -> None:
    message = f"0/1 nodes are available: {text}. preemption: 0/1 nodes are available."
    waiting = only(world(pod("train", 1, message)))
    assert waiting.diagnosis.cause is Cause.TAINT, "by its text alone: no node is known"


def test_pitfall_25_counts_of_reasons_are_no_partition() -> None:
    """Ten nodes give sixteen reasons: each stands by itself, of ten."""
    found = parse(
        f"0/10 nodes are available: 4 node(s) had untolerated taint(s), 6 Insufficient {GPU}, "
        "6 Insufficient cpu."
    )
    assert found.nodes == 10
    assert sum(found.reasons.values()) == 16
    assert found.reasons[f"Insufficient {GPU}"] == found.reasons["Insufficient cpu"] == 6


def test_pitfall_26_a_wait_is_as_old_as_its_pod_not_as_its_newest_event() -> None:
    """Nine hours of waiting, the newest event minutes old and its first times null."""
    made = AT - 9 * HOUR
    told = pod("train", 1, f"0/1 nodes are available: 1 Insufficient {GPU}.")
    assert isinstance(told.body, PodSnapshot)
    waits = replace(told, body=replace(told.body, created=made))
    late = event("FailedScheduling", waits, "0/1 nodes are available: 1 Insufficient x.")
    fresh = _told(late, first=None, last=AT - 120)
    waiting = only(world(waits, fresh, node("a", 8, 8)))
    assert waiting.since == made
    assert GPU in waiting.diagnosis.message, "the condition comes before the event"


def test_pitfall_27_what_an_autoscaler_says_is_kept_though_it_is_no_warning() -> None:
    waits = pod("train", 1, f"0/1 nodes are available: 1 Insufficient {GPU}.")
    text = "pod didn't trigger scale-up: 1 max node group size reached"
    normal = event("NotTriggerScaleUp", waits, text)
    waiting = only(world(waits, normal, node("a", 8, 8)))
    assert any("max node group size reached" in said for said in waiting.diagnosis.context)


def test_pitfall_28_pods_that_a_kubelet_turns_away_are_one_thing_that_waits() -> None:
    """Forty failed pods of one ReplicaSet that wants one: one waits, not forty and not none."""
    owner = job("serve", wanted=1, pods=0, gpus=1)
    failed = [turned_away(f"serve-{number}", controller=owner.uid) for number in range(40)]
    (waiting,) = diagnose_cluster(world(owner, *failed, node("a", 8, 0)))
    assert waiting.uid == owner.uid
    assert waiting.requests == {GPU: 1.0}
    assert waiting.diagnosis.cause is Cause.ADMISSION
    assert waiting.diagnosis.suggestions


def _told(one: ObservedObject, **values: Any) -> ObservedObject:
    """Return an event told otherwise."""
    assert isinstance(one.body, EventSnapshot)
    return replace(one, body=replace(one.body, **values))
