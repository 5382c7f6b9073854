"""However often it is refreshed, GPU hours pending are those of the pods."""

from datetime import datetime

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from apps.clusters.models import Pod
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.models import CauseInterval
from tests.pending.refreshed import NOW, make_world, seconds
from tests.pending.rows import waits
from tests.thinned import examples

moments = st.integers(min_value=0, max_value=100)


@st.composite
def lives(draw: st.DrawFn) -> dict[str, datetime | None]:
    created, *more = sorted(draw(st.lists(moments, min_size=4, max_size=4)))
    reached = draw(st.integers(min_value=0, max_value=3))
    times: dict[str, datetime | None] = {"created_at": NOW + seconds(created)}
    for name, at in list(zip(("bound_at", "started_at", "ended_at"), more, strict=True))[:reached]:
        times[name] = NOW + seconds(at)
    if draw(st.booleans()) and reached < 3:
        times["ended_at"] = NOW + seconds(more[2])
    return times


def seen_at(pod: dict[str, datetime | None], at: datetime) -> dict[str, datetime | None]:
    return {name: when for name, when in pod.items() if when is not None and when <= at}


class Conservation(TestCase):
    """In a case of its own: each example begins with an empty database."""

    @examples(12, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        st.lists(st.tuples(lives(), st.sampled_from([0.25, 1.0, 4.0])), max_size=5),
        st.lists(st.sampled_from([7.0, 15.0, 33.0]), min_size=1, max_size=6),
        st.data(),
    )
    def test_what_pending_intervals_count_is_what_the_ledger_says_waited(
        self,
        pods: list[tuple[dict[str, datetime | None], float]],
        steps: list[float],
        data: st.DataObject,
    ) -> None:
        world = make_world()
        for step in [*steps, 200.0, 15.0]:
            at = world.now + seconds(step)
            found = []
            for number, (life, weight) in enumerate(pods):
                uid = f"uid-{number}"
                known = seen_at(life, at)
                if "created_at" not in known:
                    continue
                Pod.objects.filter(uid=uid).delete()
                world.pod(uid, pk=number + 1, gpu_equivalents=weight, **known)
                if "started_at" in known or "ended_at" in known:
                    continue
                counts = Counts.STARTING if "bound_at" in known else Counts.PENDING
                if data.draw(st.booleans()):
                    cause = data.draw(st.sampled_from([Cause.CAPACITY, Cause.QUOTA]))
                    since = known["created_at"] or at
                    found.append(waits(uid, since=since.timestamp(), counts=counts, cause=cause))
            world.look(*found, after=step)
        assert waited_by_intervals(world.now) == pytest.approx(waited_by_ledger(world.now))


def waited_by_intervals(now: datetime) -> float:
    rows = CauseInterval.objects.filter(counts="pending")
    return sum(((row.end or now) - row.start).total_seconds() * row.counted for row in rows)


def waited_by_ledger(now: datetime) -> float:
    total = 0.0
    for pod in Pod.objects.all():
        ends = [at for at in (pod.bound_at, pod.ended_at, now) if at is not None]
        total += max(0.0, (min(ends) - pod.created_at).total_seconds()) * pod.gpu_equivalents
    return total
