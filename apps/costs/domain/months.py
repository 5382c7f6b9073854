"""Months of costs: what closing freezes, later adjustments, and the monthly report.

A closed month is never written to. What arrives late, or a price that is corrected, shows as the
difference to what was frozen, and is booked as adjustment lines of the open month.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from apps.costs.domain.costing import STATEMENTS, Basis, Cause, Policy, cents, minor_digits

Key = tuple[str, ...]
"""What identifies a row of a closed month: its period and its groups, cause last, as texts."""


@dataclass(frozen=True, slots=True)
class ClosedAmount:
    """What a row says: nano-GPU-hours, those of them without a price, and units of 1e-8."""

    gpu_hours: int
    cost: int
    unpriced: int = 0

    def __sub__(self, other: "ClosedAmount") -> "ClosedAmount":
        return ClosedAmount(
            self.gpu_hours - other.gpu_hours,
            self.cost - other.cost,
            self.unpriced - other.unpriced,
        )

    def __add__(self, other: "ClosedAmount") -> "ClosedAmount":
        return ClosedAmount(
            self.gpu_hours + other.gpu_hours,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )

    def __bool__(self) -> bool:
        return bool(self.gpu_hours or self.cost or self.unpriced)


NOTHING = ClosedAmount(0, 0)
Closed = tuple[Key, ClosedAmount]


class NotCanonical(ValueError):
    """Rows that were to be frozen are out of order, or one comes twice."""


def canonical_lines(rows: Iterable[Closed], *, header: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the bytes that stand for a month: a line of what it is of, then one for each row.

    Rows must come in the order of their keys, each once: then the bytes depend on nothing but what
    they say. Whole numbers only, so nothing depends on how a float is printed. `header` holds what
    the figures rest on: period, zone, currency, basis, policy, price-book version.
    Raises NotCanonical for another order.
    """
    yield _canonical_line(dict(header))
    last: Key | None = None
    for key, amount in rows:
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
    frozen: Mapping[Key, ClosedAmount],
    recomputed: Mapping[Key, ClosedAmount],
    booked: Iterable[Closed] = (),
) -> list[Closed]:
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
        for key in sorted(known.keys() | recomputed.keys())
    )
    return [(key, amount) for key, amount in lines if amount]


def _canonical_line(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode() + b"\n"


PLATFORM = "the platform"
BASIS_STATEMENTS = {
    Basis.ALLOCATED: "Charge basis: allocated GPU-hours.",
    Basis.USED: "Charge basis: active GPU-hours, and those without metrics.",
}


@dataclass(frozen=True, slots=True)
class MonthlyReport:
    """What a month cost, in units of 1e-8 by currency.

    `teams` and `wasted` hold (name or cause, units) for each currency, the dearest first; the
    teams of a currency sum to its `totals`. `unpriced` is nano-GPU-hours without a price,
    `coverage_ratio` 0..1 or None where nothing ran. `closed_at` None: the month is open still.
    """

    month: date
    time_zone: str
    totals: Mapping[str, int]
    teams: Mapping[str, Sequence[tuple[str, int]]]
    wasted: Mapping[str, Sequence[tuple[Cause, int]]]
    basis: Basis
    policy: Policy
    price_book: str
    coverage_ratio: float | None
    unpriced: int
    closed_at: datetime | None = None
    rows_sha256: str = ""
    forced: str = ""


def subject(report: MonthlyReport) -> str:
    """Return the message's subject."""
    sums = [
        f"{_printed_amounts([amount], c)[0]} {c}" for c, amount in sorted(report.totals.items())
    ]
    return f"GPU costs of {report.month:%Y-%m}: {' and '.join(sums) or 'nothing is priced'}"


def body(report: MonthlyReport, *, link: str) -> str:
    """Return the message's text; amounts of one table add up as they are printed."""
    lines = [f"GPU costs of {report.month:%Y-%m}, months local to {report.time_zone}.", ""]
    for currency in sorted(report.totals):
        lines += _by_currency(report, currency)
    if not report.totals:
        lines += ["No hour of this month has a price.", ""]
    lines += _terms_lines(report)
    files = f"Files and the months' states: {link}" if link else "Files are on the page Exports."
    return "\n".join([*lines, "", files, ""])


def _by_currency(report: MonthlyReport, currency: str) -> list[str]:
    teams = report.teams[currency]
    wasted = report.wasted.get(currency, ())
    total = _printed_amounts([report.totals[currency]], currency)[0]
    lines = [
        f"By team, in {currency}",
        *_table_lines([(name or PLATFORM, n) for name, n in teams], currency),
    ]
    lines += [f"  {'together':<40} {total:>20}", ""]
    if wasted:
        named = [(cause.value.replace("_", " "), amount) for cause, amount in wasted]
        whole = _printed_amounts([sum(amount for _, amount in wasted)], currency)[0]
        lines += [f"Unused part, by cause, in {currency}", *_table_lines(named, currency)]
        lines += [f"  {'together':<40} {whole:>20}", ""]
    return lines


def _table_lines(rows: Sequence[tuple[str, int]], currency: str) -> list[str]:
    printed = _printed_amounts([amount for _, amount in rows], currency)
    return [
        f"  {_one_line(name):<40} {text:>20}" for (name, _), text in zip(rows, printed, strict=True)
    ]


def _one_line(name: str) -> str:
    """Return a name on one line, whatever it holds."""
    return " ".join(name.split())[:80]


def _printed_amounts(amounts: Sequence[int], currency: str) -> list[str]:
    digits = minor_digits(currency)
    return [f"{amount:,}" for amount in cents(amounts, digits=digits)]


def _terms_lines(report: MonthlyReport) -> list[str]:
    ratio = report.coverage_ratio
    coverage = (
        "nothing ran" if ratio is None else f"{100 * ratio:.2f} % of running time is measured"
    )
    lines = [BASIS_STATEMENTS[report.basis], STATEMENTS[report.policy]]
    lines += [f"Price book {report.price_book}. Coverage: {coverage}."]
    if report.unpriced:
        lines += [f"{report.unpriced / 1e9:,.2f} GPU-hours have no price and are in no sum."]
    if report.closed_at is not None:
        lines += [f"Closed on {report.closed_at:%Y-%m-%d}; rows SHA-256 {report.rows_sha256}."]
        if report.forced:
            lines += [f"Closed although something was missing: {_one_line(report.forced)}"]
    else:
        lines += ["The month is not closed: it may change still."]
    return lines


def due_month(today: date, day: int) -> date | None:
    """Return the month whose report is due on a local day; None before the day of the month."""
    if not day or today.day < day:
        return None
    return (today.replace(day=1) - timedelta(days=1)).replace(day=1)
