"""What closing a month freezes, and later adjustments.

A closed month is never written to. What arrives late, or a price that is corrected, shows as the
difference to what was frozen, and is booked as adjustment lines of the open month.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

LineId = tuple[str, ...]
"""What identifies a row of a closed month: its period and its groups, cause last, as texts."""


class LineAmount(Struct, frozen=True):
    """What a row says: nano-GPU-hours, those of them without a price, and units of 1e-8."""

    gpu_hours: int
    cost: int
    unpriced: int = 0

    def __sub__(self, other: "LineAmount") -> "LineAmount":
        return LineAmount(
            self.gpu_hours - other.gpu_hours,
            self.cost - other.cost,
            self.unpriced - other.unpriced,
        )

    def __add__(self, other: "LineAmount") -> "LineAmount":
        return LineAmount(
            self.gpu_hours + other.gpu_hours,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )

    def __bool__(self) -> bool:
        return bool(self.gpu_hours or self.cost or self.unpriced)


NOTHING = LineAmount(0, 0)
ClosedLine = tuple[LineId, LineAmount]


class NotCanonical(ValueError):
    """Rows that were to be frozen are out of order, or one comes twice."""


def canonical_rows(rows: Iterable[ClosedLine], *, header: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the bytes that stand for a month: a line of what it is of, then one for each row.

    Rows must come in the order of their keys, each once: then the bytes depend on nothing but what
    they say. Whole numbers only, so nothing depends on how a float is printed. `header` holds what
    the figures rest on: period, zone, currency, basis, policy, price-book version.
    Raises NotCanonical for another order.
    """
    yield _canonical_line(dict(header))
    last: LineId | None = None
    for key, amount in rows:
        # Equal keys too: two rows of one key could be frozen in either order, with two hashes.
        if last is not None and key <= last:
            raise NotCanonical(f"rows to be frozen must ascend: {key} after {last}")
        last = key
        yield _canonical_line([*key, amount.gpu_hours, amount.cost, amount.unpriced])


def sha256_of(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in parts: of a month, or of a file as it is written."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def adjustments(
    frozen: Mapping[LineId, LineAmount],
    recomputed: Mapping[LineId, LineAmount],
    booked: Iterable[ClosedLine] = (),
) -> list[ClosedLine]:
    """Return the lines that take a closed month to what it would be today, by key.

        line = recomputed − frozen − what earlier adjustments have booked

    So frozen + all adjustments ever booked = recomputed, exactly and key by key; asked again
    without news there are none. A row that is gone comes as its negative, a new one as itself.
    """
    known = dict(frozen)
    for key, amount in booked:
        known[key] = known.get(key, NOTHING) + amount
    lines = (
        (key, recomputed.get(key, NOTHING) - known.get(key, NOTHING))
        # Both sides: a row that vanished needs a negative line, as a new one needs its own.
        for key in sorted(known.keys() | recomputed.keys())
    )
    return [(key, amount) for key, amount in lines if amount]


def _canonical_line(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode() + b"\n"
