"""Errors and throttling of a GPU over an hour: XIDs, memory rows, ECC, heat and power."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntFlag, StrEnum
from typing import NamedTuple

from msgspec import Struct, field


class HealthMeasure(StrEnum):
    """What exporters may show of a GPU's health over time.

    Rows and ECC errors are counts, `thermal` and `power` the seconds in which its clocks were held
    down for that cause.
    """

    XID = "xid"
    REMAPPED_CORRECTABLE = "remapped_correctable"
    REMAPPED_UNCORRECTABLE = "remapped_uncorrectable"
    ECC_CORRECTED = "ecc_corrected"
    ECC_UNCORRECTED = "ecc_uncorrected"
    THERMAL = "thermal"
    POWER = "power"


class ThrottleReason(IntFlag):
    """Why the driver holds the clocks of a GPU down: NVML's bits, of those that tell of trouble.

    Idle GPUs, set clocks, sync boost and display clocks have bits too, which say nothing of health.
    """

    POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    EXTERNAL_POWER = 0x80


_REASON_NAMES: Mapping[ThrottleReason, str] = {
    ThrottleReason.HARDWARE_THERMAL: "hardware thermal slowdown",
    ThrottleReason.THERMAL: "thermal slowdown",
    ThrottleReason.EXTERNAL_POWER: "power brake",
    ThrottleReason.HARDWARE_SLOWDOWN: "hardware slowdown",
    ThrottleReason.POWER_CAP: "power cap",
}


def throttling(bits: int) -> list[str]:
    """Return in words why clocks are held down, the gravest cause first; empty where they are not.

    A power cap is usual under full load.
    """
    return [name for reason, name in _REASON_NAMES.items() if bits & reason]


class XidEvent(NamedTuple):
    """An XID when a scrape first showed it, Unix seconds."""

    at: float
    code: int


class GpuHealthHour(Struct, frozen=True):
    """What went wrong on a GPU in the hour that begins at `hour`, Unix seconds.

    `growth` is how much each measure but the XID grew; one that did not grow is left out. None is
    one whose values cannot be.
    """

    hour: int
    uuid: str
    xids: tuple[XidEvent, ...] = ()
    growth: Mapping[HealthMeasure, float | None] = field(default_factory=dict)


class HealthAnswer(Struct, frozen=True):
    """The hours of a window in which something went wrong, and what was exported in each hour.

    A measure that is exported and has no row is zero; one that is not exported is no data.
    """

    rows: tuple[GpuHealthHour, ...] = ()
    exported: Mapping[int, frozenset[HealthMeasure]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


_LARGEST_CODE = 9_999
_LATE_SECONDS = 300.0
"""Scraped less often than that, a series is taken to begin where it is seen first."""


def xid_events(
    samples: Iterable[tuple[float, float]], *, start: float, read_from: float
) -> Iterator[XidEvent]:
    """Yield the errors that a GPU showed newly from `start` on.

    `samples` are (Unix seconds, code) from `read_from` on, a little before `start`. The gauge keeps
    the code of the last error: only another code than before is an event, and the same error
    again is not seen. What is no code, as NaN or a blank of DCGM, is left out.
    """
    before: int | None = None
    for at, value in sorted(samples):
        if not 0.0 <= value <= _LARGEST_CODE:
            continue
        code = int(value)
        # What is there from the beginning happened before; a series that comes later and shows an
        # error at once is an exporter that was started by it, or away when it happened.
        stays = before == code if before is not None else at - read_from <= _LATE_SECONDS
        if code > 0 and at >= start and not stays:
            yield XidEvent(at, code)
        before = code
