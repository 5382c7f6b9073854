"""When a key will be full."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.quotas.domain.saturation import TrendSums, full_at

NOW = datetime(2026, 1, 10, tzinfo=UTC)


def sums(slope: float, *, hours: int = 168, level: float = 4.0) -> TrendSums:
    xs = [-float(n) for n in range(1, hours + 1)]
    ys = [level + slope * x for x in xs]
    pairs = list(zip(xs, ys, strict=True))
    return TrendSums(hours, sum(xs), sum(ys), sum(x * y for x, y in pairs), sum(x * x for x in xs))


def test_the_line_of_the_last_week_is_drawn_on_from_what_is_used_now() -> None:
    found = full_at(NOW, hard=8, used=4, sums=sums(0.02))
    assert found is not None
    assert abs(found - (NOW + timedelta(hours=200))) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("used", "of", "expected"),
    [
        (8, None, NOW),
        (9, sums(-0.1), NOW),
        (4, sums(0.0), None),
        (4, sums(-0.02), None),
        (4, sums(0.005), None),
        (4, sums(0.02, hours=23), None),
        (4, None, None),
        (4, TrendSums(30, -30.0, 4.0, -4.0, 30.0), None),
    ],
    ids=[
        "full already", "over", "flat", "falling", "in more than thirty days",
        "less than a day known", "nothing known", "one hour many times",
    ],
)  # fmt: skip
def test_when_it_is_full(used: float, of: TrendSums | None, expected: datetime | None) -> None:
    assert full_at(NOW, hard=8, used=used, sums=of) == expected


def test_a_quota_of_nothing_that_nobody_asks_of_is_not_full() -> None:
    assert full_at(NOW, hard=0, used=0, sums=None) is None
