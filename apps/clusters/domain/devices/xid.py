"""What XID codes mean: the numbers by which NVIDIA's driver names an error of a GPU.

The exporter shows the code of the last error since the driver came up, not how many there were.
The list moves between releases of the driver: a code that is not in it is unknown, not harmless.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class XidKind(StrEnum):
    """Where an error mostly comes from."""

    APPLICATION = "application"
    HARDWARE = "hardware"
    DRIVER = "driver"
    UNKNOWN = "unknown"


class Xid(NamedTuple):
    """An error by its code; `fatal` says that the card does no more work before someone acts."""

    code: int
    name: str
    kind: XidKind
    advice: str
    fatal: bool = False


_APPLICATION = "Look at the logs of the pod that ran then; the card itself is fine."
_RESET = "Drain the node and reset the GPU; replace it when the error comes back."
_REPLACE = "Drain the node, run a field diagnosis, and have the card checked or replaced."
_DRIVER = "Drain the node and reset the GPU; look for an update of the driver when it comes back."
_REMAP = "Reset the GPU at the next chance, so that the spare row is taken into use."

_KNOWN = (
    Xid(8, "a channel of the GPU timed out", XidKind.APPLICATION, _APPLICATION),
    Xid(13, "exception of the graphics engine", XidKind.APPLICATION, _APPLICATION),
    Xid(31, "access to memory that is not mapped", XidKind.APPLICATION, _APPLICATION),
    Xid(32, "commands for the GPU arrived damaged", XidKind.DRIVER, _DRIVER),
    Xid(38, "error of the driver's firmware", XidKind.DRIVER, _DRIVER),
    Xid(43, "work was stopped after an error of its own", XidKind.APPLICATION, _APPLICATION),
    Xid(45, "work was cleaned up after an earlier error", XidKind.APPLICATION, _APPLICATION),
    Xid(48, "memory error that could not be corrected", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(61, "warning of the GPU's controller", XidKind.DRIVER, _DRIVER),
    Xid(62, "the GPU's controller halted", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(63, "a bad memory row was marked for replacement", XidKind.HARDWARE, _REMAP),
    Xid(64, "a bad memory row could not be replaced", XidKind.HARDWARE, _REPLACE, fatal=True),
    Xid(68, "exception of the video decoder", XidKind.APPLICATION, _APPLICATION),
    Xid(69, "exception of the graphics engine's class", XidKind.APPLICATION, _APPLICATION),
    Xid(74, "error of an NVLink connection", XidKind.HARDWARE, _REPLACE, fatal=True),
    Xid(79, "the GPU no longer answers on its bus", XidKind.HARDWARE, _REPLACE, fatal=True),
    Xid(92, "many memory errors that were corrected", XidKind.HARDWARE, _REPLACE),
    Xid(94, "memory error that was contained to one application", XidKind.HARDWARE, _REMAP),
    Xid(95, "memory error that was not contained", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(109, "switching between work took too long", XidKind.DRIVER, _DRIVER),
    Xid(119, "the GPU's system processor did not answer", XidKind.DRIVER, _DRIVER, fatal=True),
    Xid(120, "error of the GPU's system processor", XidKind.DRIVER, _DRIVER, fatal=True),
    Xid(121, "error of the link between chips", XidKind.HARDWARE, _REPLACE),
    Xid(140, "memory error that was not recovered", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(143, "the GPU could not be initialized", XidKind.HARDWARE, _REPLACE, fatal=True),
)
XIDS: Mapping[int, Xid] = {xid.code: xid for xid in _KNOWN}
"""Every code that is known here; to be edited as the driver's list changes."""


def meaning(code: int) -> Xid:
    """Return what a code means; of one that is not listed, that it is not known."""
    advice = "Look the code up in NVIDIA's list of XID errors for the driver of this node."
    return XIDS.get(code) or Xid(code, "not in the list", XidKind.UNKNOWN, advice)
