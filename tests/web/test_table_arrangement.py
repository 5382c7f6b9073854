"""Tables are filtered by name, shown by pages of 25, and with the columns that a reader chose."""

from zoneinfo import ZoneInfo

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory

from apps.accounts.domain.structs import replace
from apps.web.components.formats import Format
from apps.web.components.table_arrangement import arranged, remember_columns
from apps.web.components.tables import Column, Table, TableRow
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

COLUMNS = [
    Column("name", "Name"),
    Column("team", "Team"),
    *(Column(f"n{n}", f"N{n}", Format.COUNT) for n in range(6)),
]


def table(name: str = "t", rows: int = 60, *, ordered: bool = False) -> Table:
    """Return a table of `rows` pods, every second one of speech, with a total."""
    made = [
        TableRow({"name": f"pod-{n:02}", "team": ("vision", "speech")[n % 2], "n0": n})
        for n in range(rows)
    ]
    total = TableRow({"name": "Total", "n0": sum(range(rows))})
    return Table(name, "T", COLUMNS, made, ZoneInfo("UTC"), "None.", total=total, ordered=ordered)


def shown(address: str, *tables: Table, **headers: str) -> Table:
    request = RequestFactory().get(f"/x/{address}", headers=headers)
    return arranged(tables or [table()], request)[0]


def names(of: Table) -> list[str]:
    return [str(row.values["name"]) for row in of.rows]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_long_table_is_shown_by_25_and_says_which_these_are(ordered: bool) -> None:
    second = shown("?page=2", table(ordered=ordered))
    assert names(second) == [f"pod-{n}" for n in range(25, 50)]
    assert second.place == "26–50 of 60"
    assert (second.previous_href, second.next_href) == ("/x/?page=1#t", "/x/?page=3#t")
    assert second.total is not None
    assert second.total.values["n0"] == sum(range(60))
    assert len(list(second.records())) == 62  # a file has all rows, the head and the total


def test_a_list_that_opens_short_leads_to_a_longer_page() -> None:
    short = replace(table(), page_length=10)
    first = shown("?page=2&tier=gold", short)
    assert first.place == "11–20 of 60"
    assert first.more_href == "/x/?tier=gold&per_page=25#t"
    longer = shown("?tier=gold&per_page=25", short)
    assert (longer.place, longer.more_href) == ("1–25 of 60", None)


def test_two_long_tables_of_a_page_are_turned_apart() -> None:
    first, second = arranged([table("a"), table("b")], RequestFactory().get("/x/?b.page=3"))
    assert first.place == "1–25 of 60"
    assert second.place == "51–60 of 60"
    assert first.next_href == "/x/?b.page=3&a.page=2#a"


def test_a_filter_leaves_the_rows_whose_names_hold_every_word_and_drops_the_total() -> None:
    found = shown("?q=SPEECH+pod-1&per_page=3&page=9")
    assert names(found) == ["pod-17", "pod-19"]
    assert found.place == "4–5 of 5"
    assert found.total is None
    assert [record[0] for record in found.records()][1:] == [f"pod-1{n}" for n in (1, 3, 5, 7, 9)]


def test_a_filter_that_nothing_matches_says_so_and_how_to_clear_it() -> None:
    found = shown("?q=nobody&sort=-name")
    assert names(found) == []
    assert "“nobody”" in found.empty
    assert found.tools is not None
    assert found.tools.clear_href == "/x/?sort=-name#t"


def test_a_short_table_has_no_filter() -> None:
    short = shown("", table(rows=25))
    assert short.place == ""
    assert short.tools is not None
    assert short.tools.filter_key == ""


@pytest.mark.parametrize("address", ["?columns=name&columns=n2", "?columns=name,n2"])
def test_columns_are_chosen_in_the_address_and_files_keep_all(address: str) -> None:
    found = shown(address)
    assert [head.column.key for head in found.headings()] == ["name", "n2"]
    assert len(found.foot()) == len(found.body()[0]) == 2
    assert next(found.records()) == [column.key for column in COLUMNS]


@pytest.mark.parametrize("address", ["", "?columns=", "?columns=nonsense", "?columns=nonsense,"])
def test_without_a_choice_that_makes_sense_all_columns_are_shown(address: str) -> None:
    assert len(shown(address).headings()) == len(COLUMNS)


def test_the_name_of_a_row_is_always_shown() -> None:
    assert [head.column.key for head in shown("?columns=n1").headings()] == ["name", "n1"]


def answer(address: str, **headers: str) -> HttpResponse:
    request = RequestFactory().get(f"/x/{address}", headers=headers)
    response = HttpResponse()
    remember_columns(response, arranged([table()], request), request)
    return response


def test_what_a_reader_chose_is_kept_and_what_a_link_says_is_not() -> None:
    chosen = answer("?columns=name,n2", **{"HX-Trigger": "t-columns"})
    kept = chosen.cookies["columns--t"]
    assert kept.value == "name.n2"
    assert kept["httponly"]
    assert not answer("?columns=name,n2").cookies

    request = RequestFactory().get("/x/")
    request.COOKIES["columns--t"] = kept.value
    assert [h.column.key for h in arranged([table()], request)[0].headings()] == ["name", "n2"]
    request = RequestFactory().get("/x/", headers={"HX-Trigger": "t-columns-all"})
    request.COOKIES["columns--t"] = kept.value
    assert len(arranged([table()], request)[0].headings()) == len(COLUMNS)
    assert answer("", **{"HX-Trigger": "t-columns-all"}).cookies["columns--t"]["max-age"] == 0


def test_a_page_filters_and_its_file_has_what_is_shown(admin: Client) -> None:
    address = f"/capacity/teams/vision/?tab=workloads&{HOURLY}&per_page=1"
    file = f"{address}&format=csv&table=workloads"
    names_of_all = [row["workload"] for row in records_of(admin, file)]
    wanted = names_of_all[0]
    text = text_of(admin, f"{address}&workloads.q={wanted}")
    assert wanted in tables_of(text)["workloads"].rows[1][2].text
    assert 'id="workloads-filter"' in text
    found = [row["workload"] for row in records_of(admin, f"{file}&workloads.q={wanted}")]
    assert found == [name for name in names_of_all if wanted in name]
