"""What exists: report, catalog, and whose a namespace was."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters import selectors
from apps.clusters.domain.window import Window
from apps.clusters.models import NamespaceTeam, TierRule
from tests.factories import (
    BEGINNING,
    ensure_builtin,
    make_cluster,
    make_report,
    make_team,
    make_tier,
)

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
WINDOW = Window(AT, AT + 4 * HOUR)


def test_before_a_catalog_was_loaded_the_report_is_in_utc_and_usd() -> None:
    report = selectors.report()
    assert (report.zone.key, report.currency) == ("UTC", "USD")


def test_the_report_is_as_loaded() -> None:
    make_report("Asia/Kolkata", "EUR")
    report = selectors.report()
    assert (report.zone.key, report.currency) == ("Asia/Kolkata", "EUR")


def test_a_tier_is_as_its_newest_rule_says() -> None:
    tier = make_tier("gold")
    TierRule.objects.create(
        tier=tier, position=0, sharing="mps", resources=["nvidia.com/gpu.shared"], valid_from=AT
    )
    (row,) = selectors.tier_rows(visibility=EVERYTHING)
    assert (row.sharing, row.resources) == ("mps", ("nvidia.com/gpu.shared",))


def test_what_left_the_catalog_is_not_listed() -> None:
    make_cluster("gone", active=False)
    make_tier("old", active=False)
    make_team("former", "former", active=False)
    assert selectors.cluster_rows(visibility=EVERYTHING) == []
    assert selectors.tier_rows(visibility=EVERYTHING) == []
    assert selectors.team_rows(visibility=EVERYTHING) == []


def spans(*namespaces: str) -> dict[str, list[tuple[str, float, float]]]:
    found = selectors.team_spans(WINDOW, namespaces)
    return {
        name: [(s.team, (s.start - AT) / HOUR, (s.end - AT) / HOUR) for s in of_name]
        for name, of_name in found.items()
    }


def test_a_name_goes_before_patterns_and_patterns_in_catalog_order() -> None:
    ensure_builtin()
    make_team("wide", "ml-*")
    make_team("exact", "ml-vision")
    make_team("late", "*-vision")
    assert spans("ml-vision", "ml-speech", "x-vision", "other") == {
        "ml-vision": [("exact", 0, 4)],
        "ml-speech": [("wide", 0, 4)],
        "x-vision": [("late", 0, 4)],
        "other": [("unassigned", 0, 4)],
    }


def test_claims_that_change_within_the_window_cut_it() -> None:
    ensure_builtin()
    old, new = make_team("old"), make_team("new")
    for team, start, end in (
        (old, BEGINNING, AT + HOUR),
        (new, AT + 2 * HOUR, None),
        # Neither touches the window.
        (new, BEGINNING, AT),
        (old, AT + 4 * HOUR, None),
    ):
        NamespaceTeam.objects.create(team=team, pattern="shared", valid_from=start, valid_to=end)
    assert spans("shared", "quiet") == {
        "shared": [("old", 0, 1), ("unassigned", 1, 2), ("new", 2, 4)],
        "quiet": [("unassigned", 0, 4)],
    }


def test_a_claim_renewed_for_the_same_team_does_not_cut() -> None:
    ensure_builtin()
    team = make_team("one")
    for start, end in ((BEGINNING, AT + HOUR), (AT + HOUR, None)):
        NamespaceTeam.objects.create(team=team, pattern="one", valid_from=start, valid_to=end)
    assert spans("one") == {"one": [("one", 0, 4)]}


def test_before_a_catalog_was_loaded_nobody_claims_anything() -> None:
    assert spans("any") == {"any": [("unassigned", 0, 4)]}
