"""Which quotas count a pod, and what they leave."""

import pytest

from apps.clusters.domain.observed.objects import QuotaScope
from apps.quotas.domain.keys import (
    Counting,
    Headroom,
    NamedQuota,
    ScopedRequest,
    counts,
    headroom,
    scope_words,
)

GPU = "nvidia.com/gpu"
KEY = f"requests.{GPU}"
CLASS = "PriorityClass"


@pytest.mark.parametrize(
    ("scope", "asking", "expected"),
    [
        (QuotaScope(CLASS, "In", ("high",)), ScopedRequest("high"), True),
        (QuotaScope(CLASS, "In", ("high",)), ScopedRequest("low"), False),
        (QuotaScope(CLASS, "In", ("high",)), ScopedRequest(), False),
        (QuotaScope(CLASS, "NotIn", ("high",)), ScopedRequest("high"), False),
        (QuotaScope(CLASS, "NotIn", ("high",)), ScopedRequest("low"), True),
        (QuotaScope(CLASS, "NotIn", ("high",)), ScopedRequest(), True),
        (QuotaScope(CLASS, "Exists"), ScopedRequest("low"), True),
        (QuotaScope(CLASS, "Exists"), ScopedRequest(), False),
        (QuotaScope(CLASS, "DoesNotExist"), ScopedRequest(), True),
        (QuotaScope(CLASS, "DoesNotExist"), ScopedRequest("low"), False),
        (QuotaScope(CLASS, "Resembles", ("high",)), ScopedRequest("high"), None),
        (QuotaScope("Terminating"), ScopedRequest(terminating=True), True),
        (QuotaScope("Terminating"), ScopedRequest(terminating=False), False),
        (QuotaScope("Terminating"), ScopedRequest(), None),
        (QuotaScope("NotTerminating"), ScopedRequest(terminating=False), True),
        (QuotaScope("NotTerminating"), ScopedRequest(), None),
        (QuotaScope("BestEffort"), ScopedRequest(best_effort=False), False),
        (QuotaScope("NotBestEffort"), ScopedRequest(best_effort=False), True),
        (QuotaScope("CrossNamespacePodAffinity"), ScopedRequest(cross_namespace=True), True),
        (QuotaScope("VolumeAttributesClass", "In", ("gold",)), ScopedRequest(), False),
        (QuotaScope("Unheard"), ScopedRequest(), None),
    ],
    ids=str,
)
def test_a_scope_takes_a_pod_or_not(
    scope: QuotaScope, asking: ScopedRequest, expected: bool | None
) -> None:
    assert counts([scope], asking) is expected


def test_all_scopes_must_take_it() -> None:
    scopes = [QuotaScope(CLASS, "In", ("high",)), QuotaScope("NotTerminating")]
    assert counts(scopes, ScopedRequest("high", terminating=False)) is True
    assert counts(scopes, ScopedRequest("low")) is False
    assert counts(scopes, ScopedRequest("high")) is None
    assert counts([], ScopedRequest()) is True


def test_headroom_is_the_least_that_any_matching_quota_leaves() -> None:
    quotas = [
        NamedQuota("wide", {KEY: 16, "requests.cpu": 1}, {KEY: 4}),
        NamedQuota("narrow", {KEY: 8}, {KEY: 6}),
        NamedQuota("high", {KEY: 1}, {KEY: 1}, (QuotaScope(CLASS, "In", ("high",)),)),
    ]
    assert headroom(GPU, ScopedRequest(), quotas) == Headroom(2, "narrow", KEY)
    assert headroom(GPU, ScopedRequest("high"), quotas) == Headroom(0, "high", KEY)


def test_what_limits_nothing_leaves_no_headroom_to_tell() -> None:
    inert = [NamedQuota("inert", {GPU: 1, f"limits.{GPU}": 1}, {})]
    assert headroom(GPU, ScopedRequest(), inert) is None
    assert headroom("amd.com/gpu", ScopedRequest(), [NamedQuota("gpus", {KEY: 8}, {})]) is None


def test_a_lowered_limit_leaves_less_than_nothing() -> None:
    assert headroom(GPU, ScopedRequest(), [NamedQuota("gpus", {KEY: 2}, {KEY: 8})]) == Headroom(
        -6, "gpus", KEY
    )


def test_a_scope_that_cannot_be_told_makes_it_uncertain() -> None:
    quotas = [
        NamedQuota("all", {KEY: 8}, {KEY: 2}),
        NamedQuota("long", {KEY: 3}, {KEY: 2}, (QuotaScope("NotTerminating"),)),
    ]
    assert headroom(GPU, ScopedRequest(), quotas) == Headroom(6, "all", KEY, certain=False)
    assert headroom(GPU, ScopedRequest(terminating=False), quotas) == Headroom(1, "long", KEY)
    assert headroom(GPU, ScopedRequest(terminating=True), quotas) == Headroom(6, "all", KEY)


def test_devices_of_claims_have_a_headroom_of_their_own() -> None:
    key = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    quotas = [NamedQuota("devices", {key: 4, KEY: 1}, {key: 1})]
    found = headroom("gpu.nvidia.com", ScopedRequest(), quotas, counting=Counting.CLAIMS)
    assert found == Headroom(3, "devices", key)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (QuotaScope("Terminating"), "Terminating"),
        (QuotaScope(CLASS, "In", ("high", "urgent")), "PriorityClass In high, urgent"),
        (QuotaScope(CLASS, "DoesNotExist"), "PriorityClass DoesNotExist"),
    ],
    ids=str,
)
def test_scopes_in_words(scope: QuotaScope, words: str) -> None:
    assert scope_words(scope) == words
