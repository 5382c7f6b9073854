"""Making, changing and muting channels, and answers to idle alerts."""

from collections.abc import Collection
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from msgspec import Struct

from apps.accounts.models import Team, User
from apps.accounts.services import ActingParty, note
from apps.alerts.domain.alerts import (
    AlertKind,
    IdleDecision,
    keep_idle,
    release_idle,
    silence_idle,
)
from apps.alerts.domain.channels import (
    AddressRefused,
    ChannelKind,
    check_domain,
    checked,
    host_of,
    shown,
)
from apps.alerts.domain.digests import Cadence
from apps.alerts.gateways import seal
from apps.alerts.models import Alert, Channel, IdleAnswer, Mute
from apps.alerts.permissions import Answerer, check_answer, check_channel, check_kind

LONGEST_MUTE = timedelta(days=90)
MOST_CHANNELS = 20


class ChannelRefused(ValueError):
    """A channel, a mute or an answer cannot be taken; the message says what to change."""


class ChannelInput(Struct, frozen=True):
    """What a person wrote of a channel; `address` is empty where the known one is kept."""

    name: str
    kind: ChannelKind
    address: str
    kinds: Collection[AlertKind]
    cadence: Cadence = Cadence.AT_ONCE
    at: time = time(8)
    weekday: int = 0
    quiet_from: time | None = None
    quiet_to: time | None = None
    active: bool = True


class MuteInput(Struct, frozen=True):
    """What a channel is not to send until a time: one kind, one subject, or all where both miss."""

    until: datetime
    why: str
    kind: AlertKind | None = None
    subject: str = ""


@transaction.atomic
def add_channel(
    user: User,
    wanted: ChannelInput,
    *,
    now: datetime,
    team_id: int | None = None,
    own: bool = False,
    origin: str = "",
) -> Channel:
    """Make a channel of a team, of the person (`own`) or of the platform; the audit notes it.

    `origin` is where the person acts from. Raises NotAllowed, ChannelRefused.
    """
    owner_id = user.pk if own else None
    check_channel(user, team_id=team_id, owner_id=owner_id)
    if own and team_id is not None:
        raise ChannelRefused("A channel is of one person or of one team.")
    if not wanted.address:
        raise ChannelRefused("Write where the alerts go.")
    _check_room(team_id, owner_id)
    channel = Channel(owner_id=owner_id, team_id=team_id, created_by=user.username, created_at=now)
    _saved(user, channel, wanted)
    by = ActingParty(user.username, origin)
    note(by, "make_channel", _audited(channel), at=now, after=_audit_values(channel))
    return channel


def _check_room(team_id: int | None, owner_id: int | None) -> None:
    """Refuse one more than MOST_CHANNELS: each alert is held against all channels."""
    if team_id is not None:
        # Locked, so that two who add one at once do not both count one too few.
        if (
            Team.objects.select_for_update(no_key=True).filter(pk=team_id, active=True).first()
            is None
        ):
            raise ChannelRefused("There is no such team any more.")
    elif owner_id is not None:
        User.objects.select_for_update(no_key=True).get(pk=owner_id)
    if Channel.objects.filter(team=team_id, owner=owner_id).count() >= MOST_CHANNELS:
        raise ChannelRefused(f"There are {MOST_CHANNELS} channels already: remove one first.")


@transaction.atomic
def change_channel(
    user: User, channel: Channel, wanted: ChannelInput, *, now: datetime, origin: str = ""
) -> Channel:
    """Change a channel; an empty address keeps the one it has, of the same kind.

    The audit says that there is another address, not which. Raises NotAllowed, ChannelRefused.
    """
    check_channel(user, team_id=channel.team_id, owner_id=channel.owner_id)
    if not wanted.address and wanted.kind.value != channel.kind:
        raise ChannelRefused("Another kind of channel needs another address: write it.")
    before = _audit_values(channel)
    after = _audit_values(_saved(user, channel, wanted))
    if wanted.address:
        before, after = {**before, "address": "the old one"}, {**after, "address": "written anew"}
    by = ActingParty(user.username, origin)
    note(by, "change_channel", _audited(channel), at=now, before=before, after=after)
    return channel


@transaction.atomic
def switch_channel(
    user: User, channel: Channel, *, on: bool, now: datetime, origin: str = ""
) -> None:
    """Switch a channel off or on; what comes due while it is off is not sent. Raises NotAllowed."""
    check_channel(user, team_id=channel.team_id, owner_id=channel.owner_id)
    before = _audit_values(channel)
    channel.active = on
    channel.save(update_fields=["active"])
    by, after = ActingParty(user.username, origin), _audit_values(channel)
    note(by, "change_channel", _audited(channel), at=now, before=before, after=after)


@transaction.atomic
def remove_channel(user: User, channel: Channel, *, now: datetime, origin: str = "") -> None:
    """Delete a channel with the log of what went there. Raises NotAllowed."""
    check_channel(user, team_id=channel.team_id, owner_id=channel.owner_id)
    by = ActingParty(user.username, origin)
    note(by, "remove_channel", _audited(channel), at=now, before=_audit_values(channel))
    channel.delete()


def _audited(channel: Channel) -> str:
    return f"channel/{channel.pk}"


def _audit_values(channel: Channel) -> dict[str, Any]:
    """Return what the audit tells of a channel: nothing of the address, whatever its kind."""
    of = "the platform"
    if channel.owner is not None:
        of = channel.owner.username
    elif channel.team is not None:
        of = f"team {channel.team.name}"
    quiet = None
    if channel.quiet_from is not None and channel.quiet_to is not None:
        quiet = f"{channel.quiet_from:%H:%M} to {channel.quiet_to:%H:%M}"
    return {
        "name": channel.name,
        "of": of,
        "kind": channel.kind,
        # An earlier word: lines of the audit are compared, so it stays.
        "notices": list(channel.kinds),
        "cadence": channel.cadence,
        "at": f"{channel.at:%H:%M}",
        "weekday": channel.weekday,
        "quiet": quiet,
        "active": channel.active,
    }


def _saved(user: User, channel: Channel, wanted: ChannelInput) -> Channel:
    if not wanted.name.strip():
        raise ChannelRefused("Give the channel a name.")
    if not wanted.kinds:
        raise ChannelRefused("Choose at least one kind of alert.")
    if (wanted.quiet_from is None) != (wanted.quiet_to is None):
        raise ChannelRefused("Quiet hours need a beginning and an end.")
    if wanted.quiet_from is not None and wanted.quiet_from == wanted.quiet_to:
        raise ChannelRefused("Quiet hours end at another time than they begin.")
    if not 0 <= wanted.weekday <= 6:
        raise ChannelRefused("Choose a day of the week.")
    if wanted.address:
        channel.sealed, channel.shown = _sealed(user, wanted)
    channel.name, channel.kind = wanted.name.strip()[:80], wanted.kind.value
    # In one order: else the audit would tell of a change that is none.
    channel.kinds = sorted(kind.value for kind in set(wanted.kinds))
    channel.cadence, channel.at, channel.weekday = wanted.cadence.value, wanted.at, wanted.weekday
    channel.quiet_from, channel.quiet_to = wanted.quiet_from, wanted.quiet_to
    channel.active = wanted.active
    channel.save()
    return channel


def _sealed(user: User, wanted: ChannelInput) -> tuple[str, str]:
    hosts = settings.ALERTS_HOSTS
    try:
        address = checked(wanted.kind, wanted.address, plain=hosts)
        if wanted.kind is ChannelKind.EMAIL:
            check_domain(address, settings.ALERTS_EMAIL_DOMAINS)
    except AddressRefused as refused:
        raise ChannelRefused(str(refused)) from refused
    if wanted.kind is not ChannelKind.EMAIL:
        check_kind(user, wanted.kind, host_allowed=host_of(address)[0] in hosts)
    return seal().sealed(address), shown(wanted.kind, address)[:254]


@transaction.atomic
def mute(
    user: User,
    channel: Channel,
    silence: MuteInput,
    *,
    now: datetime,
    origin: str = "",
) -> Mute:
    """Send nothing of what `silence` names until its end. Raises NotAllowed, ChannelRefused."""
    check_channel(user, team_id=channel.team_id, owner_id=channel.owner_id)
    if silence.until <= now:
        raise ChannelRefused("The end of the silence is past: choose a later one.")
    if silence.until > now + LONGEST_MUTE:
        raise ChannelRefused(f"Mute for {LONGEST_MUTE.days} days at most, or switch it off.")
    muted = Mute.objects.create(
        channel=channel,
        kind=silence.kind.value if silence.kind else "",
        subject=silence.subject.strip()[:600],
        start=now,
        end=silence.until,
        why=" ".join(silence.why.split())[:500],
        by=user.username,
    )
    about = {"kind": muted.kind or None, "subject": muted.subject or None}
    after = {**about, "until": muted.end.isoformat(), "why": muted.why or None}
    by = ActingParty(user.username, origin)
    note(by, "mute_channel", _audited(channel), at=now, after=after)
    return muted


@transaction.atomic
def unmute(user: User, muted: Mute, *, now: datetime, origin: str = "") -> None:
    """End a silence now; the audit notes it. Raises NotAllowed."""
    channel = muted.channel
    check_channel(user, team_id=channel.team_id, owner_id=channel.owner_id)
    if muted.end <= now:
        return
    about = {"kind": muted.kind or None, "subject": muted.subject or None}
    before = {**about, "until": muted.end.isoformat(), "by": muted.by}
    note(
        ActingParty(user.username, origin),
        "unmute_channel",
        _audited(channel),
        at=now,
        before=before,
    )
    # One that ends when it begins silences nothing, and the table refuses it.
    if muted.start < now:
        muted.end = now
        muted.save(update_fields=["end"])
    else:
        muted.delete()


def answer_idle(
    who: Answerer, alert: Alert, *, until: str, reason: str, now: datetime, zone: ZoneInfo
) -> IdleDecision:
    """Answer an idle alert: keep it until a day, or (`until` empty) say that it can go.

    Raises NotAllowed, ChannelRefused, AnswerRefused.
    """
    team_id, name = _team_of(who, alert), who.user.username
    if until.strip():
        most = settings.ALERTS_KEEP_DAYS
        found = keep_idle(until, reason, person=name, now=now, zone=zone, most_days=most)
    else:
        found = release_idle(reason, person=name, now=now)
    _keep_answer(who, alert, team_id, found)
    return found


def silence_alert(who: Answerer, alert: Alert, *, now: datetime) -> IdleDecision:
    """Answer an idle alert: do not ask again about this idle time.

    Raises NotAllowed, ChannelRefused.
    """
    team_id = _team_of(who, alert)
    found = silence_idle(person=who.user.username, now=now)
    _keep_answer(who, alert, team_id, found)
    return found


def _team_of(who: Answerer, alert: Alert) -> int:
    """Return the team of an idle alert, where this person may answer for it."""
    if alert.kind != AlertKind.IDLE.value or alert.team_id is None:
        raise ChannelRefused("Only alerts of idle GPUs are answered.")
    check_answer(who, alert.team_id)
    return alert.team_id


def _keep_answer(who: Answerer, alert: Alert, team_id: int, found: IdleDecision) -> None:
    IdleAnswer.objects.create(
        subject=alert.subject,
        team_id=team_id,
        choice=found.choice.value,
        person=found.person,
        at=found.at,
        reason=found.reason,
        until=found.until,
        of_person=who.answers_for_self,
    )
