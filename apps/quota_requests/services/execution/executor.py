"""Executing one order in a cluster, so that it can be cut off anywhere and taken up again.

What is next is decided in `domain.execution.executor`; here the cluster is asked, and each stage is
committed before the step that it stands for. No transaction is open while the cluster is asked.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.accounts.services import leases
from apps.accounts.services.leases import LeaseLost
from apps.clusters.gateways import ClusterClients
from apps.clusters.ports import QuotaWriter, SourceRejected, SourceUnavailable
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
    SERVER_TIMEOUT_SECONDS,
    AfterAnswer,
    AnswerMeaning,
    NoAnswer,
    ServerAnswer,
    ServerStep,
    meaning,
    patch_request,
    read_request,
)
from apps.quota_requests.domain.execution.patches import (
    Object,
    PatchRefused,
    live_amount,
    locate,
    patch_for,
    why_unreadable,
)
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import Target
from apps.quota_requests.models import Execution
from apps.quota_requests.permissions import Actor, portal
from apps.quota_requests.services.evidence.known_quotas import target_of_request, was_seen
from apps.quota_requests.services.execution.api_calls import (
    NoWriter,
    VersionUnknown,
    ask_for,
    is_gone,
    last_version,
    read_by_watcher,
    rehearse,
    served_version,
    writer_of,
)
from apps.quota_requests.services.execution.endings import apply_blockers, finish

LEASE: Final = timedelta(seconds=120)
"""Longer than a read and a patch may take together, by their time-outs."""
DOUBT: Final = timedelta(seconds=SERVER_TIMEOUT_SECONDS + 5)
"""So long after it left the server may still carry a patch out that it did not answer."""
MOST_SENT: Final = 5
MOST_FAILURES: Final = 12
_MOST_TURNS = 20
_MAY_ARRIVE = "A patch without an answer may still arrive; it ends after that."
_TOWARDS_A_WRITE = frozenset({NextStep.PREPARE, NextStep.REHEARSE, NextStep.SEND})
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 5, 600
Clock = Callable[[], datetime]


def claim(pk: int, now: datetime) -> Execution | None:
    """Take the lease of an order that is not over; None where there is nothing to take."""
    rows = Execution.objects.select_related("request__cluster")
    open_ones = rows.filter(pk=pk, ended_at__isnull=True, mode=Execution.DIRECT)
    return leases.take(open_ones, now, lease=leases.new_token(), lease_until=now + LEASE)


def store(execution: Execution, **values: Any) -> None:
    """Write to the record as long as the lease is one's own. Raises LeaseLost."""
    mine = Execution.objects.filter(pk=execution.pk, lease=execution.lease, ended_at__isnull=True)
    leases.keep(mine, **values)
    for name, value in values.items():
        setattr(execution, name, value)


class _Worker(Struct):
    """One worker with its lease.

    `live` is the object as it was read last, `wait_until` when to go on where that is known.
    `in_doubt`: a patch left in this very run, and no clear answer came. `rehearsed`: the dry run
    was of this run; one of before an outage says nothing of the cluster's rules now.
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
    rehearsed: bool = False


def carry_out(
    execution_id: int,
    *,
    clock: Clock,
    clients: ClusterClients | None = None,
    origin: str = "worker",
) -> str:
    """Carry an order on as far as possible now; return how it stands, as `applied` or `wait`.

    May be called at any time, by any number of workers: one of them works, and what is over is
    left as it is. Returns "" where another worker has it.
    """
    execution = claim(execution_id, clock())
    if execution is None:
        return ""
    # A piece of the lease tells in the audit which of several workers it was.
    by = portal(f"{origin} {execution.lease[:8]}")
    try:
        # The lease is committed before any call: a second worker leaves at once.
        with writer_of(execution.request.cluster, clients) as writer:
            target = target_of_request(execution.request)
            version = served_version(writer, target, last=last_version(execution.request))
            worker = _Worker(execution, target, writer, version, clock, by)
            return _work(worker)
    except NoWriter as error:
        return _without_writer(execution, error, clock(), by, clients)
    except VersionUnknown as error:
        return _without_version(execution, error, clock(), by)
    except LeaseLost:
        return ""


def _keep(worker: _Worker, **values: Any) -> None:
    """Write to the record and renew the lease. Raises LeaseLost."""
    store(worker.execution, lease_until=worker.clock() + LEASE, **values)


def _work(worker: _Worker) -> str:
    # A cluster whose answers alternate would keep this worker, and its lease, for ever.
    for _ in range(_MOST_TURNS):
        decision = _turn(worker)
        if decision.do in ENDS:
            return _end(worker, decision)
        if decision.do is NextStep.WAIT:
            return _wait(worker, decision.sentence)
        if decision.do is NextStep.SEND and worker.in_doubt:
            return _wait(worker, "A patch was lost; it is sent again after a while.")
    return _wait(worker, "The cluster answers differently each time; it will be tried again.")


def _turn(worker: _Worker) -> Decision:
    """Look at the cluster, decide, and do one step."""
    execution = worker.execution
    mark = ApplyStage(execution.mark)
    request = read_request(worker.target, worker.version)
    answer, worker.live = ask_for(worker.writer, request, worker.target)
    answered = meaning(
        answer, ServerStep.READ_BACK if mark is ApplyStage.PATCHED else ServerStep.READ
    )
    if answered.then is not AfterAnswer.GO_ON and not is_gone(answer):
        return _failed_read(worker, answered)
    shown = None if is_gone(answer) else worker.live
    # Each turn starts from a fresh read; the record alone cannot tell what arrived.
    decision = decide(
        mark,
        _order(execution),
        _read_back(execution, worker.target, shown, answered.sentence),
        refusal=execution.refusal,
        tries_left=MOST_SENT - execution.sent,
    )
    if decision.do is NextStep.SEND and worker.in_doubt:
        return decision
    return _without_doubt(worker, _do(worker, decision))


def _without_doubt(worker: _Worker, decision: Decision) -> Decision:
    """Put an end off that says "not written" while a patch may still be under way."""
    if not _is_doubtful(worker.execution, decision, worker.clock()):
        return decision
    worker.wait_until = worker.execution.doubt_until
    return Decision(NextStep.WAIT, _MAY_ARRIVE)


def _is_doubtful(execution: Execution, decision: Decision, now: datetime) -> bool:
    until = execution.doubt_until
    return (
        decision.do in (NextStep.FAILED, NextStep.BACK_TO_REVIEW)
        and until is not None
        and now < until
    )


def _order(execution: Execution) -> ExecutionOrder:
    return ExecutionOrder(quantity(execution.reviewed), quantity(execution.wanted))


def _read_back(
    execution: Execution, target: Target, live: Object | None, why: str
) -> ObservedTarget:
    """Return what was seen; `live` None where the object is not there, by the reason `why`."""
    if live is not None:
        why = why_unreadable(target, live)
    seen = False
    if execution.first_sent_at is not None:
        seen = was_seen(
            execution.request.cluster_id,
            target,
            quantity(execution.wanted),
            since=execution.first_sent_at,
        )
    return ObservedTarget(live_amount(target, live), why.rstrip("."), seen_wanted=seen)


def _failed_read(worker: _Worker, answered: AnswerMeaning) -> Decision:
    """Say what follows from a look that failed; a refused look is no refusal of the patch."""
    _failed(worker, answered)
    mark = ApplyStage(worker.execution.mark)
    decision = after_answer(mark, answered, tries_left=MOST_FAILURES - worker.execution.failures)
    if decision.do is NextStep.READ_BACK:
        return Decision(NextStep.WAIT, decision.sentence)
    return decision


def _do(worker: _Worker, decision: Decision) -> Decision:
    if decision.do in _TOWARDS_A_WRITE:
        stopped = apply_blockers(worker.execution, worker.target, worker.live, now=worker.clock())
        if stopped is not None:
            return stopped
    try:
        if decision.do is NextStep.PREPARE:
            return _prepare(worker)
        if decision.do is NextStep.REHEARSE:
            return _rehearse(worker)
        if decision.do is NextStep.SEND:
            # After a restart the dry run is repeated: webhooks may have changed since.
            first = ApplyStage(worker.execution.mark) is ApplyStage.REHEARSED
            return _rehearse(worker) if first and not worker.rehearsed else _send(worker)
    except PatchRefused as refused:
        return _unwritable(worker, str(refused))
    return decision


def _unwritable(worker: _Worker, why: str) -> Decision:
    """End where the object cannot be written to as it is, say because it is being deleted."""
    execution = worker.execution
    if ApplyStage(execution.mark) is not ApplyStage.SENDING:
        return Decision(NextStep.FAILED, f"Nothing was written. {why}")
    return Decision(NextStep.FAILED, f"The cluster still shows {execution.reviewed}. {why}")


def _patch(worker: _Worker) -> list[dict[str, Any]]:
    order = _order(worker.execution)
    return patch_for(worker.target, worker.live, reviewed=order.reviewed, wanted=order.wanted)


def _prepare(worker: _Worker) -> Decision:
    _patch(worker)
    # The raw value, since `2k` and 2000 are equal amounts but different JSON.
    before = locate(worker.target, worker.live).raw
    _keep(worker, mark=ApplyStage.PREPARED.value, before_raw=before)
    return Decision(NextStep.READ_BACK)


def _rehearse(worker: _Worker) -> Decision:
    answered = rehearse(
        worker.writer,
        worker.target,
        _patch(worker),
        wanted=_order(worker.execution).wanted,
        version=worker.version,
    )
    if answered.then is not AfterAnswer.GO_ON:
        return _failed_write(worker, answered)
    worker.rehearsed = True
    _keep(worker, mark=ApplyStage.REHEARSED.value)
    return Decision(NextStep.READ_BACK)


def _send(worker: _Worker) -> Decision:
    execution = worker.execution
    request = patch_request(worker.target, _patch(worker), dry_run=False, version=worker.version)
    earlier, now = execution.doubt_until, worker.clock()
    # Committed before the patch leaves: who finds this mark knows that it may have arrived.
    _keep(
        worker,
        mark=ApplyStage.SENDING.value,
        sent=execution.sent + 1,
        first_sent_at=execution.first_sent_at or now,
        doubt_until=now + DOUBT,
    )
    if execution.lease_until is None or worker.clock() >= execution.lease_until:
        # It stood still just now, for longer than others wait: what it read is not true any more.
        raise LeaseLost
    answer, body = ask_for(worker.writer, request, worker.target)
    # A mutating webhook may store another amount and still answer 200.
    if answer.is_yes and live_amount(worker.target, body) != _order(execution).wanted:
        answer = replace(answer, strange=True)
    # The server may still execute a request after its client timed out.
    worker.in_doubt = not _is_clear(answer)
    _keep(worker, doubt_until=worker.clock() + DOUBT if worker.in_doubt else earlier)
    answered = meaning(answer, ServerStep.PATCH)
    if answered.then is not AfterAnswer.GO_ON:
        return _failed_write(worker, answered)
    _keep(worker, mark=ApplyStage.PATCHED.value, failures=0)
    return Decision(NextStep.READ_BACK)


def _is_clear(answer: ServerAnswer) -> bool:
    """Say whether nothing can come of a patch any more, or all of it has."""
    # A 5xx is not clear: a proxy may answer 502 for a patch that was stored.
    return answer.silence is NoAnswer.UNSENT or (200 <= answer.status < 500 and not answer.strange)


def _failed_write(worker: _Worker, answered: AnswerMeaning) -> Decision:
    _failed(worker, answered)
    execution = worker.execution
    decision = after_answer(
        ApplyStage(execution.mark), answered, tries_left=MOST_FAILURES - execution.failures
    )
    if decision.refusal:
        _keep(worker, refusal=decision.refusal)
    if answered.retry_after_seconds and decision.do is NextStep.WAIT:
        worker.wait_until = _later(worker, answered.retry_after_seconds)
    return decision


def _failed(worker: _Worker, answered: AnswerMeaning) -> None:
    _keep(worker, failures=worker.execution.failures + 1, detail=answered.detail)


# ---------------------------------------------------------------- how a run ends


def _wait(worker: _Worker, sentence: str) -> str:
    """Give the lease back until it is worth another try: after failures later and later."""
    execution = worker.execution
    at = worker.wait_until or _later(worker, _pause(execution))
    # Not `_keep`, which would renew the lease that is given back here.
    store(execution, sentence=sentence, next_at=at, lease_until=None)
    return NextStep.WAIT.value


def _pause(execution: Execution) -> float:
    """Return after how many seconds to try again: twice as long after each failure."""
    # Failures are capped first: a float overflows at 2 ** 1024.
    return _FIRST_WAIT_SECONDS * 2.0 ** max(0, min(execution.failures - 1, 10))


def _later(worker: _Worker, seconds: float) -> datetime:
    return worker.clock() + timedelta(seconds=min(seconds, _LONGEST_WAIT_SECONDS))


def _end(worker: _Worker, decision: Decision) -> str:
    after = _raw(worker.target, worker.live)
    # Another worker took over and wrote its own end; ours must not be reported.
    if not finish(worker.execution, decision, after_raw=after, by=worker.by, now=worker.clock()):
        raise LeaseLost
    return decision.do.value


def _raw(target: Target, live: Object | None) -> str | int | None:
    if live is None or live_amount(target, live) is None:
        return None
    return locate(target, live).raw


def _without_writer(
    execution: Execution, why: NoWriter, now: datetime, by: Actor, clients: ClusterClients | None
) -> str:
    """Fail what was not begun; what became of a patch is looked at with the reading account."""
    store(execution, detail=why.detail, failures=execution.failures + 1)
    if ApplyStage(execution.mark) not in (ApplyStage.SENDING, ApplyStage.PATCHED):
        return _fail(execution, f"Nothing was written. {why}", now, by)
    target = target_of_request(execution.request)
    try:
        # The writer's account is gone, but the watcher's still tells whether the patch arrived.
        live = read_by_watcher(execution.request.cluster, target, clients)
    except (SourceUnavailable, SourceRejected, VersionUnknown):
        return _unlooked(execution, str(why), now, by)
    look = _read_back(execution, target, live, "the object is no longer in the cluster")
    refusal = execution.refusal or str(why)
    decision = decide(ApplyStage(execution.mark), _order(execution), look, refusal=refusal)
    if _is_doubtful(execution, decision, now):
        return _put_off(execution, _MAY_ARRIVE, now, DOUBT.total_seconds())
    if not finish(execution, decision, after_raw=_raw(target, live), by=by, now=now):
        raise LeaseLost
    return decision.do.value


def _unlooked(execution: Execution, sentence: str, now: datetime, by: Actor) -> str:
    """Go on without a live watch: an accepted change is believed in the end, a lost one is not."""
    answered = AnswerMeaning(AfterAnswer.RETRY, sentence)
    left = MOST_FAILURES - execution.failures
    decision = after_answer(ApplyStage(execution.mark), answered, tries_left=left)
    if decision.do not in ENDS:
        return _put_off(execution, sentence, now, _pause(execution))
    finish(execution, decision, after_raw=None, by=by, now=now)
    return decision.do.value


def _without_version(execution: Execution, why: VersionUnknown, now: datetime, by: Actor) -> str:
    """Fail where the cluster will never take it, else ask again, later and later."""
    begun = ApplyStage(execution.mark) in (ApplyStage.SENDING, ApplyStage.PATCHED)
    store(execution, failures=execution.failures + 1, detail="")
    if begun:
        return _unlooked(execution, str(why), now, by)
    if why.lasting or execution.failures >= MOST_FAILURES:
        return _fail(execution, f"Nothing was written. {why}", now, by)
    return _put_off(execution, str(why), now, _pause(execution))


def _put_off(execution: Execution, sentence: str, now: datetime, seconds: float) -> str:
    later = now + timedelta(seconds=min(seconds, _LONGEST_WAIT_SECONDS))
    store(execution, sentence=sentence, next_at=later, lease_until=None)
    return NextStep.WAIT.value


def _fail(execution: Execution, sentence: str, now: datetime, by: Actor) -> str:
    decision = Decision(NextStep.FAILED, sentence)
    finish(execution, decision, after_raw=None, by=by, now=now)
    return decision.do.value
