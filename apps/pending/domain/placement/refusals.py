"""What an API server says of a pod it did not take, and a kubelet of one it turned away."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.pending.domain.causes import Cause

_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*?), used: (?P<used>.*?),"
    r" limited: (?P<limited>.*)",
    re.DOTALL,
)
_INSUFFICIENT = re.compile(r"insufficient quota to (?:consume|match these scopes): ?(?P<what>.*)")
_UNSPECIFIED = re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.*)")
_UNKNOWN = re.compile(r"status unknown for quota: (?P<quota>[^,]+)")
_AMOUNT = re.compile(r"^([0-9]{1,18}(?:\.[0-9]{0,9})?)(m|[kMGTPE]i?)?$", re.ASCII)
_SUFFIXES = {"": 1.0, "m": 1e-3} | {
    letter + i: base**power
    for i, base in (("", 1000.0), ("i", 1024.0))
    for power, letter in enumerate("kMGTPE", start=1)
}
_SUFFIXES["Ki"] = 1024.0
SPEC_KEYS = "must-specify"
EXCEEDED = "exceeded"
LONGEST = 8192
"""Of a text no more is read: patterns take time that grows faster than what they search."""
_REJECTED_PREFIX = "Pod was rejected: "
_OVER = frozenset({"Evicted", "Shutdown", "NodeShutdown", "Terminated", "NodeLost", "Preempting"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pod was made: `quota` names the ResourceQuota where there is one.

    `requested`, `used` and `limited` are by quota key, what could be read of them; `specify` are
    the keys that a quota asks every pod to state.
    """

    cause: Cause
    detail: str
    quota: str = ""
    requested: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    limited: Mapping[str, float] = field(default_factory=dict)
    specify: tuple[str, ...] = ()


def refusal(message: str) -> Refusal:
    """Return what a text of `FailedCreate` says; never raises."""
    message = message[:LONGEST]
    if found := _EXCEEDED.search(message):
        requested, used, limited = map(_amounts, found.group("requested", "used", "limited"))
        return Refusal(Cause.QUOTA, EXCEEDED, found["quota"].strip(), requested, used, limited)
    if found := _UNSPECIFIED.search(message):
        # `a,b` before 1.23, since then `a for: container; b for: container`.
        lists = [part.partition(" for: ")[0] for part in found["what"].split(";")]
        keys = tuple(key.strip() for part in lists for key in part.split(",") if key.strip())
        return Refusal(Cause.ADMISSION, SPEC_KEYS, found["quota"].strip(), specify=keys)
    if _INSUFFICIENT.search(message):
        return Refusal(Cause.QUOTA, "no quota covers it")
    if found := _UNKNOWN.search(message):
        return Refusal(Cause.QUOTA, "status unknown", found["quota"].strip())
    return Refusal(Cause.ADMISSION, "refused")


def rejection(reason: str, message: str) -> Cause | None:
    """Return the cause of a Failed pod that a kubelet turned away; None for one that ran."""
    if reason == "TopologyAffinityError":
        return Cause.TOPOLOGY
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        return Cause.ADMISSION
    if message.startswith(_REJECTED_PREFIX) and reason not in _OVER:
        return Cause.ADMISSION
    return None


def _amounts(text: str) -> dict[str, float]:
    """Read `key=amount,key=amount`; what is no amount is left out."""
    found = {}
    for part in text.split(","):
        key, _, value = part.strip().rpartition("=")
        amount = _AMOUNT.match(value.strip())
        if key and amount:
            found[key] = float(amount[1]) * _SUFFIXES[amount[2] or ""]
    return found
