"""The one thing that a person should do about their work, of what is known of it."""

from collections.abc import Iterable

from msgspec import Struct

from apps.costs.domain.recommendations.idle_time import SERVICES
from apps.costs.domain.workload_verdict import VerdictAction, VerdictKind, verdict
from apps.usage.domain.amounts import Amounts, hours

NOTHING_TO_FIX = "Nothing to fix."
# A StatefulSet with GPUs is mostly a notebook, which has no callers.
_REPLICATED = SERVICES - {"StatefulSet"}


class JudgedWork(Struct, frozen=True):
    """A workload of a person: its name, what it held, and whether it holds idle GPUs now."""

    workload: str
    amounts: Amounts
    is_idle: bool = False


def fix_of(work: Iterable[JudgedWork]) -> str:
    """Return one sentence about the workload with the most unused GPU-hours that has a fix.

    One that is idle now comes before all others: what it holds can be had back at once.
    """
    for one in sorted(work, key=lambda w: (not w.is_idle, -w.amounts.not_used, w.workload)):
        found = _sentence(one)
        if found:
            return found
    return NOTHING_TO_FIX


def _sentence(one: JudgedWork) -> str:
    name, unused = one.workload.partition("/")[2], hours(one.amounts.not_used)
    if one.is_idle:
        return f"{name} is idle now: release its GPUs, or say how long you keep them."
    # Without hours a verdict can tell no other action than to start; the rest goes by its kind.
    judged = verdict(one.amounts)
    if judged.action is VerdictAction.START:
        return f"{name} held {unused:,.0f} GPU-h unused without running: fix the start of its pods."
    if judged.kind in (VerdictKind.UNUSED, VerdictKind.PARTLY):
        share = f"{(judged.unused or 0.0) * 100:.0f} %"
        left = f"{name} left {unused:,.0f} GPU-h ({share}) unused"
        if one.workload.partition("/")[0] in _REPLICATED:
            # Its callers need one of them even while no request comes.
            return f"{left}: run fewer replicas while few requests come."
        return f"{left}: request fewer GPUs, or free them."
    return ""
