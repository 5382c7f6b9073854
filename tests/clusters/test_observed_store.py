"""The store under pods, nodes, claims and observed objects."""

from typing import NamedTuple

from apps.clusters.domain.observed.store import ObservedStore


class Pod(NamedTuple):
    name: str
    node: str


def store(*pods: Pod) -> ObservedStore[Pod]:
    return ObservedStore(
        lambda pod: pod.name,
        pods,
        row=lambda pod: (pod.name, pod.node),
        indexes={"node": lambda pod: (pod.node,)},
    )


A, B, C = Pod("a", "one"), Pod("b", "one"), Pod("c", "two")


def test_what_is_there_is_found_by_key_and_by_index() -> None:
    found = store(A, B, C)
    assert (found.get("a"), found.get("x"), "b" in found, len(found)) == (A, None, True, 3)
    assert found.by_index("node", "one") == [A, B]
    assert list(found.index_keys("node", "two")) == ["c"]
    assert found.by_index("node", "three") == []


def test_an_object_that_moves_leaves_its_place_in_the_index() -> None:
    found, moved = store(A, B), Pod("a", "two")
    assert (found.put(moved), found.put(C)) == (A, None)
    assert (found.by_index("node", "one"), found.by_index("node", "two")) == ([B], [moved, C])


def test_a_list_drops_what_it_does_not_have() -> None:
    found = store(A, B, C)
    assert found.retain({"b"}) == [A, C]
    assert (found.drop("b"), found.drop("b"), len(found)) == (B, None, 0)
    found.replace([C])
    assert found.by_index("node", "two") == [C]


def test_what_is_to_be_written_is_known_by_its_row_until_it_is() -> None:
    found = store()
    found.keep(A)
    found.drop("a")
    found.keep(Pod("a", "two"))
    assert list(found.changed) == [("a", "one"), ("a", "two")]
    found.written()
    assert (found.changed, len(found)) == ({}, 1)
