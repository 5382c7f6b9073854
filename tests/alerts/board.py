"""People, teams and channels to say things to, and a messenger that keeps what it is given."""

from collections.abc import Collection
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.accounts.models import Membership, Team, User
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import Cadence, Message
from apps.alerts.models import Channel
from apps.alerts.ports import NotDelivered
from apps.alerts.services import ChannelInput, NewAlert, add_channel

NOW = datetime(2026, 10, 7, 9, 30, tzinfo=UTC)
ZONE = ZoneInfo("UTC")


def person(name: str, role: str = "viewer", *, leads: Collection[Team] = ()) -> User:
    user = User.objects.create(username=name, role=role)
    for team in leads:
        Membership.objects.create(team=team, username=name, lead=True)
    return user


def channel(
    user: User,
    team: Team | None = None,
    *,
    kinds: Collection[AlertKind] = tuple(AlertKind),
    own: bool = False,
    cadence: Cadence = Cadence.AT_ONCE,
    name: str = "mail",
) -> Channel:
    wanted = ChannelInput(name, ChannelKind.EMAIL, f"{name}@example.org", kinds, cadence)
    return add_channel(user, wanted, now=NOW, team_id=team.pk if team else None, own=own)


def said(
    team: Team | None,
    subject: str = "it",
    *,
    kind: AlertKind = AlertKind.BUDGET,
    occasion: str = "1",
) -> NewAlert:
    team_id = team.pk if team else None
    title, text = f"{subject} is full", f"{subject} used 100 %."
    return NewAlert(kind, subject, team_id, title, text, "/quotas/", occasion=(occasion,))


class Box(Struct):
    """Keeps what is sent; fails as often as it is told to."""

    sent: list[tuple[str, Message]] = field(default_factory=list)
    failures: int = 0

    def send(self, kind: ChannelKind, address: str, message: Message) -> None:
        assert kind in ChannelKind
        if self.failures:
            self.failures -= 1
            raise NotDelivered("mail.example.org: it was not taken.")
        self.sent.append((address, message))
