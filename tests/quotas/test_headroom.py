"""Which quotas count a pod, and what they leave."""

import pytest

from apps.clusters.domain.observed.objects import QuotaScope
from apps.quotas.domain.keys import Asking, Counting, Headroom, Limit, counts, headroom, scope_words

GPU = "nvidia.com/gpu"
KEY = f"requests.{GPU}"
CLASS = "PriorityClass"


@pytest.mark.parametrize(
    ("scope", "asking", "expected"),
    [
        (QuotaScope(CLASS, "In", ("high",)), Asking("high"), True),
        (QuotaScope(CLASS, "In", ("high",)), Asking("low"), False),
        (QuotaScope(CLASS, "In", ("high",)), Asking(), False),
        (QuotaScope(CLASS, "NotIn", ("high",)), Asking("high"), False),
        (QuotaScope(CLASS, "NotIn", ("high",)), Asking("low"), True),
        (QuotaScope(CLASS, "NotIn", ("high",)), Asking(), True),
        (QuotaScope(CLASS, "Exists"), Asking("low"), True),
        (QuotaScope(CLASS, "Exists"), Asking(), False),
        (QuotaScope(CLASS, "DoesNotExist"), Asking(), True),
        (QuotaScope(CLASS, "DoesNotExist"), Asking("low"), False),
        (QuotaScope(CLASS, "Resembles", ("high",)), Asking("high"), None),
        (QuotaScope("Terminating"), Asking(terminating=True), True),
        (QuotaScope("Terminating"), Asking(terminating=False), False),
        (QuotaScope("Terminating"), Asking(), None),
        (QuotaScope("NotTerminating"), Asking(terminating=False), True),
        (QuotaScope("NotTerminating"), Asking(), None),
        (QuotaScope("BestEffort"), Asking(best_effort=False), False),
        (QuotaScope("NotBestEffort"), Asking(best_effort=False), True),
        (QuotaScope("CrossNamespacePodAffinity"), Asking(cross_namespace=True), True),
        (QuotaScope("VolumeAttributesClass", "In", ("gold",)), Asking(), False),
        (QuotaScope("Unheard"), Asking(), None),
    ],
    ids=str,
)
def test_a_scope_takes_a_pod_or_not(
    scope: QuotaScope, asking: Asking, expected: bool | None
) -> None:
    assert counts([scope], asking) is expected


def test_all_scopes_must_take_it() -> None:
    scopes = [QuotaScope(CLASS, "In", ("high",)), QuotaScope("NotTerminating")]
    assert counts(scopes, Asking("high", terminating=False)) is True
    assert counts(scopes, Asking("low")) is False
    assert counts(scopes, Asking("high")) is None
    assert counts([], Asking()) is True


def test_headroom_is_the_least_that_any_matching_quota_leaves() -> None:
    quotas = [
        Limit("wide", {KEY: 16, "requests.cpu": 1}, {KEY: 4}),
        Limit("narrow", {KEY: 8}, {KEY: 6}),
        Limit("high", {KEY: 1}, {KEY: 1}, (QuotaScope(CLASS, "In", ("high",)),)),
    ]
    assert headroom(GPU, Asking(), quotas) == Headroom(2, "narrow", KEY)
    assert headroom(GPU, Asking("high"), quotas) == Headroom(0, "high", KEY)


def test_what_limits_nothing_leaves_no_headroom_to_tell() -> None:
    inert = [Limit("inert", {GPU: 1, f"limits.{GPU}": 1}, {})]
    assert headroom(GPU, Asking(), inert) is None
    assert headroom("amd.com/gpu", Asking(), [Limit("gpus", {KEY: 8}, {})]) is None


def test_a_lowered_limit_leaves_less_than_nothing() -> None:
    assert headroom(GPU, Asking(), [Limit("gpus", {KEY: 2}, {KEY: 8})]) == Headroom(-6, "gpus", KEY)


def test_a_scope_that_cannot_be_told_makes_it_uncertain() -> None:
    quotas = [
        Limit("all", {KEY: 8}, {KEY: 2}),
        Limit("long", {KEY: 3}, {KEY: 2}, (QuotaScope("NotTerminating"),)),
    ]
    assert headroom(GPU, Asking(), quotas) == Headroom(6, "all", KEY, certain=False)
    assert headroom(GPU, Asking(terminating=False), quotas) == Headroom(1, "long", KEY)
    assert headroom(GPU, Asking(terminating=True), quotas) == Headroom(6, "all", KEY)


def test_devices_of_claims_have_a_headroom_of_their_own() -> None:
    key = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    quotas = [Limit("devices", {key: 4, KEY: 1}, {key: 1})]
    found = headroom("gpu.nvidia.com", Asking(), quotas, counting=Counting.CLAIMS)
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
