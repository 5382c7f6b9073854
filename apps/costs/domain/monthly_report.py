"""The monthly report as a mail: what each team cost, and what of it was unused."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.formats import day_words, percent
from apps.accounts.domain.formats import money as money_text
from apps.clusters.domain.window import month_before
from apps.costs.domain.costing import STATEMENTS, Basis, Cause, Policy, cents, money

PLATFORM = "the platform"
BASIS_STATEMENTS = {
    Basis.ALLOCATED: "Charge basis: allocated GPU-hours.",
    Basis.USED: "Charge basis: active GPU-hours, and those without metrics.",
}

_CAUSES = {
    Cause.UNDERUSED: "Underutilized",
    Cause.IDLE: "Idle",
    Cause.NOT_RUNNING: "Allocated, not running",
    Cause.UNALLOCATED: f"Unallocated, of {PLATFORM}",
    Cause.UNHEALTHY: f"Unavailable, of {PLATFORM}",
}


class MonthlyReport(Struct, frozen=True):
    """What a month cost, in units of 1e-8 by currency.

    `teams` and `wasted` hold (name or cause, units) for each currency, the dearest first; the
    teams of a currency sum to its `totals`. What teams did not use is in `wasted` on either basis,
    and what of it is the platform's only for who sees everything. `unpriced` is nano-GPU-hours
    without a price, `coverage_ratio` 0..1 or None where nothing ran. `closed_at` None: the month
    is open still.
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
    sums = [money_text(money(amount), c) for c, amount in sorted(report.totals.items())]
    return f"GPU costs of {report.month:%B %Y}: {' and '.join(sums) or 'nothing is priced'}"


def body(report: MonthlyReport, *, link: str) -> str:
    """Return the message's text; amounts of one table add up as they are printed."""
    lines = [f"GPU costs of {report.month:%B %Y}, time zone {report.time_zone}.", ""]
    for currency in sorted(report.totals):
        lines += _by_currency(report, currency)
    if not report.totals:
        lines += ["No hour of this month has a price.", ""]
    lines += _terms_text(report)
    files = (
        f"Files and month close: {link}" if link else "Files are on the page Exports & month close."
    )
    return "\n".join([*lines, "", files, ""])


def _by_currency(report: MonthlyReport, currency: str) -> list[str]:
    teams = report.teams[currency]
    wasted = report.wasted.get(currency, ())
    # Rounded as `cents` rounds the sum of a column, so it is what the lines above add up to.
    total = _amount_texts([report.totals[currency]])[0]
    lines = [
        f"By team, in {currency}",
        *_table_text([(name or PLATFORM, n) for name, n in teams]),
    ]
    lines += [f"  {'Total':<40} {total:>20}", ""]
    if wasted:
        named = [(_CAUSES[cause], amount) for cause, amount in wasted]
        whole = _amount_texts([sum(amount for _, amount in wasted)])[0]
        lines += [f"Unused, by cause, in {currency}", *_table_text(named)]
        lines += [f"  {'Total':<40} {whole:>20}", ""]
    return lines


def _table_text(rows: Sequence[tuple[str, int]]) -> list[str]:
    texts = _amount_texts([amount for _, amount in rows])
    return [
        f"  {_one_line(name):<40} {text:>20}" for (name, _), text in zip(rows, texts, strict=True)
    ]


def _one_line(name: str) -> str:
    """Return a name on one line, whatever it holds."""
    # The mail is plain text: a line break in a name would begin a line of its own.
    return " ".join(name.split())[:80]


def _amount_texts(amounts: Sequence[int]) -> list[str]:
    """Write a column in whole units, as pages do, so that it adds up."""
    return [f"{amount:,}" for amount in cents(amounts, digits=0)]


def _terms_text(report: MonthlyReport) -> list[str]:
    ratio = report.coverage_ratio
    coverage = "nothing ran" if ratio is None else f"{percent(ratio)} of running time is measured"
    lines = [BASIS_STATEMENTS[report.basis], STATEMENTS[report.policy]]
    lines += [f"Price book {report.price_book}. Coverage: {coverage}."]
    if report.unpriced:
        lines += [f"{report.unpriced / 1e9:,.1f} GPU-hours have no price. Totals exclude them."]
    if report.closed_at is not None:
        # `now` is that day itself, so that it is written without a year: the month above has one.
        closed = day_words(report.closed_at, ZoneInfo(report.time_zone), now=report.closed_at)
        lines += [f"Closed on {closed}; rows SHA-256 {report.rows_sha256}."]
        if report.forced:
            lines += [f"Closed with data missing: {_one_line(report.forced)}"]
    else:
        lines += ["The month is open: figures may change."]
    return lines


def due_month(today: date, day: int) -> date | None:
    """Return the month whose report is due on a local day; None before the day of the month."""
    # Day 0: no reports by mail are wanted.
    if not day or today.day < day:
        return None
    return month_before(today)
