"""Pages of short lists, and walks over all pages of long ones."""

import pytest

from apps.api.endpoints import ShortList, walk
from apps.usage.domain.usage_query import RowPage
from apps.usage.selectors import CursorRefused

NAMES = ["gold", "silver", "bronze"]
LIST: ShortList[str] = ShortList("tiers", str, lambda names: [{"name": name} for name in names])


def page(cursor: str | None, size: int, names: list[str] = NAMES) -> RowPage[str]:
    return LIST.page(names, cursor=cursor, page_size=size)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pages_of_any_size_walk_the_list_in_its_order(size: int) -> None:
    parts = list(walk(lambda cursor: page(cursor, size)))
    assert [name for part in parts for name in part] == NAMES
    assert all(len(part) == size for part in parts[:-1])


def test_a_full_last_page_has_no_next() -> None:
    assert page(None, 3).next_cursor is None


def test_a_cursor_whose_row_went_away_is_refused() -> None:
    cursor = page(None, 1).next_cursor
    with pytest.raises(CursorRefused, match="changed"):
        page(cursor, 1, ["silver", "bronze"])


def test_a_walk_reads_its_first_page_at_once_so_that_refusals_come_early() -> None:
    def refuse(cursor: str | None) -> RowPage[str]:
        raise CursorRefused("no")

    with pytest.raises(CursorRefused):
        walk(refuse)
