"""Applying, cut off at every point and against every state of the cluster."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.quota_requests.domain.execution.executor import (
    ApplyStage,
    Decision,
    NextStep,
    ObservedTarget,
    after_answer,
    decide,
)
from apps.quota_requests.domain.execution.kube_requests import (
    AfterAnswer,
    AnswerMeaning,
    NoAnswer,
    ServerAnswer,
    ServerStep,
    meaning,
)
from apps.quota_requests.domain.quantities import Quantity
from tests.quota_requests.scripted_cluster import (
    ORDER,
    OTHER,
    REVIEWED,
    WANTED,
    Cluster,
    Fate,
    Killed,
    Record,
    carry_out,
)

Event = Callable[[], None]


def kill() -> None:
    raise Killed


def setting(cluster: Cluster, value: Quantity | None) -> Event:
    """Somebody else writes."""

    def write() -> None:
        cluster.value = value
        cluster.others.append(value)

    return write


# ---------------------------------------------------------------- the table of decisions

VALUES = {"reviewed": REVIEWED, "wanted": WANTED, "another": OTHER, "gone": None}
DECISIONS = {
    ApplyStage.NONE: (NextStep.PREPARE, NextStep.APPLIED, NextStep.BACK_TO_REVIEW, NextStep.FAILED),
    ApplyStage.PREPARED: (
        NextStep.REHEARSE,
        NextStep.APPLIED,
        NextStep.BACK_TO_REVIEW,
        NextStep.FAILED,
    ),
    ApplyStage.REHEARSED: (
        NextStep.SEND,
        NextStep.APPLIED,
        NextStep.BACK_TO_REVIEW,
        NextStep.FAILED,
    ),
    ApplyStage.SENDING: (NextStep.SEND, NextStep.APPLIED, NextStep.BACK_TO_REVIEW, NextStep.FAILED),
    ApplyStage.PATCHED: (NextStep.APPLIED, NextStep.APPLIED, NextStep.APPLIED, NextStep.APPLIED),
    ApplyStage.DONE: (NextStep.APPLIED, NextStep.APPLIED, NextStep.APPLIED, NextStep.APPLIED),
}


@pytest.mark.parametrize("shown", range(4), ids=list(VALUES))
@pytest.mark.parametrize("mark", ApplyStage)
def test_every_mark_and_every_value_has_its_next_step(mark: ApplyStage, shown: int) -> None:
    value = list(VALUES.values())[shown]
    assert decide(mark, ORDER, ObservedTarget(value)).do is DECISIONS[mark][shown]


@pytest.mark.parametrize("mark", [m for m in ApplyStage if m is not ApplyStage.DONE])
def test_nothing_is_done_before_a_look(mark: ApplyStage) -> None:
    assert decide(mark, ORDER, None) == Decision(NextStep.READ_BACK)


@pytest.mark.parametrize(
    ("mark", "written"),
    [
        (ApplyStage.PREPARED, False),
        (ApplyStage.REHEARSED, False),
        (ApplyStage.SENDING, True),
        (ApplyStage.PATCHED, True),
    ],
)
def test_the_record_says_whether_the_portal_wrote_it(mark: ApplyStage, written: bool) -> None:
    found = decide(mark, ORDER, ObservedTarget(WANTED))
    assert found.written is written
    assert ("nothing was written" in found.sentence) is not written


@pytest.mark.parametrize(("shown", "words"), [(OTHER, "shows 7"), (None, "no longer has")])
def test_what_is_changed_after_the_write_is_applied_and_drifted(
    shown: Quantity | None, words: str
) -> None:
    found = decide(ApplyStage.PATCHED, ORDER, ObservedTarget(shown))
    assert found.drifted
    assert words in found.sentence


def test_a_write_that_the_watch_has_seen_counts_even_when_it_is_gone() -> None:
    found = decide(ApplyStage.SENDING, ORDER, ObservedTarget(REVIEWED, seen_wanted=True))
    assert (found.do, found.drifted) == (NextStep.APPLIED, True)


def test_a_plain_no_is_not_asked_again() -> None:
    found = decide(ApplyStage.SENDING, ORDER, ObservedTarget(REVIEWED), refusal="It may not.")
    assert found == Decision(NextStep.FAILED, "The cluster still shows 6. It may not.")


def test_a_limit_that_is_gone_ends_with_the_reason() -> None:
    found = decide(ApplyStage.NONE, ORDER, ObservedTarget(None, why="the namespace is gone"))
    assert found.sentence == "Nothing was written: the namespace is gone."


def test_a_value_that_moved_on_while_a_patch_was_out_is_said_with_the_doubt() -> None:
    found = decide(ApplyStage.SENDING, ORDER, ObservedTarget(OTHER))
    assert found.do is NextStep.BACK_TO_REVIEW
    assert "8 was sent and never seen" in found.sentence


RETRY = meaning(ServerAnswer(503), ServerStep.READ)
NO = meaning(ServerAnswer(403), ServerStep.PATCH)
DOUBT = meaning(ServerAnswer(silence=NoAnswer.LOST), ServerStep.PATCH)


@pytest.mark.parametrize(
    ("mark", "answered", "tries_left", "do"),
    [
        pytest.param(ApplyStage.NONE, RETRY, 1, NextStep.WAIT, id="read, try again"),
        pytest.param(ApplyStage.NONE, RETRY, 0, NextStep.FAILED, id="read, given up"),
        pytest.param(ApplyStage.PREPARED, NO, 1, NextStep.FAILED, id="dry run, no"),
        pytest.param(
            ApplyStage.PREPARED,
            AnswerMeaning(AfterAnswer.READ_FIRST, "Moved."),
            1,
            NextStep.READ_BACK,
            id="dry run, test",
        ),
        pytest.param(
            ApplyStage.PREPARED,
            AnswerMeaning(AfterAnswer.READ_FIRST, "Moved."),
            0,
            NextStep.FAILED,
            id="dry run, given up",
        ),
        pytest.param(
            ApplyStage.SENDING, RETRY, 0, NextStep.WAIT, id="patch under way, never given up"
        ),
        pytest.param(
            ApplyStage.SENDING, NO, 0, NextStep.READ_BACK, id="patch, no: an earlier one may be in"
        ),
        pytest.param(ApplyStage.SENDING, DOUBT, 0, NextStep.READ_BACK, id="patch, no answer"),
        pytest.param(ApplyStage.PATCHED, RETRY, 1, NextStep.WAIT, id="read back, try again"),
        pytest.param(ApplyStage.PATCHED, NO, 0, NextStep.APPLIED, id="read back, never possible"),
    ],
)
def test_every_answer_has_its_consequence(
    mark: ApplyStage, answered: AnswerMeaning, tries_left: int, do: NextStep
) -> None:
    found = after_answer(mark, answered, tries_left=tries_left)
    assert found.do is do
    assert answered.sentence in found.sentence
    assert bool(found.refusal) is (
        mark is ApplyStage.SENDING and answered.then is AfterAnswer.FAILED
    )


# ---------------------------------------------------------------- whole runs


def check(cluster: Cluster, record: Record) -> None:
    """Hold an end against what truly happened in the cluster, up to the last look at it."""
    assert record.end is not None
    if record.end.do is NextStep.APPLIED:
        assert cluster.ours == 1 or cluster.looked == WANTED
    else:
        assert cluster.ours == 0
        assert cluster.looked != WANTED


STEPS_OF_A_RUN = 12
FATES = [fate for fate in Fate if fate is not Fate.LATE]


def test_without_trouble_it_is_written_once() -> None:
    cluster = Cluster()
    record = carry_out(cluster, [])
    assert record.end == Decision(NextStep.APPLIED, "The cluster shows 8.", written=True)
    assert (cluster.ours, cluster.value) == (1, WANTED)


@pytest.mark.parametrize("fate", Fate)
def test_killed_at_any_point_it_is_applied_once_or_not_at_all(fate: Fate) -> None:
    for point in range(STEPS_OF_A_RUN):
        cluster = Cluster(fates=[fate])
        record = carry_out(cluster, [None] * point + [kill])
        cluster.deliver_late()
        assert cluster.ours <= 1, point
        check(cluster, record)
        if fate not in (Fate.FORBIDDEN, Fate.INVALID):
            assert (cluster.ours, cluster.value) == (1, WANTED), point


@pytest.mark.parametrize("shown", VALUES.values(), ids=list(VALUES))
@pytest.mark.parametrize("fate", FATES)
def test_somebody_elses_change_at_any_point_is_never_overwritten(
    fate: Fate, shown: Quantity | None
) -> None:
    for change, point in product(range(STEPS_OF_A_RUN), repeat=2):
        cluster = Cluster(fates=[fate])
        events: list[Event | None] = [None] * (STEPS_OF_A_RUN + 1)
        events[change] = setting(cluster, shown)
        events.insert(point, kill)
        record = carry_out(cluster, events)
        assert cluster.ours <= 1, (change, point)
        if shown in cluster.others and shown != REVIEWED:
            assert cluster.value == shown, (change, point)
        check(cluster, record)


@pytest.mark.parametrize("fate", [Fate.LOST_BEFORE, Fate.UNSENT, Fate.BUSY, Fate.CONFLICT])
def test_what_never_arrives_ends_as_not_applied(fate: Fate) -> None:
    cluster = Cluster(fates=[fate] * 50)
    record = carry_out(cluster, [])
    assert record.end is not None
    assert (record.end.do, cluster.value, cluster.ours) == (NextStep.FAILED, REVIEWED, 0)


@given(
    st.lists(st.sampled_from(FATES), max_size=8),
    st.lists(st.sampled_from(["kill", "reviewed", "wanted", "another", "gone", ""]), max_size=40),
)
def test_whatever_happens_it_is_written_at_most_once_and_the_record_is_true(
    fates: list[Fate], script: list[str]
) -> None:
    cluster = Cluster(fates=fates)
    events: list[Event | None] = [
        kill if name == "kill" else setting(cluster, VALUES[name]) if name else None
        for name in script
    ]
    record = carry_out(cluster, events)
    assert cluster.ours <= 1
    check(cluster, record)


@given(st.lists(st.sampled_from(Fate), max_size=8), st.lists(st.booleans(), max_size=40))
def test_patches_that_arrive_late_do_no_second_write(fates: list[Fate], script: list[bool]) -> None:
    cluster = Cluster(fates=fates)
    record = carry_out(cluster, [cluster.deliver_late if late else kill for late in script])
    if record.end is not None and record.end.do is NextStep.APPLIED:
        cluster.deliver_late()
        assert (cluster.ours, cluster.value) == (1, WANTED)
    assert cluster.ours <= 1
