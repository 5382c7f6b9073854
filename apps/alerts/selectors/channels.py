"""Channels, their silences, and the log of what went there."""

from datetime import datetime

from django.db.models import OuterRef, Q, Subquery

from apps.accounts.models import Team, User
from apps.accounts.permissions import can_administer, teams_led_by
from apps.alerts.models import Channel, Delivery, Mute
from apps.alerts.permissions import seen_channels
from apps.alerts.selectors.rows import ChannelRow, DeliveryRow, MuteRow


def channel_rows(user: User, *, only: int | None = None) -> list[ChannelRow]:
    """Return the channels that a person may change, by name, or one. Two queries at most."""
    of = Delivery.objects.filter(channel=OuterRef("pk"))
    sent = of.filter(state=Delivery.State.SENT).order_by("-sent_at")
    failed = of.exclude(error="").exclude(state=Delivery.State.MUTED).order_by("-pk")
    rows = (
        Channel.objects.filter(seen_channels(user), Q() if only is None else Q(pk=only))
        .select_related("team", "owner")
        .annotate(
            last_sent=Subquery(sent.values("sent_at")[:1]),
            last_error=Subquery(failed.values("error")[:1]),
            failed_due=Subquery(failed.values("due_at")[:1]),
        )
    )
    return [
        ChannelRow(
            id=row.pk,
            name=row.name,
            kind=row.kind,
            address=row.shown,
            team=row.team.name if row.team else None,
            owner=row.owner.username if row.owner else None,
            kinds=tuple(row.kinds),
            cadence=row.cadence,
            at=row.at,
            weekday=row.weekday,
            quiet_from=row.quiet_from,
            quiet_to=row.quiet_to,
            active=row.active,
            last_sent_at=row.last_sent,
            last_error=_error(row.last_error, row.failed_due, row.last_sent),
        )
        for row in rows.order_by("name", "pk")
    ]


def _error(error: str | None, due_at: datetime | None, sent_at: datetime | None) -> str:
    """Return why something did not arrive, unless something arrived after it was last due."""
    over = due_at is not None and sent_at is not None and due_at <= sent_at
    return "" if over else error or ""


def teams_for_channels(user: User) -> dict[int, str]:
    """Return id → name of the teams that a person may make channels of. Two queries at most."""
    teams = Team.objects.filter(active=True).order_by("name")
    if not can_administer(user):
        teams = teams.filter(pk__in=teams_led_by(user))
    return dict(teams.values_list("pk", "name"))


def channel_of(user: User, pk: int) -> Channel | None:
    """Return a channel that a person may change. Two queries at most."""
    rows = Channel.objects.filter(seen_channels(user), pk=pk)
    return rows.select_related("team", "owner").first()


def delivery_page(
    user: User, *, channel: int | None = None, before: int | None = None, page_size: int = 50
) -> tuple[list[DeliveryRow], int | None]:
    """Return what became of alerts on the channels that a person may change, the latest first.

    With the id to go on `before` (None: no more). Two queries at most.
    """
    seen = Channel.objects.filter(seen_channels(user))
    rows = Delivery.objects.filter(channel__in=seen).select_related("alert", "channel")
    if channel is not None:
        rows = rows.filter(channel=channel)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: page_size + 1])
    more = found[page_size - 1].pk if len(found) > page_size else None
    return [_row(row) for row in found[:page_size]], more


def _row(row: Delivery) -> DeliveryRow:
    return DeliveryRow(
        id=row.pk,
        title=row.alert.title,
        kind=row.alert.kind,
        subject=row.alert.subject,
        channel=row.channel.name,
        channel_id=row.channel_id,
        state=row.state,
        due_at=row.due_at,
        sent_at=row.sent_at,
        failures=row.failures,
        error=row.error,
    )


def mute_of(user: User, pk: int) -> Mute | None:
    """Return a silence of a channel that a person may change. Two queries at most."""
    seen = Channel.objects.filter(seen_channels(user))
    return Mute.objects.filter(pk=pk, channel__in=seen).select_related("channel").first()


def mute_rows(user: User, at: datetime) -> list[MuteRow]:
    """Return the silences that last at `at`, of channels a person may change. Two queries."""
    seen = Channel.objects.filter(seen_channels(user))
    rows = Mute.objects.filter(channel__in=seen, end__gt=at).select_related("channel")
    return [
        MuteRow(
            id=row.pk,
            channel=row.channel.name,
            channel_id=row.channel_id,
            kind=row.kind,
            subject=row.subject,
            start=row.start,
            end=row.end,
            why=row.why,
            by=row.by,
        )
        for row in rows.order_by("end", "pk")
    ]
