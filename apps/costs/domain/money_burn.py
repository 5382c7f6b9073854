"""Money budgets: the burn of what a team was charged, on the allocated basis."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

from apps.clusters.domain.window import Window
from apps.costs.domain.money import SCALE, money
from apps.quotas.domain.burn import Burn, DayUse, Spent, Usage, burn, used_up
from apps.usage.domain.amounts import hours

_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)


class ChargedHour(NamedTuple):
    """What a closed hour cost a team: units of 1e-8, and nano-GPU-hours that have no price."""

    start: datetime
    cost: int
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class MoneyBurn:
    """The burn of a money budget; `used` and `allowance` in full, rates as in `quotas.Burn`.

    With `unpriced_gpu_hours` above 0 the rates are lower bounds: those hours cost something too.
    """

    used: Decimal
    allowance: Decimal
    burn: Burn
    unpriced_gpu_hours: float


def money_burn(
    charged: Sequence[ChargedHour],
    *,
    allowance: Decimal,
    at: datetime,
    period: Window,
    zone: ZoneInfo,
    days: Sequence[DayUse] = (),
) -> MoneyBurn:
    """Return the burn of a budget at `at`, the end of the last closed hour.

    `charged` are closed hours, oldest first, of the period and of the seven days before `at`; one
    that is missing is not closed and counts for nothing, neither its cost nor its time. `days` are
    whole local days in the currency. All sums are exact; rates alone are floats.
    """
    within = [hour for hour in charged if period.start <= hour.start < at]
    used = sum(hour.cost for hour in within)
    limit = float(allowance)
    usage = Usage(
        at=at,
        used=used / SCALE,
        last_day=_spent(charged, at - _DAY, at),
        last_week=_spent(charged, at - _WEEK, at),
        days=days,
    )
    reached = used_up(((hour.start, hour.cost / SCALE) for hour in within), allowance=limit)
    return MoneyBurn(
        used=money(used),
        allowance=allowance,
        burn=burn(usage, allowance=limit, period=period, zone=zone, used_up_at=reached),
        unpriced_gpu_hours=hours(sum(hour.unpriced for hour in within)),
    )


def _spent(charged: Sequence[ChargedHour], start: datetime, end: datetime) -> Spent:
    costs = [hour.cost for hour in charged if start <= hour.start < end]
    return Spent(sum(costs) / SCALE, float(len(costs)))
