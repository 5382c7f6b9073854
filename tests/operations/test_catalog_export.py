"""`manage.py export_catalog`: the file says what is loaded, and loading it changes nothing."""

import io
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from django.core.management import CommandError, call_command

from apps.accounts.models import Team
from apps.costs.models import Price
from apps.operations.services import export_catalog
from apps.quotas.models import Entitlement
from tests.operations.catalogs import DESIGN, EVERY_KEY, MONDAY, TUESDAY, all_rows, load, small

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("text", [DESIGN, EVERY_KEY], ids=["design", "every key"])
def test_what_is_exported_says_the_same(text: str) -> None:
    load(text)
    rows = all_rows()
    exported = export_catalog(now=TUESDAY)
    assert load(exported, TUESDAY).is_empty
    assert all_rows() == rows
    assert export_catalog(now=TUESDAY) == exported


def test_the_first_day_of_a_zone_east_of_greenwich_is_read_back() -> None:
    prices = [small()["prices"][0] | {"valid_from": "2000-01-01"}]
    load(small(prices=prices, report={"time_zone": "Europe/Berlin", "currency": "USD"}))
    assert load(export_catalog(now=TUESDAY), TUESDAY).is_empty


def test_an_exported_catalog_makes_a_new_portal_like_this_one() -> None:
    load(EVERY_KEY)
    exported = export_catalog(now=TUESDAY)
    for model in (Price, Entitlement):
        model.objects.all().delete()
    load(exported, TUESDAY)
    assert export_catalog(now=TUESDAY) == exported


def test_plans_of_teams_tiers_and_prices_are_kept_with_their_day() -> None:
    load(small())
    planned = small()
    planned["teams"][1] |= {"entitlements": {"any": 6}, "valid_from": "2026-12-01"}
    planned["tiers"][0] |= {"sharing": "time-sliced", "valid_from": "2026-12-02"}
    planned["prices"][0] |= {"valid_from": "2026-01-01"}
    planned["prices"].append(
        planned["prices"][0] | {"per_gpu_hour": "1.75", "valid_from": "2026-12-03"}
    )
    load(planned, TUESDAY)
    rows = all_rows()
    exported = export_catalog(now=TUESDAY)
    assert load(exported, TUESDAY + timedelta(hours=1)).is_empty
    assert all_rows() == rows
    assert "2026-12-01T00:00:00Z" in exported


def test_what_is_no_more_is_not_exported() -> None:
    load(small())
    fewer = small()
    del fewer["teams"][0], fewer["tiers"][0]
    fewer["prices"] = []
    load(fewer, TUESDAY)
    exported = export_catalog(now=TUESDAY + timedelta(hours=1))
    assert load(exported, TUESDAY + timedelta(hours=2)).is_empty
    assert not Team.objects.get(name="vision").active
    assert "vision" not in exported
    assert "prices" not in exported


@pytest.mark.parametrize("name", ["no", "1e3", "0x10", "null", "2024", "a b.c", "Yes", "1_000"])
def test_names_that_look_like_something_else_stay_texts(name: str) -> None:
    odd = small()
    odd["teams"][0] |= {"name": name, "cost_center": f'{name}: # ü \\ "', "leads": [name[:1]]}
    load(yaml.safe_dump(odd).replace(f"name: {name}\n", f'name: "{name}"\n'))
    assert load(export_catalog(now=TUESDAY), TUESDAY).is_empty


def test_the_command_writes_a_file_whole_or_not_at_all(tmp_path: Path) -> None:
    load(small(), MONDAY)
    output = io.StringIO()
    call_command("export_catalog", stdout=output)
    target = tmp_path / "catalog.yaml"
    call_command("export_catalog", str(target), stdout=io.StringIO())
    body = target.read_text(encoding="utf-8").splitlines()[2:]
    assert body == output.getvalue().splitlines()[2:]
    assert body[0] == "clusters:"
    with pytest.raises(CommandError, match="cannot be written: No such file or directory"):
        call_command("export_catalog", str(tmp_path / "none" / "c.yaml"))
