"""A row in every table, with a value in every column: what a move must carry over."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.core.management import call_command
from django.db import IntegrityError, models, transaction
from django.test import Client

from apps.accounts.models import Team, User
from apps.alerts.gateways import seal
from apps.alerts.models import Channel
from apps.clusters.domain.window import Window
from apps.operations.management.database_move import Table, tables
from tests.alerts import board
from tests.factories import make_portal

WINDOW = Window(datetime(2026, 10, 29, 23, tzinfo=UTC), datetime(2026, 10, 30, 23, tzinfo=UTC))
ASKED = {"start": "2026-10-30T00:00:00+01:00", "end": "2026-10-31T00:00:00+01:00"}

AT = datetime(2026, 11, 16, 12, 30, 1, 234567, tzinfo=UTC)
# What two databases may keep in different forms: order, precision, other alphabets.
JSON = {"z": [1e16, -0.5, None, True, "ä\u2028"], "a": {"b": 1.0, "": 2**53}}
TEXT = "ä\t\\N\n'\u2028🙂"
# What a check constraint asks for.
GIVEN: dict[str, dict[str, Any]] = {
    "accounts.ApiToken": {"scopes": "read"},
    "accounts.Membership": {"source": "portal"},
    "alerts.Channel": {"team": None, "weekday": 3},
    "alerts.Delivery": {"sent_at": None},
    "costs.Bill": {"replaced_by": None},
    "costs.EnergyFactor": {"pue": Decimal("1.25")},
    "operations.CatalogProposal": {"state": "submitted", "decided_at": None},
    "quota_requests.ChangeRequest": {"before": "6"},
    "quota_requests.Execution": {"end": "", "ended_at": None},
    "quotas.Budget": {"money": None},
}


def fill() -> None:
    """Make a portal with a day of facts, an audit, a sealed address, and a row in all else."""
    made = make_portal()
    made.collect(WINDOW)
    board.channel(made.cleo)
    call_command("person", made.cleo.username, "--role", "admin", "--email", "cleo@example.org")
    _fill_empty_tables()


def shown() -> dict[str, Any]:
    """Return what the portal shows of its rows: a page, an answer of the API, an address."""
    cleo = User.objects.get(username="cleo")
    visitor = Client(headers={"host": "localhost"})
    visitor.force_login(cleo)
    page = visitor.get("/capacity/teams/?first=2026-10-30&last=2026-10-30")
    answer = visitor.get("/api/v1/usage", {**ASKED, "group_by": "team,tier,cluster"})
    address = seal().opened(Channel.objects.get(name="mail").sealed)
    # How old the data are goes on between two looks.
    ages = r"\b\d+[dh] \d+[hm] (?:ago|old)\b"
    tokens = r'(?:csrfmiddlewaretoken" value|nonce)="[^"]+"'
    return {
        "page": [page.status_code, re.sub(f"{tokens}|{ages}", "", page.content.decode())],
        "answer": [answer.status_code, answer.json()],
        "address": address,
        "empty tables": [m._meta.label for m in tables() if not m._base_manager.exists()],
    }


def next_team() -> int:
    """Return the number of a team that is made, and deleted again."""
    team = Team.objects.create(name="new")
    number: int = team.pk
    team.delete()
    return number


def _fill_empty_tables() -> None:
    """Put a row into each table that has none. Raises AssertionError naming one that refuses it."""
    for model in tables():
        if model._base_manager.exists():
            continue
        try:
            with transaction.atomic():
                model._base_manager.bulk_create([_row(model)])
        except IntegrityError as error:
            raise AssertionError(f"GIVEN needs {model._meta.label}: {error}") from error


def _row(model: Table) -> models.Model:
    fields = [f for f in model._meta.local_concrete_fields if not isinstance(f, models.AutoField)]
    values = {f.name: _value(f, number) for number, f in enumerate(fields)}
    return model(**{**values, **GIVEN.get(model._meta.label, {})})


def _value(field: "models.Field[Any, Any]", number: int) -> Any:
    if isinstance(field, models.ForeignKey):
        return None if field.related_model is field.model else _first(field)
    if field.choices:
        return field.flatchoices[0][0]
    at = AT + timedelta(seconds=number)
    known: dict[type, Any] = {
        models.BooleanField: True,
        models.BinaryField: bytes(range(256)),
        models.CharField: TEXT[: field.max_length],
        models.TextField: TEXT,
        models.DateTimeField: at,
        models.DateField: at.date() + timedelta(days=number),
        models.DecimalField: Decimal("0.12345678"),
        models.FloatField: 0.1 + number,
        models.GenericIPAddressField: "2001:db8::1",
        models.IntegerField: number,
        models.JSONField: JSON,
        models.TimeField: at.time(),
    }
    kinds = [kind for kind in type(field).__mro__ if kind in known]
    return known[kinds[0]]


def _first(field: "models.ForeignKey[Any, Any]") -> Any:
    related: Any = field.related_model
    return related._base_manager.order_by("pk").first()
