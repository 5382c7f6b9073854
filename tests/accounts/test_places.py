"""Places on teams by the catalog and by groups, side by side."""

import pytest

from apps.accounts.models import Membership
from apps.accounts.permissions import visibility_of
from apps.accounts.selectors import leads_by_team
from apps.accounts.services import LeadRecord, loaded_leads
from tests.factories import make_team, make_user

pytestmark = pytest.mark.django_db


def test_a_catalog_neither_sees_nor_changes_what_groups_gave() -> None:
    vision, speech = make_team("vision"), make_team("speech")
    ada = make_user("ada", leads=[vision])
    for team in (vision, speech):
        Membership.objects.create(team=team, username="ada", lead=True, source="groups")
    (row,) = loaded_leads()
    assert (row.team, row.username, row.lead) == ("vision", "ada", True)
    assert isinstance(row, LeadRecord)
    assert visibility_of(ada).team_ids == {vision.pk, speech.pk}


def test_a_lead_by_both_is_named_once() -> None:
    vision = make_team("vision")
    make_user("ada", leads=[vision])
    Membership.objects.create(team=vision, username="ada", lead=True, source="groups")
    assert leads_by_team() == {vision.pk: ("ada",)}
