"""Where the demo keeps its data."""

from pathlib import Path

import pytest

from apps.operations.management.demo_directory import DemoDirectory, PlaceTaken

ORIGIN = "2026-10-28T00:00:00+00:00"


@pytest.fixture
def place(tmp_path: Path) -> DemoDirectory:
    (tmp_path / "demo").mkdir()
    return DemoDirectory(tmp_path, "reference")


def fill(place: DemoDirectory) -> None:
    """Do what a run of the demo does: write the database, and note where the trace lies."""
    place.database.write_text(place.scenario, encoding="utf-8")
    place.note(ORIGIN)


def test_nothing_is_known_before_the_first_run(place: DemoDirectory) -> None:
    assert place.origin() is None


def test_a_second_start_lays_the_trace_where_the_first_did(place: DemoDirectory) -> None:
    fill(place)
    assert DemoDirectory(place.var, "reference").origin() == ORIGIN


def test_each_scenario_has_a_database_apart_from_the_portals(place: DemoDirectory) -> None:
    fill(place)
    other = DemoDirectory(place.var, "helios")
    assert other.origin() is None
    names = {place.database.name, other.database.name, "portal.db"}
    assert len(names) == 3
    assert {place.database.parent, other.database.parent} == {place.var / "demo"}
    assert place.work != other.work


def test_a_database_that_was_deleted_is_begun_anew(place: DemoDirectory) -> None:
    fill(place)
    place.database.unlink()
    assert place.origin() is None


def test_a_database_of_ones_own_holds_one_scenario(place: DemoDirectory) -> None:
    DemoDirectory(place.var, "reference", own_url="postgresql db portal").note(ORIGIN)
    again = DemoDirectory(place.var, "reference", own_url="postgresql db portal")
    assert again.origin() == ORIGIN
    with pytest.raises(PlaceTaken, match="SCENARIO=reference"):
        DemoDirectory(place.var, "helios", own_url="postgresql db portal").origin()


def test_the_note_on_one_database_says_nothing_of_another(place: DemoDirectory) -> None:
    DemoDirectory(place.var, "reference", own_url="postgresql db portal").note(ORIGIN)
    assert DemoDirectory(place.var, "reference", own_url="postgresql db other").origin() is None
    assert place.origin() is None


def test_two_demos_do_not_share_a_place(place: DemoDirectory) -> None:
    with (
        place.locked(),
        pytest.raises(PlaceTaken, match="a demo is running from"),
        DemoDirectory(place.var, "helios").locked(),
    ):
        pass
    with place.locked():
        pass
