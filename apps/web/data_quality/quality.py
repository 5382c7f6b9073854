"""What a page must say about its numbers: missing hours, metrics coverage, source of pods.

Two questions with a word each. *Metrics coverage*: was activity measured while pods ran? *Source of
pods*: are they known from the Kubernetes API or from series?
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.usage.domain.amounts import Amounts
from apps.usage.selectors import Freshness
from apps.web.components.formats import Format, clock_text, duration, shown

HOUR = timedelta(hours=1)
STALE_AFTER = 3 * HOUR
LOW_COVERAGE = 0.95
_MOST_RANGES = 4


@dataclass(frozen=True, slots=True)
class HourGap:
    """Hours of one kind of trouble: `text` names them, `count` counts them."""

    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Quality:
    """The banner above a page's numbers; `level` is ok, warning or danger.

    `begins` is set when the window reaches back before the first facts there are. `badge` is the
    same in a few words each, what is wrong first. `coverage` is the metrics coverage, `from_api`
    and `from_series` are the source of pods, by GPU-hours; empty where nothing ran.
    """

    level: str
    begins: str
    last_hour_end: str
    stale: str
    missing: HourGap | None
    failed: HourGap | None
    partial: HourGap | None
    coverage: str
    unmeasured: str
    from_api: str
    from_series: str
    badge: Sequence[str] = ()


def quality(
    freshness: Freshness,
    amounts: Amounts | None,
    *,
    start: datetime,
    zone: ZoneInfo,
    now: datetime,
) -> Quality:
    """Return what must be said of numbers that rest on these hours; the window is from `start`.

    `amounts` is the sum over what the page shows; None where the page shows no amounts.
    """
    failed = _gap(freshness.failed, zone)
    missing = _gap(sorted(set(freshness.missing) - set(freshness.failed)), zone)
    partial = _gap(freshness.partial, zone)
    stale = _stale(freshness.last_hour_end, now)
    coverage = amounts.coverage_ratio if amounts else None
    low = coverage is not None and coverage < LOW_COVERAGE
    trouble = bool(failed or missing or partial or stale or low)
    level = "danger" if freshness.last_hour_end is None else "warning" if trouble else "ok"
    series = amounts.from_series_ratio if amounts else None
    begins = _begins(freshness.first_hour, start, zone)
    return Quality(
        level=level,
        begins=begins,
        last_hour_end=clock_text(freshness.last_hour_end, zone) if freshness.last_hour_end else "",
        stale=stale,
        missing=missing,
        failed=failed,
        partial=partial,
        coverage=_ratio(coverage, zone),
        unmeasured=_unmeasured(amounts, zone),
        from_api=_ratio(None if series is None else 1.0 - series, zone),
        from_series=_ratio(series, zone),
        badge=[
            *_troubles(failed, missing, partial),
            *([f"facts begin {begins}"] if begins else ()),
            *([f"{_ratio(coverage, zone)} metrics coverage"] if coverage is not None else ()),
            *([f"{_ratio(series, zone)} from series"] if series else ()),
            *_newest(freshness.last_hour_end, stale, zone, now),
        ],
    )


def hour_ranges(hours: Sequence[datetime], zone: ZoneInfo) -> list[str]:
    """Write hours as ranges of local time: `Tue 3 Nov 2026 02:00 – 05:00`."""
    runs: list[tuple[datetime, datetime]] = []
    for hour in sorted({h.astimezone(UTC) for h in hours}):
        if runs and runs[-1][1] == hour:
            runs[-1] = (runs[-1][0], hour + HOUR)
        else:
            runs.append((hour, hour + HOUR))
    return [_range(start, end, zone) for start, end in runs]


def _range(start: datetime, end: datetime, zone: ZoneInfo) -> str:
    first, last = start.astimezone(zone), end.astimezone(zone)
    # Across the end of summer time the clock alone would hide an hour.
    name = " %Z" if first.utcoffset() != last.utcoffset() else ""
    until = f"{last:%H:%M}" if first.date() == last.date() else clock_text(end, zone)
    return f"{clock_text(start, zone)}{first.strftime(name)} – {until}{last.strftime(name)}"


def _gap(hours: Sequence[datetime], zone: ZoneInfo) -> HourGap | None:
    if not hours:
        return None
    ranges = hour_ranges(hours, zone)
    more = len(ranges) - _MOST_RANGES
    text = ", ".join(ranges[:_MOST_RANGES]) + (f" and {more} more stretches" if more > 0 else "")
    return HourGap(len(set(hours)), text)


def _begins(first: datetime | None, start: datetime, zone: ZoneInfo) -> str:
    return clock_text(first, zone) if first and first > start else ""


def _troubles(
    failed: HourGap | None, missing: HourGap | None, partial: HourGap | None
) -> list[str]:
    lost = (failed.count if failed else 0) + (missing.count if missing else 0)
    found = [f"{_hours(lost)} not collected"] if lost else []
    return [*found, f"{_hours(partial.count)} partial"] if partial else found


def _hours(count: int) -> str:
    return f"{count} hour{'' if count == 1 else 's'}"


def _newest(last: datetime | None, stale: str, zone: ZoneInfo, now: datetime) -> list[str]:
    if last is None:
        return []
    local = last.astimezone(zone)
    day = "" if local.date() == now.astimezone(zone).date() else f"{local.day} {local:%b} "
    return [f"newest hour ends {day}{local:%H:%M}", *([f"{stale} old"] if stale else ())]


def _stale(last: datetime | None, now: datetime) -> str:
    if last is None or now - last <= STALE_AFTER:
        return ""
    return duration((now - last).total_seconds())


def _unmeasured(amounts: Amounts | None, zone: ZoneInfo) -> str:
    if not amounts or not amounts.unmeasured:
        return ""
    return shown(amounts.unmeasured, Format.GPU_HOURS, zone)


def _ratio(value: float | None, zone: ZoneInfo) -> str:
    return "" if value is None else shown(value, Format.RATIO, zone)
