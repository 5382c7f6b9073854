"""Where the demo keeps its data."""

from pathlib import Path

import pytest

from apps.operations.management.demo_place import Place, PlaceTaken


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "demo").mkdir()
    return Place(tmp_path, tmp_path / "portal.db")


def fill(place: Place, scenario: str) -> None:
    """Do what a run of the demo does: make room, write the database, note what it holds."""
    place.make_room(scenario)
    assert place.database is not None
    if not place.database.exists():
        place.database.write_text(scenario, encoding="utf-8")
    place.note(scenario=scenario, origin=f"origin of {scenario}")


def test_nothing_is_known_before_the_first_run(place: Place) -> None:
    assert place.current() == {}


def test_a_second_start_finds_the_same_database(place: Place) -> None:
    fill(place, "reference")
    place.make_room("reference")
    assert place.database is not None
    assert place.database.read_text(encoding="utf-8") == "reference"
    assert place.current() == {"scenario": "reference", "origin": "origin of reference"}


def test_each_scenario_keeps_its_own_database(place: Place) -> None:
    assert place.database is not None
    for scenario in ("reference", "helios", "reference", "helios"):
        fill(place, scenario)
        assert place.database.read_text(encoding="utf-8") == scenario
        assert place.current() == {"scenario": scenario, "origin": f"origin of {scenario}"}


def test_what_was_not_yet_written_through_moves_along(place: Place) -> None:
    fill(place, "reference")
    journal = place.var / "portal.db-wal"
    journal.write_text("journal", encoding="utf-8")
    place.make_room("helios")
    assert not journal.exists()
    place.make_room("reference")
    assert journal.read_text(encoding="utf-8") == "journal"


def test_a_database_that_was_deleted_is_begun_anew(place: Place) -> None:
    fill(place, "reference")
    assert place.database is not None
    place.database.unlink()
    assert place.current() == {}
    place.make_room("helios")
    assert not place.database.exists()


def test_a_database_of_ones_own_is_never_moved(tmp_path: Path) -> None:
    place = Place(tmp_path, None)
    with place.locked():
        place.make_room("reference")
        place.note(scenario="reference", origin="")
        with pytest.raises(PlaceTaken, match="SCENARIO=reference"):
            place.make_room("helios")


def test_two_demos_do_not_share_a_place(place: Place) -> None:
    with (
        place.locked(),
        pytest.raises(PlaceTaken, match="a demo is running from"),
        Place(place.var, place.database).locked(),
    ):
        pass
    with place.locked():
        pass
