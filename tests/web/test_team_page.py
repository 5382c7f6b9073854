"""The page of a team: its namespaces and its workloads."""

from django.test import Client

from tests.web.conftest import HOURLY
from tests.web.pages import text_of
from tests.web.shown import tables_of


def test_namespaces_narrow_the_workloads(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/capacity/teams/vision/?{HOURLY}&namespace=vision-prod"))
    assert [row[2].text for row in rows["workloads"].rows[1:]] == ["Deployment/serve"]
    every = tables_of(text_of(admin, f"/capacity/teams/vision/?{HOURLY}"))["workloads"].rows
    assert every[-1][0].text == "Total"


def test_workloads_come_in_pages_and_the_total_is_over_all(admin: Client) -> None:
    whole = tables_of(text_of(admin, f"/capacity/teams/vision/?{HOURLY}"))["workloads"].rows
    seen = []
    for number in range(1, len(whole) - 1):
        address = f"/capacity/teams/vision/?{HOURLY}&per_page=1&page={number}"
        page = tables_of(text_of(admin, address))["workloads"].rows
        assert [c.text for c in page[-1]] == [c.text for c in whole[-1]]
        seen += page[1:-1]
    assert [[c.text for c in row] for row in seen] == [[c.text for c in row] for row in whole[1:-1]]


def test_no_line_blends_the_utilization_of_several_tiers(admin: Client) -> None:
    shown = tables_of(text_of(admin, f"/capacity/teams/vision/?{HOURLY}"))
    head = [cell.text.split()[0] for cell in shown["workloads"].rows[0]]
    *lines, total = shown["workloads"].rows[1:]
    place = head.index("Utilization")
    assert len({line[head.index("Tier")].text for line in lines}) == 2
    assert total[place].text == "–"
    assert "–" not in {line[place].text for line in lines}
    assert [cell.text.split()[0] for cell in shown["namespaces"].rows[0]][:3] == [
        "Cluster",
        "Namespace",
        "Tier",
    ]
