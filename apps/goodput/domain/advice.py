"""What to do about nodes and GPUs on which work fails, or which are broken, in one sentence each.

Page, API and doctor show the same sentences.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from apps.clusters.domain.devices.state import XidKind, meaning


class GpuAction(StrEnum):
    """What to do first about a GPU."""

    REPLACE = "replace"
    UPDATE_DRIVER = "update-driver"
    RESET = "reset"


_GRAVEST = tuple(GpuAction)


class GpuFault(NamedTuple):
    """What is wrong with a GPU by its own word, and what to do about it."""

    action: GpuAction
    text: str


class GpuErrors(NamedTuple):
    """What a GPU shows now; None: not shown.

    `xid` is the code of its last error, `ecc_uncorrected` counts since its driver started.
    """

    xid: int | None = None
    remap_failure: bool | None = None
    ecc_uncorrected: int | None = None


class GpuAdvice(NamedTuple):
    """What to do about a GPU, by its number (else its UUID), as `text` says.

    `is_unreliable` says that work fails too often on it; else it is broken by its own word.
    """

    gpu: str
    node: str
    action: GpuAction
    text: str
    is_unreliable: bool


def gpu_faults(errors: GpuErrors) -> list[GpuFault]:
    """Return what is broken in a GPU, the gravest first.

    However few pods failed on it: these errors stay until it is reset or replaced.
    """
    return sorted(_faults(errors), key=lambda one: _GRAVEST.index(one.action))


def _faults(errors: GpuErrors) -> Iterator[GpuFault]:
    if errors.remap_failure:
        yield GpuFault(GpuAction.REPLACE, "a bad memory row could not be replaced")
    if errors.xid and (xid := meaning(errors.xid)).fatal:
        if xid.needs_replacement:
            action = GpuAction.REPLACE
        else:
            is_driver = xid.kind is XidKind.DRIVER
            action = GpuAction.UPDATE_DRIVER if is_driver else GpuAction.RESET
        yield GpuFault(action, f"XID {xid.code}, {xid.name}")
    if errors.ecc_uncorrected:
        some = "1 ECC error was" if errors.ecc_uncorrected == 1 else "ECC errors were"
        count = "" if errors.ecc_uncorrected == 1 else f"{errors.ecc_uncorrected:,} "
        yield GpuFault(GpuAction.RESET, f"{count}{some} not corrected")


def gpu_action(*, hardware: bool, driver: bool, application: bool) -> GpuAction:
    """Return what to do about an unreliable GPU, by whose errors it showed in these days."""
    if hardware:
        return GpuAction.REPLACE
    # A program at fault makes the driver complain too: it is blamed only where no program is.
    return GpuAction.UPDATE_DRIVER if driver and not application else GpuAction.RESET


def gravest(*actions: GpuAction) -> GpuAction:
    """Return the gravest of the actions: a replacement makes a reset needless."""
    return min(actions, key=_GRAVEST.index)


def gpu_advice(action: GpuAction, name: str, why: str) -> str:
    """Return the advice about a GPU in a sentence."""
    if action is GpuAction.REPLACE:
        return f"Replace {name}: {why}."
    # Where no error tells of hardware, a reset is tried first, for it may help.
    if action is GpuAction.UPDATE_DRIVER:
        return f"Reset {name}, and look for an update of its driver: {why}."
    return f"Reset {name}, and replace it when this goes on: {why}."


def node_advice(name: str, why: str) -> str:
    """Return the advice about an unreliable node in a sentence."""
    return f"Drain {name}: {why}."


def excess_text(
    ratio: float | None, low: float | None, high: float | None, lost_gpu_hours: float
) -> str:
    """Return how much more often than elsewhere work failed, with the range, and what it cost."""
    lost = f"{lost_gpu_hours:,.0f} GPU-hours lost in at most 30 days"
    if ratio is None:
        return f"the same work never failed elsewhere (at least {_times(low)} as often), {lost}"
    to = f"at least {_times(low)}" if high is None else f"{_times(low)} to {_times(high)}"
    return f"{_times(ratio)} the expected failures ({to}), {lost}"


def _times(ratio: float | None) -> str:
    """Return a ratio in words; None: nothing bounds it below."""
    known = ratio or 0.0
    return f"{known:.1f}×" if known < 10 else f"{known:,.0f}×"
