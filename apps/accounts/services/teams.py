"""Writes of teams and their people, as the catalog names them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from django.db import transaction
from django.utils import timezone

from apps.accounts.domain.rows import CatalogRecord, row_from
from apps.accounts.models import Membership, Team
from apps.accounts.services.audit import note, the_portal

UNASSIGNED = "unassigned"
_CATALOG = the_portal("load_catalog")


class TeamRecord(CatalogRecord, frozen=True):
    """A team of the catalog."""

    name: str
    cost_center: str = ""
    active: bool = True


class LeadRecord(CatalogRecord, frozen=True):
    """A person on a team, as a lead or not."""

    team: str
    username: str
    lead: bool = True


def ensure_builtin() -> None:
    """Create the team `unassigned` if it is missing. One query when it is there."""
    if not Team.objects.filter(name=UNASSIGNED).exists():
        Team.objects.bulk_create([Team(name=UNASSIGNED, builtin=True)], ignore_conflicts=True)


def lock_catalog() -> None:
    """Let one catalog be loaded at a time: wait here until this transaction may go on.

    The row of `unassigned` stands for the catalog. On SQLite the transaction holds the database's
    write lock from its beginning.
    """
    Team.objects.select_for_update(no_key=True).get(name=UNASSIGNED)


def team_ids() -> dict[str, int]:
    """Return every team's id by name. One query."""
    return dict(Team.objects.order_by("name").values_list("name", "pk"))


def loaded_teams() -> list[TeamRecord]:
    """Return the teams that catalogs have named, by name. One query."""
    rows = Team.objects.filter(builtin=False).order_by("name")
    return [row_from(TeamRecord, row) for row in rows]


@transaction.atomic(savepoint=False)
def write_teams(records: Sequence[TeamRecord]) -> None:
    """Insert the records without pk and update the others; all are told in one line."""
    if not records:
        return
    # A first catalog changes nothing that is there, and needs no query for it.
    known = {record.pk for record in records if record.pk}
    kept = (
        {team.name: _audited(team) for team in loaded_teams() if team.pk in known} if known else {}
    )
    rows = [Team(pk=r.pk, name=r.name, cost_center=r.cost_center, active=r.active) for r in records]
    Team.objects.bulk_update([row for row in rows if row.pk], ["cost_center", "active"])
    Team.objects.bulk_create([row for row in rows if not row.pk])
    _tell("change_teams", kept, {record.name: _audited(record) for record in records})


def _audited(record: TeamRecord) -> dict[str, str | bool]:
    return {"cost_center": record.cost_center, "active": record.active}


def _tell(action: str, before: Mapping[str, object], after: Mapping[str, object]) -> None:
    """Tell of what a catalog changed: one line by team, as a first catalog may have hundreds.

    The time is when it is written; what a catalog says may hold from another.
    """
    note(_CATALOG, action, "catalog", at=timezone.now(), before=before, after=after)


def loaded_leads() -> list[LeadRecord]:
    """Return everybody on the catalog's teams, leads and members. One query."""
    rows = Membership.objects.filter(
        team__builtin=False, source=Membership.Source.CATALOG
    ).select_related("team")
    return [
        row_from(LeadRecord, row, team=row.team.name)
        for row in rows.order_by("team__name", "username")
    ]


@transaction.atomic(savepoint=False)
def write_leads(records: Sequence[LeadRecord]) -> None:
    """Insert the records without pk and update whether the others lead; told in one line."""
    if not records:
        return
    held = _places(loaded_leads(), of={record.team for record in records})
    teams = team_ids()
    rows = [
        Membership(pk=r.pk, team_id=teams[r.team], username=r.username, lead=r.lead)
        for r in records
    ]
    Membership.objects.bulk_update([row for row in rows if row.pk], ["lead"])
    Membership.objects.bulk_create([row for row in rows if not row.pk])
    given = _places(records, of=held.keys())
    # A catalog takes no place away: those that it does not name are held afterwards too.
    _tell("change_places", held, {team: {**held[team], **given[team]} for team in held})


def _places(records: Iterable[LeadRecord], *, of: Collection[str]) -> dict[str, dict[str, str]]:
    """Return team → user name → `lead` or `member`, of these teams."""
    places: dict[str, dict[str, str]] = {team: {} for team in of}
    for record in records:
        if record.team in places:
            places[record.team][record.username] = "lead" if record.lead else "member"
    return places
