from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.window import clip, overlap, seconds, union

POINTS = st.integers(0, 40)
SPANS = st.lists(st.tuples(POINTS, POINTS).map(lambda p: (float(p[0]), float(p[1]))), max_size=8)


def covered(spans: object) -> set[int]:
    return {second for second in range(40) for a, b in spans if a <= second < b}  # type: ignore[attr-defined]


@given(SPANS)
def test_union_covers_the_same_seconds_once(spans: list[tuple[float, float]]) -> None:
    merged = union(spans)
    assert covered(merged) == covered(spans)
    assert seconds(merged) == len(covered(spans))
    assert all(a[1] < b[0] for a, b in pairwise(merged))


@given(SPANS, POINTS, POINTS)
def test_overlap_is_the_length_of_what_clip_keeps(
    spans: list[tuple[float, float]], a: int, b: int
) -> None:
    start, end = min(a, b), max(a, b)
    disjoint = union(spans)
    assert overlap(disjoint, start, end) == seconds(clip(disjoint, start, end))
    assert covered(clip(disjoint, start, end)) == covered(disjoint) & set(range(start, end))
