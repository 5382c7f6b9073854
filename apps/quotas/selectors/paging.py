"""Pages of quota keys in either order, and the cursors between them."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from apps.quotas.selectors.observed import Observed
from apps.quotas.selectors.rows import QuotaOrder
from apps.usage.domain import cursors
from apps.usage.selectors import CursorRefused

_KIND = "quotas"
_SHAPE = (str, str, str, str, str, str)
_SortKey = tuple[float, str, str, str, str, str]


class KeyPage(NamedTuple):
    """One page of keys, and the cursor of the next one."""

    keys: list[Observed]
    following: str | None


def part_of(found: Sequence[Observed], order: QuotaOrder, cursor: str | None, size: int) -> KeyPage:
    """Return the page of these keys that comes after a cursor. Raises CursorRefused."""
    keyed = sorted((_sort_key(one, order), n) for n, one in enumerate(found))
    if cursor is not None:
        after = _after(cursor, order)
        keyed = [one for one in keyed if one[0] > after]
    last = keyed[size - 1][0] if len(keyed) > size else None
    following = None if last is None else cursors.encode(_kind(order), _encoded(last))
    return KeyPage([found[n] for _, n in keyed[:size]], following)


def _sort_key(one: Observed, order: QuotaOrder) -> _SortKey:
    first = 0.0
    if order is QuotaOrder.FULLEST:
        first = inf if one.saturation is None else -one.saturation
    return (first, one.cluster, one.namespace, one.source, one.name, one.key)


def _kind(order: QuotaOrder) -> str:
    return f"{_KIND}-{order.value}"


def _encoded(key: _SortKey) -> list[str]:
    return [repr(key[0]), *key[1:]]


def _after(cursor: str, order: QuotaOrder) -> _SortKey:
    first, *rest = cursors.decode(_kind(order), cursor, _SHAPE)
    try:
        ratio = float(first)
    except ValueError as error:
        raise CursorRefused("this cursor does not belong to this list") from error
    cluster, namespace, source, name, key = (str(part) for part in rest)
    return (ratio, cluster, namespace, source, name, key)
