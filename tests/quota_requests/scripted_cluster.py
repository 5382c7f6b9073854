"""A cluster with one limit, whose network fails by script, and a worker that can be killed.

The worker does what a service does around `carrying_out`: look, decide, write the mark, act. All
that survives a kill is its `Record`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct, field

from apps.quota_requests.domain.execution.executor import (
    ENDS,
    ApplyStage,
    Decision,
    ExecutionOrder,
    NextStep,
    ObservedTarget,
    after_answer,
    decide,
)
from apps.quota_requests.domain.execution.kube_requests import (
    AfterAnswer,
    NoAnswer,
    ServerAnswer,
    ServerStep,
    meaning,
)
from apps.quota_requests.domain.quantities import Quantity, quantity

REVIEWED, WANTED, OTHER = quantity("6"), quantity("8"), quantity("7")
ORDER = ExecutionOrder(REVIEWED, WANTED)
MOST_SENT = 4


class Fate(StrEnum):
    """What becomes of one patch."""

    FINE = "fine"
    UNSENT = "not sent"
    LOST_BEFORE = "lost before the write"
    LOST_AFTER = "lost after the write"
    LATE = "arrives late"
    BROKEN_BEFORE = "500 before the write"
    BROKEN_AFTER = "500 after the write"
    CONFLICT = "409"
    BUSY = "429"
    FORBIDDEN = "403"
    INVALID = "422"


WRITES_FIRST = frozenset({Fate.FINE, Fate.LOST_AFTER, Fate.BROKEN_AFTER})
ANSWERS = {
    Fate.FINE: ServerAnswer(200),
    Fate.UNSENT: ServerAnswer(silence=NoAnswer.UNSENT),
    Fate.LOST_BEFORE: ServerAnswer(silence=NoAnswer.LOST),
    Fate.LOST_AFTER: ServerAnswer(silence=NoAnswer.LOST),
    Fate.LATE: ServerAnswer(silence=NoAnswer.LOST),
    Fate.BROKEN_BEFORE: ServerAnswer(500),
    Fate.BROKEN_AFTER: ServerAnswer(500),
    Fate.CONFLICT: ServerAnswer(409, reason="Conflict"),
    Fate.BUSY: ServerAnswer(429),
    Fate.FORBIDDEN: ServerAnswer(403, message="forbidden"),
    Fate.INVALID: ServerAnswer(422, message="is invalid", caused=True),
}
TEST_FAILED = ServerAnswer(422, reason="Invalid")


class Cluster(Struct):
    """`value` None: the limit is gone. `ours` counts patches of the portal that took effect.

    `looked` is what the worker saw last, `others` what somebody else has set.
    """

    value: Quantity | None = REVIEWED
    fates: list[Fate] = field(default_factory=list)
    late: int = 0
    ours: int = 0
    looked: Quantity | None = None
    others: list[Quantity | None] = field(default_factory=list)

    def look(self) -> ObservedTarget:
        """Show the limit; the watch is taken to see every value that there ever was."""
        self.looked = self.value
        return ObservedTarget(self.value, seen_wanted=self.ours > 0)

    def patch(self) -> ServerAnswer:
        """Take a patch as its fate has it; without a fate left all goes well."""
        fate = self.fates.pop(0) if self.fates else Fate.FINE
        if fate is Fate.LATE:
            self.late += 1
        if fate in WRITES_FIRST and not self.write() and fate is Fate.FINE:
            return TEST_FAILED
        return ANSWERS[fate]

    def write(self) -> bool:
        """Test and replace in one: the only way in which the portal ever writes."""
        if self.value != REVIEWED:
            return False
        self.value = WANTED
        self.ours += 1
        return True

    def deliver_late(self) -> None:
        """Let the patches arrive that were under way."""
        while self.late:
            self.late -= 1
            self.write()


class Killed(Exception):
    """The worker died."""


class Record(Struct):
    """What is in the database."""

    mark: ApplyStage = ApplyStage.NONE
    refusal: str = ""
    sent: int = 0
    end: Decision | None = None


class Worker(Struct):
    """Carries out ORDER; `tick` is called before everything it does and may raise Killed."""

    cluster: Cluster
    record: Record
    tick: Callable[[], None]

    def run(self, *, turns: int = 40) -> None:
        """Work until there is an end, or for so many turns."""
        for _ in range(turns):
            if self.record.end is None:
                self._turn()

    def _turn(self) -> None:
        self.tick()
        record = self.record
        decision = decide(
            record.mark,
            ORDER,
            self.cluster.look(),
            refusal=record.refusal,
            tries_left=MOST_SENT - record.sent,
        )
        self.tick()
        if decision.do in ENDS:
            record.end = decision
        elif decision.do is NextStep.PREPARE:
            record.mark = ApplyStage.PREPARED
        elif decision.do is NextStep.REHEARSE:
            record.mark = ApplyStage.REHEARSED
        else:
            self._send()

    def _send(self) -> None:
        self.record.mark = ApplyStage.SENDING
        self.record.sent += 1
        self.tick()
        answered = meaning(self.cluster.patch(), ServerStep.PATCH)
        self.tick()
        if answered.then is AfterAnswer.GO_ON:
            self.record.mark = ApplyStage.PATCHED
            return
        after = after_answer(ApplyStage.SENDING, answered, tries_left=MOST_SENT - self.record.sent)
        self.record.refusal = after.refusal


def carry_out(cluster: Cluster, events: Sequence[Callable[[], None] | None]) -> Record:
    """Run workers, one after the other as they are killed, until the change has its end.

    Before each thing that a worker does the next of `events` happens; one may raise Killed.
    """
    record, left = Record(), list(events)

    def tick() -> None:
        event = left.pop(0) if left else None
        if event is not None:
            event()

    while record.end is None:
        try:
            Worker(cluster, record, tick).run()
        except Killed:
            continue
        assert record.end is not None, "a change never ends"
    return record
