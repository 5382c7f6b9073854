"""Names for a file that is written row by row."""

from collections.abc import Iterable, Mapping

from apps.usage.domain.usage_query import Grouping
from apps.usage.selectors import NameLookup

_MANY = frozenset({Grouping.NAMESPACE, Grouping.WORKLOAD})
_MOST_HELD = 100_000
_AT_A_TIME = 1_000


class NameCache(NameLookup):
    """Looks up what it is asked for alone, and forgets what was long ago.

    `Names` reads all workloads there ever were as soon as many are met: right for a page, which
    needs them once, and too much for a file that is written row by row.
    """

    def of(self, grouping: Grouping, ids: Iterable[object]) -> Mapping[object, str]:
        """Return id → name for at least `ids`; a query for each thousand that are not known."""
        if grouping not in _MANY:
            return super().of(grouping, ids)
        wanted = set(ids)
        known = self._known[grouping]
        if len(known) + len(wanted) > _MOST_HELD:
            known.clear()
        new = list(wanted - known.keys())
        for first in range(0, len(new), _AT_A_TIME):
            super().of(grouping, new[first : first + _AT_A_TIME])
        return known
