"""The cost of unused allocation, by team or workload."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import HELD, Cause
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.rows import CostQuery
from apps.usage.domain.usage_query import Filters, Grouping

_UNUSED = frozenset({Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING})


class UnusedCost(Struct, frozen=True):
    """What one group was allocated and did not use; `by_cause` has its nano-GPU-hours.

    Money is in units of 1e-8 of `currency`; `currency` is empty for GPU-hours without a price,
    whose money is 0. `known` is the cost of what was allocated without what has no metrics.
    """

    groups: Mapping[str, str]
    currency: str
    unused: int
    known: int
    by_cause: Mapping[Cause, int]

    @property
    def ratio(self) -> float | None:
        """Unused ÷ allocated cost, 0..1; None where nothing with a price has metrics."""
        return self.unused / self.known if self.known else None

    @property
    def gpu_hours(self) -> int:
        """The unused nano-GPU-hours."""
        return sum(self.by_cause.values())


class _CostKey(NamedTuple):
    ids: tuple[int, ...]
    currency: str


def unused_costs(
    window: Window,
    *,
    by: Sequence[Grouping],
    filters: Filters,
    visibility: Visibility,
    limit: int | None = None,
    zone: ZoneInfo | None = None,
) -> list[UnusedCost]:
    """Return what teams that the reader sees did not use, by `by` and currency, dearest first.

    What has no price comes last, by GPU-hours. Groups of which all was used are left out where
    there is a `limit`. Six queries and those for names. Raises GroupingRefused.
    """
    asked = CostQuery(window, group_by=by, filters=filters, causes=HELD, waste=True)
    reading = CostReader(asked, visibility=visibility, zone=zone)
    unused: dict[_CostKey, int] = defaultdict(int)
    known: dict[_CostKey, int] = defaultdict(int)
    causes: dict[_CostKey, dict[Cause, int]] = defaultdict(dict)
    for line_key, line in reading.sums(window).items():
        key, cause = _CostKey(line_key.ids, line_key.currency), line_key.cause
        # Without metrics its use is unknown: it is in neither of the two sums.
        if cause not in HELD or cause is Cause.UNMEASURED:
            continue
        known[key] += line.cost
        if cause in _UNUSED:
            # Money is 0 without a price, so GPU-hours by cause are summed beside it.
            unused[key] += line.cost
            causes[key][cause] = causes[key].get(cause, 0) + line.gpu_hours
    # The key last: what costs the same keeps its order from one reading to the next.
    ranked = sorted(known, key=lambda key: (-unused[key], -sum(causes[key].values()), key))
    if limit is not None:
        ranked = [key for key in ranked if causes[key]][:limit]
    names = reading.names_of({key.ids for key in ranked})
    columns = tuple(map(str, by))
    return [
        UnusedCost(
            groups=dict(zip(columns, names[key.ids], strict=True)),
            currency=key.currency,
            unused=unused[key],
            known=known[key],
            by_cause=causes[key],
        )
        for key in ranked
    ]
