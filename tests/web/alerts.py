"""Alerts, channels and deliveries of the small portal, for tests of their pages."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from apps.accounts.models import Team
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert, Channel, Delivery, Mute
from apps.alerts.services import ChannelInput, MuteInput, NewAlert, add_channel, mute, notify
from tests.factories import Portal

SECRET = "T0/B0/verysecret"
SLACK = f"https://hooks.slack.com/services/{SECRET}"
FORM = {
    "of": "me",
    "name": "my mail",
    "kind": "email",
    "address": "me@example.org",
    "kinds": ["idle", "budget"],
    "cadence": "daily",
    "at": "09:15",
    "weekday": "0",
}


def moment() -> datetime:
    """Return now: pages read the clock, and ask what lasts at that moment."""
    return datetime.now(UTC).replace(microsecond=0)


def said(
    team: Team | None,
    subject: str,
    *,
    kind: AlertKind = AlertKind.IDLE,
    text: str = "",
    path: str = "",
) -> NewAlert:
    return NewAlert(
        kind=kind,
        subject=subject,
        team_id=team.pk if team else None,
        title=f"Alert of {subject}",
        text=text or f"This is about {subject}.\nLook there.",
        path=path or "/costs/budgets/?team=vision",
        urgent=kind is AlertKind.DATA_GAP,
        occasion=("once",),
    )


def wanted(
    name: str,
    address: str = "gpu@example.org",
    *,
    kind: ChannelKind = ChannelKind.EMAIL,
    kinds: Sequence[AlertKind] = tuple(AlertKind),
) -> ChannelInput:
    return ChannelInput(name, kind, address, kinds)


class Board(Struct, frozen=True):
    """The channels that there are, the alerts by subject, and one silence of the team's."""

    team: Channel
    bens: Channel
    platform: Channel
    silence: Mute
    alerts: dict[str, Alert]

    def delivery(self, channel: Channel, subject: str) -> Delivery:
        return Delivery.objects.get(channel=channel, alert=self.alerts[subject])


def make_board(portal: Portal) -> Board:
    """Say four things; vision's channel is Slack's and mutes budgets, Ben and the platform mail."""
    now = moment()
    chat = wanted("vision's chat", SLACK, kind=ChannelKind.SLACK)
    team = add_channel(portal.ada, chat, now=now, team_id=portal.vision.pk)
    bens = add_channel(portal.ben, wanted("ben's mail", "ben@example.org"), now=now, own=True)
    platform = add_channel(portal.cleo, wanted("on call", "ops@example.org"), now=now)
    until = now + timedelta(days=2)
    silence = mute(
        portal.ada, team, MuteInput(until=until, why="known", kind=AlertKind.BUDGET), now=now
    )
    things = [
        said(portal.vision, "workload:west/vision/Job/train"),
        said(portal.vision, "budget:vision/gpu_hours", kind=AlertKind.BUDGET),
        said(portal.speech, "workload:west/speech/StatefulSet/notes"),
        said(None, "cluster:west/watched", kind=AlertKind.DATA_GAP),
    ]
    notify(things, now=now, zone=portal.zone)
    return Board(team, bens, platform, silence, {row.subject: row for row in Alert.objects.all()})


def say_many(portal: Portal, count: int) -> None:
    """Say things of vision one after the other, idle and not."""
    kinds = (AlertKind.IDLE, AlertKind.QUOTA)
    many = [said(portal.vision, f"thing-{n}", kind=kinds[n % 2]) for n in range(count)]
    notify(many, now=moment(), zone=portal.zone)
