"""The large cluster of the benchmarks: as many objects as asked for, and none beyond its cards."""

from collections import Counter

from tests.bench.pending_fleet import EVENTS, GPU, NODES, PODS, waiting_fleet


def test_it_has_as_much_as_asked_for() -> None:
    fleet = waiting_fleet(nodes=200, waiting=400)
    pods = fleet.objects[PODS]
    waiting = [pod for pod in pods if "nodeName" not in pod["spec"]]
    uids = [item["metadata"]["uid"] for items in fleet.objects.values() for item in items]

    assert len(fleet.objects[NODES]) == 200
    assert len(waiting) == len(fleet.causes) == 400
    assert len(uids) == len(set(uids))
    assert Counter(fleet.causes.values())["capacity"] == 260
    assert len(set(fleet.causes.values())) == 8
    assert 300 < len(fleet.objects[EVENTS]) < 400


def test_no_node_is_held_beyond_its_gpus() -> None:
    held: Counter[str] = Counter()
    for pod in waiting_fleet(nodes=200, waiting=0).objects[PODS]:
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        held[pod["spec"]["nodeName"]] += int(requests[GPU])

    assert set(held.values()) == {7, 8}
