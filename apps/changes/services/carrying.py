"""Carrying out one order in a cluster, so that it can be cut off anywhere and taken up again.

What is next is decided in `domain.carrying_out`; here the cluster is asked, and each mark is
committed before the step that it stands for. No transaction is open while the cluster is asked.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q

from apps.changes.domain.carrying_out import (
    ENDS,
    Decision,
    Do,
    Look,
    Mark,
    Order,
    after_answer,
    decide,
)
from apps.changes.domain.kube_requests import SERVER_TIMEOUT_SECONDS, patch_request, read_request
from apps.changes.domain.outcomes import Answer, Meaning, Silence, Step, Then, meaning
from apps.changes.domain.owners import other_owners
from apps.changes.domain.patches import (
    Object,
    PatchRefused,
    live_amount,
    locate,
    patch_for,
)
from apps.changes.domain.quantities import quantity
from apps.changes.domain.targets import Target
from apps.changes.models import Execution
from apps.changes.permissions import Actor, portal
from apps.changes.services.asking import (
    NoWriter,
    VersionUnknown,
    ask_for,
    is_gone,
    last_version,
    rehearse,
    served_version,
    writer_of,
)
from apps.changes.services.endings import finish
from apps.changes.services.known_quotas import target_of_request
from apps.changes.services.shown import was_seen
from apps.clusters.gateways import Doorway
from apps.clusters.ports import QuotaWriter

LEASE: Final = timedelta(seconds=120)
"""Longer than a read and a patch may take together, by their time-outs."""
DOUBT: Final = timedelta(seconds=SERVER_TIMEOUT_SECONDS + 5)
"""So long after it left the server may still carry a patch out that it did not answer."""
MOST_SENT: Final = 5
MOST_FAILURES: Final = 12
_MOST_TURNS = 20
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 5, 600

Clock = Callable[[], datetime]


class LeaseLost(Exception):
    """Another worker carries this out meanwhile."""


@dataclass(slots=True)
class _Worker:
    """One worker with its lease.

    `live` is the object as it was read last, `wait_until` when to go on where that is known.
    `in_doubt`: a patch left in this very run, and no clear answer came.
    """

    execution: Execution
    target: Target
    writer: QuotaWriter
    version: str
    clock: Clock
    by: Actor
    live: Object = field(default_factory=dict)
    wait_until: datetime | None = None
    in_doubt: bool = False


def carry_out(
    execution_id: int, *, clock: Clock, doorway: Doorway | None = None, origin: str = "worker"
) -> str:
    """Carry an order on as far as possible now; return how it stands, as `applied` or `wait`.

    May be called at any time, by any number of workers: one of them works, and what is over is
    left as it is. Returns "" where another worker has it.
    """
    execution = _claim(execution_id, clock())
    if execution is None:
        return ""
    by = portal(f"{origin} {execution.lease[:8]}")
    try:
        with writer_of(execution.request.cluster, doorway) as writer:
            target = target_of_request(execution.request)
            version = served_version(writer, target, last=last_version(execution.request))
            worker = _Worker(execution, target, writer, version, clock, by)
            return _work(worker)
    except NoWriter as error:
        return _without_writer(execution, error, clock(), by)
    except VersionUnknown as error:
        return _without_version(execution, error, clock(), by)
    except LeaseLost:
        return ""


def _claim(pk: int, now: datetime) -> Execution | None:
    """Take the lease of an order that is not over; None where there is nothing to take."""
    with transaction.atomic():
        rows = Execution.objects.select_for_update(of=("self",)).select_related("request__cluster")
        free = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
        row = rows.filter(free, pk=pk, ended_at__isnull=True, mode=Execution.DIRECT).first()
        if row is None:
            return None
        row.lease, row.lease_until = secrets.token_hex(16), now + LEASE
        row.save(update_fields=["lease", "lease_until"])
    return row


def _keep(worker: _Worker, **values: Any) -> None:
    """Write to the record and renew the lease. Raises LeaseLost."""
    _store(worker.execution, lease_until=worker.clock() + LEASE, **values)


def _store(execution: Execution, **values: Any) -> None:
    mine = Execution.objects.filter(pk=execution.pk, lease=execution.lease, ended_at__isnull=True)
    if not mine.update(**values):
        raise LeaseLost
    for name, value in values.items():
        setattr(execution, name, value)


def _work(worker: _Worker) -> str:
    for _ in range(_MOST_TURNS):
        decision = _turn(worker)
        if decision.do in ENDS:
            return _end(worker, decision)
        if decision.do is Do.WAIT:
            return _wait(worker, decision.sentence)
        if decision.do is Do.SEND and worker.in_doubt:
            return _wait(worker, "A patch was lost; it is sent again after a while.")
    return _wait(worker, "The cluster answers differently each time; it will be tried again.")


def _turn(worker: _Worker) -> Decision:
    """Look at the cluster, decide, and do one step."""
    execution = worker.execution
    mark = Mark(execution.mark)
    request = read_request(worker.target, worker.version)
    answer, worker.live = ask_for(worker.writer, request, worker.target)
    answered = meaning(answer, Step.READ_BACK if mark is Mark.PATCHED else Step.READ)
    if answered.then is not Then.GO_ON and not is_gone(answer):
        return _failed_read(worker, answered)
    decision = decide(
        mark,
        _order(execution),
        _look(worker, answer, answered),
        refusal=execution.refusal,
        tries_left=MOST_SENT - execution.sent,
    )
    if decision.do is Do.SEND and worker.in_doubt:
        return decision
    return _without_doubt(worker, _do(worker, decision))


def _without_doubt(worker: _Worker, decision: Decision) -> Decision:
    """Put an end off that says "not written" while a patch may still be under way."""
    until = worker.execution.doubt_until
    if decision.do not in (Do.FAILED, Do.BACK_TO_REVIEW) or until is None:
        return decision
    if worker.clock() >= until:
        return decision
    worker.wait_until = until
    return Decision(Do.WAIT, "A patch without an answer may still arrive; the end waits for it.")


def _order(execution: Execution) -> Order:
    return Order(quantity(execution.reviewed), quantity(execution.wanted))


def _look(worker: _Worker, answer: Answer, answered: Meaning) -> Look:
    execution = worker.execution
    amount = None if is_gone(answer) else live_amount(worker.target, worker.live)
    why = answered.sentence.rstrip(".")
    seen = False
    if execution.first_sent_at is not None:
        seen = was_seen(
            execution.request.cluster_id,
            worker.target,
            quantity(execution.wanted),
            since=execution.first_sent_at,
        )
    return Look(amount, why, seen_wanted=seen)


def _failed_read(worker: _Worker, answered: Meaning) -> Decision:
    """Say what follows from a look that failed; a refused look is no refusal of the patch."""
    _failed(worker, answered)
    mark = Mark(worker.execution.mark)
    decision = after_answer(mark, answered, tries_left=MOST_FAILURES - worker.execution.failures)
    if decision.do is Do.LOOK:
        return Decision(Do.WAIT, decision.sentence)
    return decision


def _do(worker: _Worker, decision: Decision) -> Decision:
    try:
        if decision.do is Do.PREPARE:
            return _prepare(worker)
        if decision.do is Do.REHEARSE:
            return _rehearse(worker)
        if decision.do is Do.SEND:
            return _send(worker)
    except PatchRefused as refused:
        return _unwritable(worker, str(refused))
    return decision


def _unwritable(worker: _Worker, why: str) -> Decision:
    """End where the object cannot be written to as it is, say because it is being deleted."""
    execution = worker.execution
    if Mark(execution.mark) is not Mark.SENDING:
        return Decision(Do.FAILED, f"Nothing was written. {why}")
    return Decision(Do.FAILED, f"The cluster still shows {execution.reviewed}. {why}")


def _patch(worker: _Worker) -> list[dict[str, Any]]:
    order = _order(worker.execution)
    return patch_for(worker.target, worker.live, reviewed=order.reviewed, wanted=order.wanted)


def _prepare(worker: _Worker) -> Decision:
    _patch(worker)
    before = locate(worker.target, worker.live).raw
    _keep(worker, mark=Mark.PREPARED.value, before_raw=before)
    return Decision(Do.LOOK)


def _rehearse(worker: _Worker) -> Decision:
    owners = other_owners(worker.target, worker.live)
    unknown = [one for one in owners if one.manager not in worker.execution.confirmed]
    if unknown:
        text = f"Nothing was written. {unknown[0].advice} Nobody has confirmed that yet."
        return Decision(Do.BACK_TO_REVIEW, text)
    answered = rehearse(
        worker.writer,
        worker.target,
        _patch(worker),
        wanted=_order(worker.execution).wanted,
        version=worker.version,
    )
    if answered.then is not Then.GO_ON:
        return _failed_write(worker, answered)
    _keep(worker, mark=Mark.REHEARSED.value)
    return Decision(Do.LOOK)


def _send(worker: _Worker) -> Decision:
    execution = worker.execution
    request = patch_request(worker.target, _patch(worker), dry_run=False, version=worker.version)
    earlier, now = execution.doubt_until, worker.clock()
    # Committed before the patch leaves: who finds this mark knows that it may have arrived.
    _keep(
        worker,
        mark=Mark.SENDING.value,
        sent=execution.sent + 1,
        first_sent_at=execution.first_sent_at or now,
        doubt_until=now + DOUBT,
    )
    answer, body = ask_for(worker.writer, request, worker.target)
    if answer.is_yes and live_amount(worker.target, body) != _order(execution).wanted:
        answer = replace(answer, strange=True)
    worker.in_doubt = not _is_clear(answer)
    _keep(worker, doubt_until=worker.clock() + DOUBT if worker.in_doubt else earlier)
    answered = meaning(answer, Step.PATCH)
    if answered.then is not Then.GO_ON:
        return _failed_write(worker, answered)
    _keep(worker, mark=Mark.PATCHED.value, failures=0)
    return Decision(Do.LOOK)


def _is_clear(answer: Answer) -> bool:
    """Say whether nothing can come of a patch any more, or all of it has."""
    return answer.silence is Silence.UNSENT or (200 <= answer.status < 500 and not answer.strange)


def _failed_write(worker: _Worker, answered: Meaning) -> Decision:
    _failed(worker, answered)
    execution = worker.execution
    decision = after_answer(
        Mark(execution.mark), answered, tries_left=MOST_FAILURES - execution.failures
    )
    if decision.refusal:
        _keep(worker, refusal=decision.refusal)
    if answered.retry_after_seconds and decision.do is Do.WAIT:
        worker.wait_until = _later(worker, answered.retry_after_seconds)
    return decision


def _failed(worker: _Worker, answered: Meaning) -> None:
    _keep(worker, failures=worker.execution.failures + 1, detail=answered.detail)


# ---------------------------------------------------------------- how a run ends


def _wait(worker: _Worker, sentence: str) -> str:
    """Give the lease back until it is worth another try: after failures later and later."""
    execution = worker.execution
    at = worker.wait_until or _later(worker, _pause(execution))
    _store(execution, sentence=sentence, next_at=at, lease_until=None)
    return Do.WAIT.value


def _pause(execution: Execution) -> float:
    """Return after how many seconds to try again: twice as long after each failure."""
    return _FIRST_WAIT_SECONDS * 2.0 ** max(0, min(execution.failures - 1, 10))


def _later(worker: _Worker, seconds: float) -> datetime:
    return worker.clock() + timedelta(seconds=min(seconds, _LONGEST_WAIT_SECONDS))


def _end(worker: _Worker, decision: Decision) -> str:
    after = None
    if live_amount(worker.target, worker.live) is not None:
        after = locate(worker.target, worker.live).raw
    if not finish(worker.execution, decision, after_raw=after, by=worker.by, now=worker.clock()):
        raise LeaseLost
    return decision.do.value


def _without_writer(execution: Execution, why: NoWriter, now: datetime, by: Actor) -> str:
    """Fail what was not begun; of what may have been written the end is open until a look."""
    _store(execution, detail=why.detail)
    if Mark(execution.mark) in (Mark.SENDING, Mark.PATCHED):
        return _put_off(execution, str(why), now, _LONGEST_WAIT_SECONDS)
    return _fail(execution, f"Nothing was written. {why}", now, by)


def _without_version(execution: Execution, why: VersionUnknown, now: datetime, by: Actor) -> str:
    """Fail where the cluster will never take it, else ask again, later and later."""
    begun = Mark(execution.mark) in (Mark.SENDING, Mark.PATCHED)
    _store(execution, failures=execution.failures + 1, detail="")
    if not begun and (why.lasting or execution.failures >= MOST_FAILURES):
        return _fail(execution, f"Nothing was written. {why}", now, by)
    return _put_off(execution, str(why), now, _pause(execution))


def _put_off(execution: Execution, sentence: str, now: datetime, seconds: float) -> str:
    later = now + timedelta(seconds=min(seconds, _LONGEST_WAIT_SECONDS))
    _store(execution, sentence=sentence, next_at=later, lease_until=None)
    return Do.WAIT.value


def _fail(execution: Execution, sentence: str, now: datetime, by: Actor) -> str:
    decision = Decision(Do.FAILED, sentence)
    finish(execution, decision, after_raw=None, by=by, now=now)
    return decision.do.value
