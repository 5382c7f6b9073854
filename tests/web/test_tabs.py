"""Tabs of a page and the figures at its head."""

import pytest
from django.test import RequestFactory

from apps.web.components.figure_row import KeyFigure, figure_row, no_data
from apps.web.components.tabs import Tab, TabBar, tab_bar

TABS = (Tab("shares", "Shares"), Tab("matrix", "Borrowing matrix"), Tab("queue", "Queue time"))


def bar(query: str) -> TabBar:
    return tab_bar(RequestFactory().get(f"/fairness/?{query}"), TABS)


@pytest.mark.parametrize(
    ("query", "chosen"),
    [("", "shares"), ("tab=matrix", "matrix"), ("tab=nothing", "shares"), ("tab=", "shares")],
)
def test_the_address_says_which_tab_is_open(query: str, chosen: str) -> None:
    found = bar(query)
    assert found.chosen == chosen
    assert [link.tab.key for link in found.links if link.is_chosen] == [chosen]


def test_links_keep_window_and_filters_and_drop_what_is_of_one_tab() -> None:
    found = bar("window=7d&tier=gold&tab=queue&page=3&cursor=x&sort=-a&t.sort=b&per_page=50")
    assert [link.href for link in found.links] == [
        "/fairness/?window=7d&tier=gold",
        "/fairness/?window=7d&tier=gold&tab=matrix",
        "/fairness/?window=7d&tier=gold&tab=queue",
    ]


def test_counts_stand_beside_the_labels_they_are_known_of() -> None:
    assert [link.tab.count for link in bar("").counted({"queue": 0}).links] == [None, None, 0]


def test_a_row_has_six_figures_at_most_and_notes_are_short() -> None:
    six = [KeyFigure("Allocated", "1")] * 6
    assert len(figure_row(*six).figures) == 6
    with pytest.raises(ValueError, match="6 figures at most"):
        figure_row(*six, no_data("Energy", "no exporter"))
    assert KeyFigure("Pending", "1", note="oldest 8h 13m").shown_note == "oldest 8h 13m"
    long = KeyFigure("Pending", "1", note="one two three four five six seven")
    assert long.shown_note == "one two three four five six …"
