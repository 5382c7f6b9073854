"""Tabs of a page, kept in its address as `?tab=key`.

A view asks which tab is open, loads only what that tab shows, and adds counts where it has them:

    TABS = (Tab("shares", "Shares"), Tab("matrix", "Borrowing matrix"), Tab("queue", "Queue time"))

    tabs = tab_bar(request, TABS, name="Fairness")
    if tabs.chosen == "matrix":
        context["matrix"] = borrowing_matrix(reading)
    context["tabs"] = tabs.counted({"queue": 12})

    {% include "components/_tabs.html" %}
    {% if tabs.chosen == "matrix" %}…{% endif %}

The bar and what it opens stand inside `#results`: a click swaps both and the address follows.
"""

from collections.abc import Mapping, Sequence

from django.http import HttpRequest
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.web.components.page_query import PER_PAGE_KEY, path_of, with_query
from apps.web.components.window_picker import PLACE_KEYS, remaining_query

TAB_KEY = "tab"
_OF_TABLES = ("sort", PER_PAGE_KEY)
"""What one tab's table is asked for; the next tab has another table."""


class Tab(Struct, frozen=True):
    """A tab: `label` has three words at most, `count` stands beside it where it is known."""

    key: str
    label: str
    count: int | None = None


class TabLink(Struct, frozen=True):
    """A tab and where it leads; `is_chosen` marks the open one."""

    tab: Tab
    href: str
    is_chosen: bool


class TabBar(Struct, frozen=True):
    """The tabs of a page; `chosen` is the key of the open one, `name` is for screen readers."""

    name: str
    chosen: str
    links: Sequence[TabLink]

    def counted(self, counts: Mapping[str, int]) -> "TabBar":
        """Return the bar with counts beside the labels of these keys."""
        links = [
            replace(link, tab=replace(link.tab, count=counts.get(link.tab.key, link.tab.count)))
            for link in self.links
        ]
        return replace(self, links=links)


def tab_bar(
    request: HttpRequest, tabs: Sequence[Tab], *, name: str = "Sections", closed: bool = False
) -> TabBar:
    """Return the tabs with the one open that the address names; the first one without a name.

    With `closed` none is open without a name, `chosen` is empty, and the open one's link closes
    it. Links keep window and filters, and drop pages, cursors and the order of tables. An unknown
    key is taken for none.
    """
    asked = request.GET.get(TAB_KEY, "")
    usual = "" if closed else tabs[0].key
    chosen = asked if any(tab.key == asked for tab in tabs) else usual
    query = [
        (key, value)
        for key, value in remaining_query(request, drop=(TAB_KEY, *PLACE_KEYS, *_OF_TABLES))
        if not key.endswith(".sort")
    ]
    path = path_of(request)
    links = []
    for tab in tabs:
        is_chosen = tab.key == chosen
        # The usual tab has no key in its address, so that one page has one address.
        is_plain = is_chosen if closed else tab.key == usual
        address = with_query(path, query if is_plain else [*query, (TAB_KEY, tab.key)])
        links.append(TabLink(tab, address, is_chosen))
    return TabBar(name, chosen, links)
