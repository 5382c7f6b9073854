"""What queues may hold, with what others lend."""

from math import inf

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.domain.observed.extract import observed_object
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    CohortSnapshot,
    FlavorQuota,
    FlavorUse,
    KaiQueueSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    VolcanoQueueSnapshot,
)
from apps.quotas.domain.limits import kai_limits, kueue_limits, set_limits, volcano_limits

GPU = "nvidia.com/gpu"


def queue(
    name: str,
    nominal: float,
    *,
    cohort: str = "lab",
    borrowing: float | None = None,
    lending: float | None = None,
    used: float = 0.0,
) -> ObservedObject:
    body = ClusterQueueSnapshot(
        cohort=cohort,
        quotas=(FlavorQuota("a100", GPU, nominal, borrowing, lending),),
        reserved=(FlavorUse("a100", GPU, used + 1),),
        used=(FlavorUse("a100", GPU, used, max(0.0, used - nominal)),),
        weight=2.0,
    )
    return ObservedObject(ObservedKind.CLUSTER_QUEUE, f"uid-{name}", "", name, body, 0, 0)


@pytest.mark.parametrize(
    ("first", "second", "ceiling"),
    [
        (queue("one", 8), queue("two", 4), 12),
        (queue("one", 8, borrowing=2), queue("two", 4), 10),
        (queue("one", 8, borrowing=0), queue("two", 4), 8),
        (queue("one", 8), queue("two", 4, lending=1), 9),
        (queue("one", 8, borrowing=3), queue("two", 4, lending=1), 9),
        (queue("one", 8), queue("two", 4, lending=0), 8),
        (queue("one", 8), queue("two", 4, cohort="other"), 8),
        (queue("one", 8, cohort=""), queue("two", 4), 8),
    ],
    ids=[
        "all that the other has", "its borrowing limit", "may not borrow", "the lending limit",
        "the lesser of both", "nothing lent", "another cohort", "no cohort",
    ],
)  # fmt: skip
def test_the_ceiling_is_nominal_and_what_may_be_borrowed(
    first: ObservedObject, second: ObservedObject, ceiling: float
) -> None:
    found = {limit.name: limit for limit in kueue_limits([first, second])}
    assert found["one"].hard == 8
    assert found["one"].ceiling == ceiling


def test_a_cohort_lends_its_own_quota_too() -> None:
    own = CohortSnapshot(quotas=(FlavorQuota("a100", GPU, 5),))
    cohort = ObservedObject(ObservedKind.COHORT, "uid-lab", "", "lab", own, 0, 0)
    assert kueue_limits([queue("one", 8), cohort])[0].ceiling == 13


def test_reserved_used_and_borrowed_are_told_apart() -> None:
    one = kueue_limits([queue("one", 8, used=10), queue("two", 4)])[0]
    assert (one.used, one.reserved, one.borrowed) == (10, 11, 2)
    assert (one.key, one.cohort, one.weight) == ("a100/nvidia.com/gpu", "lab", 2)


def test_a_queue_without_status_has_no_use_to_tell() -> None:
    body = ClusterQueueSnapshot(quotas=(FlavorQuota("a100", GPU, 8), FlavorQuota("a100", "cpu", 1)))
    found = kueue_limits([ObservedObject(ObservedKind.CLUSTER_QUEUE, "u", "", "one", body, 0, 0)])
    assert [(one.resource, one.used, one.borrowed) for one in found] == [
        (GPU, None, None),
        ("cpu", None, None),
    ]


def test_volcano_queues_have_a_capability_and_a_deserved_share() -> None:
    body = VolcanoQueueSnapshot(
        capability={GPU: 8}, deserved={GPU: 4}, guarantee={GPU: 2}, allocated={GPU: 5}, weight=3
    )
    found = volcano_limits("vision", body)
    assert [(one.key, one.hard, one.used, one.ceiling, one.guarantee) for one in found] == [
        ("capability/nvidia.com/gpu", 8, 5, 8, 2),
        ("deserved/nvidia.com/gpu", 4, 5, 8, 2),
    ]
    open_ended = volcano_limits("open", VolcanoQueueSnapshot(deserved={GPU: 4}))
    assert [(one.ceiling, one.used) for one in open_ended] == [(None, 0)]


def test_kai_queues_have_a_limit_and_a_quota_where_they_are_set() -> None:
    body = KaiQueueSnapshot(parent="research", quota=4, limit=8, weight=2, allocated={GPU: 5})
    found = kai_limits("vision", body)
    assert [(one.key, one.hard, one.used, one.ceiling, one.guarantee) for one in found] == [
        ("limit/nvidia.com/gpu", 8, 5, 8, 4),
        ("quota/nvidia.com/gpu", 4, 5, 8, 4),
    ]
    assert kai_limits("open", KaiQueueSnapshot()) == []
    seen = ObservedObject(ObservedKind.KAI_QUEUE, "u", "", "vision", body, 0, 0)
    assert [one[2:] for one in set_limits(seen)] == [
        ("limit/nvidia.com/gpu", 8),
        ("quota/nvidia.com/gpu", 4),
    ]


def test_queues_of_kai_are_read_as_the_watch_has_them() -> None:
    """A department of Run:ai and its project, in which a pod holds half of a GPU."""
    without, fair = {"quota": -1, "limit": -1}, {"overQuotaWeight": 1}
    resources = {"cpu": without | fair, "memory": without | fair}
    department = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "research", "labels": {"run.ai/department-queue": "true"}},
        "spec": {
            "displayName": "Research",
            "resources": {**resources, "gpu": {"quota": 12.5, "limit": -1, **fair}},
        },
        "status": {"childQueues": ["vision"], "allocated": {"cpu": "31500m", GPU: "7500m"}},
    }
    project = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "vision"},
        "spec": {
            "parentQueue": "research",
            "resources": {**resources, "gpu": {"quota": 4, "limit": 8, "overQuotaWeight": 2}},
        },
        "status": {"allocated": {GPU: "500m"}, "requested": {GPU: "9"}},
    }
    bodies = []
    for item in (department, project):
        decoded = Decoders("queues").item.decode(msgspec.json.encode(item))
        body = observed_object(ObservedKind.KAI_QUEUE, decoded)
        assert isinstance(body, KaiQueueSnapshot)
        bodies.append(body)
    above, own = bodies
    assert (above.parent, own.parent) == ("", "research")
    assert (above.weight, own.weight) == (1, 2)
    assert [(one.key, one.hard, one.used) for one in kai_limits("research", above)] == [
        ("quota/nvidia.com/gpu", 12.5, 7.5)
    ]
    assert [
        (one.key, one.hard, one.used, one.ceiling, one.guarantee)
        for one in kai_limits("vision", own)
    ] == [
        ("limit/nvidia.com/gpu", 8, 0.5, 8, 4),
        ("quota/nvidia.com/gpu", 4, 0.5, 8, 4),
    ]


def test_what_queues_set_by_themselves() -> None:
    volcano = VolcanoQueueSnapshot(capability={GPU: 8})
    assert set_limits(queue("one", 8)) == [("a100", GPU, "a100/nvidia.com/gpu", 8)]
    assert set_limits(ObservedObject(ObservedKind.VOLCANO_QUEUE, "u", "", "v", volcano, 0, 0)) == [
        ("capability", GPU, "capability/nvidia.com/gpu", 8)
    ]
    local = ObservedObject(ObservedKind.LOCAL_QUEUE, "u", "a", "l", LocalQueueSnapshot(), 0, 0)
    assert set_limits(local) == []
    assert inf not in [one[3] for one in set_limits(queue("one", 8))]
