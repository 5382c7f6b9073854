"""That GPUs count once, that many pods are fast, and that nothing seen makes it fail."""

from collections.abc import Mapping
from time import process_time
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from apps.clusters.domain.observed.objects import BODIES, ObservedKind, ObservedObject, Taint
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Cause
from tests.pending.cluster_states import GPU, holder, node, pod, seen, world
from tests.pending.pending_objects import REFUSED, event, group, job

# ---------------------------------------------------------------- counted once


@settings(max_examples=60, deadline=None)
@given(
    members=st.integers(1, 6),
    there=st.integers(0, 6),
    gpus=st.sampled_from([1.0, 2.0, 8.0]),
    refused=st.booleans(),
)
def test_a_gang_its_pods_and_its_controller_count_once(
    members: int, there: int, gpus: float, *, refused: bool
) -> None:
    there = min(there, members)
    owner: dict[str, Any] = {"owner_kind": "Job", "owner": "j"}
    pods = [pod(f"w{i}", gpus, "x", group="g", **owner) for i in range(there)]
    gang = group("g", phase="Inqueue", min_member=members, requests={GPU: members * gpus}, **owner)
    maker = job("j", wanted=members, pods=there, gpus=gpus)
    events = [event("FailedCreate", maker, REFUSED)] if refused else []
    total = sum(
        w.requests.get(GPU, 0.0) * w.share
        for w in diagnose_cluster(world(gang, maker, *pods, *events))
    )
    assert total == pytest.approx(members * gpus)


# ---------------------------------------------------------------- many


def test_five_thousand_pods_on_two_thousand_nodes_take_less_than_three_seconds() -> None:
    taint = (Taint("dedicated", "x", "NoSchedule"),)
    nodes = [
        node(
            f"n{i}",
            8,
            5 + i % 4,
            labels={"pool": f"p{i % 7}"},
            taints=taint if i % 9 == 0 else (),
            unschedulable=i % 31 == 0,
        )
        for i in range(2000)
    ]
    message = "0/2000 nodes are available: 2000 Insufficient nvidia.com/gpu."
    # Half of them share a shape; each of the others is of its own.
    pods = [
        pod(f"w{i}", 4 + i % 5, message, cpu=4 + i % 2 * i / 100, select={"pool": f"p{i % 7}"})
        for i in range(5000)
    ]
    state = world(*nodes, *pods, holders=[holder(f"h{i}", f"n{i % 2000}", 1) for i in range(9000)])
    began = process_time()
    assert len(diagnose_cluster(state)) == 5000
    assert process_time() - began < 3.0


# ---------------------------------------------------------------- anything

TEXTS = st.sampled_from(
    [
        *(
            "",
            "p",
            "Failed",
            "Pending",
            "OutOfx",
            "True",
            "False",
            "Unschedulable",
            "QuotaReserved",
        ),
        *("0/1 nodes are available: 1 Insufficient x.", "nvidia.com/gpu", "FailedCreate", "Exists"),
        "exceeded quota: p, requested: pods=1, used: pods=1, limited: pods=1",
    ]
)
AMOUNTS = st.floats(-10, 1e6, allow_nan=False)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    float: AMOUNTS,
    int: st.integers(-3, 9),
    bool: st.booleans(),
    type(None): st.none(),
}


def anything(of: Any) -> st.SearchStrategy[Any]:
    """Return values of a type of the sightings: few texts, so that they refer to each other."""
    if of in PLAIN:
        return PLAIN[of]
    if isinstance(of, type) and issubclass(of, Struct):
        hints = get_type_hints(of)
        return st.builds(of, **{name: anything(hints[name]) for name in of.__struct_fields__})
    parts = get_args(of)
    if get_origin(of) is tuple:
        return st.lists(anything(parts[0]), max_size=2).map(tuple)
    if get_origin(of) is Mapping:
        return st.dictionaries(anything(parts[0]), anything(parts[1]), max_size=2)
    return st.one_of([anything(part) for part in parts])


OF_KIND = {kind: anything(body) for kind, body in BODIES.items()}


@st.composite
def any_sighting(draw: st.DrawFn) -> ObservedObject:
    kind = draw(st.sampled_from(list(ObservedKind)))
    return seen(kind, draw(TEXTS), draw(OF_KIND[kind]), namespace="n", uid=draw(TEXTS))


@given(st.lists(any_sighting(), max_size=8))
def test_nothing_that_can_be_seen_makes_it_fail(sightings: list[ObservedObject]) -> None:
    for waiting in diagnose_cluster(world(*sightings, holders=[holder("h", "p", 1)])):
        assert waiting.diagnosis.cause in Cause
        assert 0.0 <= waiting.share <= 1.0 + 1e-9
        assert isinstance(waiting.requests, dict)
