"""Pods that a quota or a kubelet refused wait with their controller."""

from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.extract import observed_object
from apps.clusters.domain.observed.objects import (
    Condition,
    ControllerSnapshot,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
    QuotaScope,
    QuotaSnapshot,
)
from apps.clusters.domain.observed.pods import ExtractionContext
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, Cause, Counts
from tests.pending.cluster_states import AT, GPU, only, pod, seen, world
from tests.pending.pending_objects import OUT_OF, REFUSED, ZERO, event, job, turned_away


def quota(name: str, hard: float, used: float, **fields: Any) -> ObservedObject:
    key = f"requests.{GPU}"
    body = QuotaSnapshot(hard={key: hard}, observed_hard={key: hard}, used={key: used}, **fields)
    return seen(ObservedKind.RESOURCE_QUOTA, name, body)


def test_refused_pods_wait_with_their_controller_and_the_quotas_that_block() -> None:
    one = job("train", wanted=3, pods=1)
    unscoped = [quota("gpus", 8, 6), quota("all", 10, 6), quota("wide", 100, 6)]
    scoped = quota("urgent", 1, 1, scopes=(QuotaScope("PriorityClass", "In", ("urgent",)),))
    waiting = only(world(one, event("FailedCreate", one, REFUSED), *unscoped, scoped))
    assert (waiting.kind, waiting.counts, waiting.requests) == (
        "Job",
        Counts.SUPPRESSED,
        {GPU: 8.0},
    )
    assert (waiting.diagnosis.cause, waiting.diagnosis.message) == (Cause.QUOTA, REFUSED)
    changes = [dict(step.change) for step in waiting.diagnosis.suggestions]
    assert [(c["quota"], c["from"], c["to"]) for c in changes] == [
        ("all", 10.0, 14.0),
        ("gpus", 8.0, 14.0),
    ]
    assert waiting.diagnosis.suggestions[1].text.startswith("Also needed: ")


def test_without_the_quota_the_refusal_itself_tells_how_much() -> None:
    failure = Condition("ReplicaFailure", "True", "FailedCreate", REFUSED, AT - 60)
    one = job("train", wanted=2, conditions=(failure,))
    waiting = only(world(one))
    assert waiting.since == AT - 60
    (step,) = waiting.diagnosis.suggestions
    assert (step.change["quota"], step.change["to"]) == ("gpus", 14.0)


def test_a_full_quota_explains_missing_pods_after_the_events_are_gone() -> None:
    assert only(world(job("train"), quota("gpus", 8, 8))).diagnosis.cause is Cause.QUOTA


def test_missing_pods_that_nothing_refused_do_not_wait() -> None:
    assert diagnose_cluster(world(job("train"), quota("gpus", 80, 8))) == []
    assert diagnose_cluster(world(job("done", wanted=2, pods=2), quota("gpus", 1, 1))) == []


def test_a_quota_of_gpus_refuses_pods_of_which_hami_shares_the_gpus() -> None:
    resources = {"limits": {GPU: 1, "nvidia.com/gpumem": 4000}}
    template = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    item = {"metadata": {"uid": "u", "name": "train"}, "spec": {"template": template}}
    found = observed_object(ObservedKind.JOB, item, ExtractionContext(gpu_memory=80_000.0))
    assert isinstance(found, ControllerSnapshot)
    assert GPU not in found.requests, "a part of a GPU is what it holds"
    refused = seen(ObservedKind.JOB, "train", found)
    assert only(world(refused, quota("gpus", 8, 8))).diagnosis.cause is Cause.QUOTA


@pytest.mark.parametrize(
    ("message", "actions"),
    [
        ("failed quota: q: must specify limits.cpu", [Action.SPECIFY]),
        ("denied by a webhook", []),
    ],
)
def test_what_admission_refuses_otherwise_is_admission(message: str, actions: list[Action]) -> None:
    one = job("train")
    why = only(world(one, event("FailedCreate", one, message))).diagnosis
    assert why.cause is Cause.ADMISSION
    assert [step.action for step in why.suggestions] == actions


def test_a_suspended_job_waits_to_be_resumed_or_for_its_queue() -> None:
    assert only(world(job("j", suspended=True))).diagnosis.cause is Cause.ADMISSION
    assert only(world(job("j", suspended=True, queue="main"))).diagnosis.cause is Cause.QUEUE


# ---------------------------------------------------------------- turned away by a kubelet


def test_pods_that_a_kubelet_turned_away_wait_as_one_with_their_controller() -> None:
    one = job("train", wanted=3, pods=1)
    pods = [turned_away(f"t{i}", controller=one.uid) for i in range(5)]
    again = pod("t9", 4, ZERO + "1 Insufficient nvidia.com/gpu.", controller=one.uid)
    waiting = only(world(one, *pods, again), "train")
    assert (waiting.kind, waiting.uid, waiting.diagnosis.cause) == ("Job", one.uid, Cause.ADMISSION)
    assert waiting.requests == {GPU: 12.0}
    assert (waiting.counts, round(waiting.share * 12)) == (Counts.SUPPRESSED, 8)
    assert dict(waiting.diagnosis.suggestions[0].change) == {
        "resource": GPU,
        "amount": 2.0,
        "nodes": ["a"],
    }


def test_a_controller_with_all_its_pods_running_no_longer_waits() -> None:
    one = job("train", wanted=2, pods=2)
    assert diagnose_cluster(world(one, turned_away("t", controller=one.uid))) == []


@pytest.mark.parametrize("controller", ["", "unseen"])
def test_what_nobody_makes_again_adds_to_nothing(controller: str) -> None:
    fields = {"controller": controller, "controller_kind": "Job" if controller else ""}
    (waiting,) = diagnose_cluster(world(turned_away("t", **fields)))
    assert (waiting.counts, waiting.share) == (Counts.NOTHING, 0.0)


def test_a_controller_is_said_once_when_both_quota_and_kubelet_refused() -> None:
    one = job("train", wanted=3, pods=1)
    away = turned_away("t", controller=one.uid)
    waiting = only(world(one, away, event("FailedCreate", one, REFUSED)))
    assert waiting.diagnosis.cause is Cause.QUOTA


def test_a_refusal_by_a_kubelet_with_odd_figures_is_looked_into_on_the_node() -> None:
    one = turned_away("t")
    assert isinstance(one.body, PodSnapshot)
    odd = OUT_OF.replace("used: 6", "used: 1")
    waiting = only(world(replace(one, body=replace(one.body, message=odd))))
    assert waiting.diagnosis.suggestions[0].action is Action.CHECK_NODE


def test_a_quota_of_pods_counts_each_pod_as_one() -> None:
    body = QuotaSnapshot(hard={"pods": 5.0}, used={"pods": 4.0})
    waiting = only(world(job("train", wanted=3), seen(ObservedKind.RESOURCE_QUOTA, "few", body)))
    (step,) = waiting.diagnosis.suggestions
    assert (step.change["key"], step.change["to"]) == ("pods", 7.0)
