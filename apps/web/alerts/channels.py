"""Channels: where alerts go, when, and what is muted."""

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from django import forms
from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import NotAllowed, can_administer
from apps.alerts import selectors
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import HEADINGS, Cadence
from apps.alerts.ports import NotDelivered
from apps.alerts.services import (
    LONGEST_MUTE,
    ChannelInput,
    ChannelRefused,
    MuteInput,
    TriedTooSoon,
    add_channel,
    change_channel,
    mute,
    pause_tries,
    remove_channel,
    switch_channel,
    try_channel,
    unmute,
)
from apps.web.alerts.alert_tables import (
    CADENCES,
    CHANNELS,
    DAYS,
    channel_line,
    channel_table,
    delivery_table,
    mute_table,
    of_one_channel,
    offered_kinds,
)
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

if TYPE_CHECKING:
    from apps.alerts.models import Channel


TELLS: Mapping[AlertKind, str] = {
    AlertKind.BUDGET: "a threshold is passed, or it is over pace",
    AlertKind.QUOTA: "full or nearly full",
    AlertKind.IDLE: "allocated GPUs without activity; can be answered",
    AlertKind.WAIT: "workloads pending for long",
    AlertKind.DATA_GAP: "a cluster without data; for administrators",
    AlertKind.DRIFT: "a quota differs from its approved value",
    AlertKind.REQUEST: "each step from submitted to applied",
    AlertKind.REVERT: "a temporary raise ends soon",
    AlertKind.QUEUE_TIME: "an objective of a tier is missed too often, or times rise",
    AlertKind.DIGEST: "your own workloads on Mondays, on your own channels only",
    AlertKind.CAP: "you hold more GPUs than one person may, on your own channels only",
}
MINE, PLATFORM = "me", "platform"
_AT = time(8)
_CONTROL = {"class": "form-control"}
_SELECT = {"class": "form-select"}
_CLOCK = {"class": "form-control", "type": "time"}


class AddressInput(forms.TextInput):
    """A field that repeats an e-mail address and nothing else: a webhook's address is a secret."""

    def format_value(self, value: Any) -> str | None:
        # Addresses of webhooks have slashes; those of mailboxes have none.
        return None if "/" in str(value or "") else super().format_value(value)


class ChannelForm(forms.Form):
    """What a person writes of a channel."""

    name = forms.CharField(
        label="Name", max_length=80, widget=forms.TextInput({**_CONTROL, "autocomplete": "off"})
    )
    kind = forms.ChoiceField(
        label="Destination",
        choices=[(kind.value, label) for kind, label in CHANNELS.items()],
        widget=forms.Select(_SELECT),
    )
    address = forms.CharField(
        label="Address",
        max_length=2000,
        required=False,
        widget=AddressInput({**_CONTROL, "autocomplete": "off", "spellcheck": "false"}),
    )
    kinds = forms.MultipleChoiceField(
        label="Alerts",
        # Read with each form: whether digests are offered is known once settings are.
        choices=lambda: [(k.value, f"{HEADINGS[k]}: {TELLS[k]}") for k in offered_kinds()],
        widget=forms.CheckboxSelectMultiple({"class": "form-check-input"}),
        required=False,
    )
    cadence = forms.ChoiceField(
        label="How often",
        choices=[(cadence.value, label) for cadence, label in CADENCES.items()],
        widget=forms.Select(_SELECT),
        help_text="Urgent alerts are sent immediately.",
    )
    at = forms.TimeField(
        label="Time of day",
        required=False,
        widget=forms.TimeInput(_CLOCK, format="%H:%M"),
        help_text="Of daily and weekly messages; default 08:00.",
    )
    weekday = forms.ChoiceField(
        label="Weekday",
        choices=list(enumerate(DAYS)),
        required=False,
        widget=forms.Select(_SELECT),
        help_text="Of weekly messages.",
    )
    quiet_from = forms.TimeField(
        label="Quiet from", required=False, widget=forms.TimeInput(_CLOCK, format="%H:%M")
    )
    quiet_to = forms.TimeField(
        label="Quiet until",
        required=False,
        widget=forms.TimeInput(_CLOCK, format="%H:%M"),
        help_text="Alerts between these times are sent at their end; urgent ones immediately.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "channel-%s", **kwargs})

    @property
    def took_back_address(self) -> bool:
        """Whether an address was written that the page does not repeat."""
        return self.is_bound and "/" in str(self["address"].value() or "")

    def wanted(self, *, active: bool = True) -> ChannelInput:
        """Return what is wanted, of a form that is valid."""
        given = self.cleaned_data
        return ChannelInput(
            name=given["name"],
            kind=ChannelKind(given["kind"]),
            address=given["address"],
            kinds=[AlertKind(name) for name in given["kinds"]],
            cadence=Cadence(given["cadence"]),
            at=given["at"] or _AT,
            weekday=int(given["weekday"] or 0),
            quiet_from=given["quiet_from"],
            quiet_to=given["quiet_to"],
            active=active,
        )


class NewChannelForm(ChannelForm):
    """A channel to be made, with whose it is to be: `teams` are those that the person leads."""

    of = forms.ChoiceField(label="For", widget=forms.Select(_SELECT))
    field_order = ("of",)

    def __init__(self, *args: Any, teams: Mapping[int, str], platform: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(MINE, "me")]
        choices += [(f"team-{pk}", f"team {name}") for pk, name in teams.items()]
        if platform:
            choices.append((PLATFORM, "platform: all alerts"))
        cast("forms.ChoiceField", self.fields["of"]).choices = choices

    @property
    def own(self) -> bool:
        return bool(self.cleaned_data["of"] == MINE)

    @property
    def team_id(self) -> int | None:
        of: str = self.cleaned_data["of"]
        return int(of.removeprefix("team-")) if of.startswith("team-") else None


def initial_of(channel: "Channel") -> dict[str, Any]:
    """Return what the form of a channel begins with: never its address."""
    return {
        "name": channel.name,
        "kind": channel.kind,
        "kinds": channel.kinds,
        "cadence": channel.cadence,
        "at": channel.at,
        "weekday": channel.weekday,
        "quiet_from": channel.quiet_from,
        "quiet_to": channel.quiet_to,
    }


class MuteForm(forms.Form):
    """What is not to go to a channel, and until when; clocks are those of the report."""

    kind = forms.ChoiceField(
        label="Kind",
        required=False,
        choices=lambda: [("", "any kind"), *((k.value, HEADINGS[k]) for k in offered_kinds())],
        widget=forms.Select(_SELECT),
    )
    subject = forms.CharField(
        label="About",
        required=False,
        max_length=600,
        widget=forms.TextInput({**_CONTROL, "autocomplete": "off", "spellcheck": "false"}),
        help_text="As in the delivery log: budget:vision/gpu_hours. Empty: all.",
    )
    until = forms.DateTimeField(
        label="Until",
        widget=forms.DateTimeInput({**_CONTROL, "type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    why = forms.CharField(
        label="Reason",
        required=False,
        max_length=500,
        widget=forms.TextInput({**_CONTROL, "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "mute-%s", **kwargs})

    @property
    def wanted_kind(self) -> AlertKind | None:
        return AlertKind(self.cleaned_data["kind"]) if self.cleaned_data["kind"] else None


def mute_initial(now: datetime, zone: ZoneInfo, *, kind: str, subject: str) -> dict[str, str]:
    """Return what the form of a silence begins with: a day from now."""
    until = (now + timedelta(days=1)).astimezone(zone)
    known = {each.value for each in AlertKind}
    return {
        "kind": kind if kind in known else "",
        "subject": subject[:600],
        "until": f"{until:%Y-%m-%dT%H:%M}",
    }


BAD = HTTPStatus.BAD_REQUEST
LAST_DELIVERIES = 10


@page
def channels(request: PageRequest) -> HttpResponseBase:
    return _listed(request, _new_form(request))


@change
def make(request: PageRequest) -> HttpResponseBase:
    form = _new_form(request, request.POST)
    if form.is_valid():
        try:
            made = add_channel(
                request.user,
                form.wanted(),
                now=timezone.now(),
                team_id=form.team_id,
                own=form.own,
                origin=_origin(request),
            )
        except (ChannelRefused, NotAllowed) as refusal:
            form.add_error(None, str(refusal))
        else:
            return _to(made.pk)
    return _listed(request, form, status=BAD)


def _new_form(request: PageRequest, given: Any = None) -> NewChannelForm:
    teams = selectors.teams_for_channels(request.user)
    platform = can_administer(request.user)
    # All kinds: of those that do not concern it nothing comes.
    begin = {"at": "08:00", "kinds": [kind.value for kind in offered_kinds()]}
    return NewChannelForm(given, teams=teams, platform=platform, initial=begin)


def _listed(
    request: PageRequest, form: NewChannelForm, *, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    zone, mutes = reading.choice.zone, selectors.mute_rows(request.user, reading.now)
    return respond(
        request,
        reading,
        "channels",
        status=status,
        tables=[
            channel_table(selectors.channel_rows(request.user), zone),
            *([mute_table(mutes, zone)] if mutes else []),
        ],
        form=form,
    )


# ---------------------------------------------------------------- one channel


@page
def channel(request: PageRequest, pk: int) -> HttpResponseBase:
    return _shown(request, _found(request, pk))


@change
def change_one(request: PageRequest, pk: int) -> HttpResponseBase:
    found, form = _found(request, pk), ChannelForm(request.POST)
    if form.is_valid():
        wanted = form.wanted(active=found.active)
        try:
            change_channel(request.user, found, wanted, now=timezone.now(), origin=_origin(request))
        except (ChannelRefused, NotAllowed) as refusal:
            form.add_error(None, str(refusal))
        else:
            return _to(pk)
    # Read anew: the change may have written to the object before it was refused.
    return _shown(request, _found(request, pk), form=form, status=BAD)


@change
def switch(request: PageRequest, pk: int) -> HttpResponseBase:
    """Switch a channel off or on, as `on` of the form says."""
    on = request.POST.get("on") == "yes"
    now, origin = timezone.now(), _origin(request)
    switch_channel(request.user, _found(request, pk), on=on, now=now, origin=origin)
    return _to(pk)


@change
def remove(request: PageRequest, pk: int) -> HttpResponseBase:
    found = _found(request, pk)
    remove_channel(request.user, found, now=timezone.now(), origin=_origin(request))
    return HttpResponseRedirect(reverse("web:channels"))


@change
def try_one(request: PageRequest, pk: int) -> HttpResponseBase:
    """Send a test message now, and say in the answer itself whether it was taken."""
    found = _found(request, pk)
    try:
        # Before the message goes: many presses at once must not each send one.
        pause_tries(request.user)
        try_channel(found)
    except (NotDelivered, TriedTooSoon) as failure:
        return _shown(request, found, failure=str(failure))
    return _shown(request, found, tried=True)


@change
def mute_one(request: PageRequest, pk: int) -> HttpResponseBase:
    found, form = _found(request, pk), MuteForm(request.POST)
    # The field is a clock without a zone, and means that of the report.
    with timezone.override(query_session(request).choice.zone):
        valid = form.is_valid()
    if valid:
        try:
            mute(
                request.user,
                found,
                MuteInput(
                    until=form.cleaned_data["until"],
                    why=form.cleaned_data["why"],
                    kind=form.wanted_kind,
                    subject=form.cleaned_data["subject"],
                ),
                now=timezone.now(),
                origin=_origin(request),
            )
        except ChannelRefused as refusal:
            form.add_error("until", str(refusal))
        else:
            return _to(pk, "#silences")
    return _shown(request, found, mute_form=form, status=BAD)


@change
def end_mute(request: PageRequest, pk: int) -> HttpResponseBase:
    muted = selectors.mute_of(request.user, pk)
    if muted is None:
        raise Http404("Mute not found, or it is not yours.")
    # Pages read whole seconds: the one that follows at once shall not list it any more.
    now = timezone.now().replace(microsecond=0)
    unmute(request.user, muted, now=now, origin=_origin(request))
    return _to(muted.channel_id, "#silences")


def _found(request: PageRequest, pk: int) -> "Channel":
    """Return a channel of the reader; who may not change it is told that nothing is there."""
    found = selectors.channel_of(request.user, pk)
    if found is None:
        raise Http404("Channel not found, or it is not yours.")
    return found


def _shown(
    request: PageRequest,
    found: "Channel",
    *,
    form: ChannelForm | None = None,
    mute_form: MuteForm | None = None,
    status: int = HTTPStatus.OK,
    **context: Any,
) -> HttpResponseBase:
    reading = query_session(request)
    (row,) = selectors.channel_rows(request.user, only=found.pk)
    zone = reading.choice.zone
    sent, _ = selectors.delivery_page(request.user, channel=found.pk, page_size=LAST_DELIVERIES)
    silences = selectors.mute_rows(request.user, reading.now)
    return respond(
        request,
        reading,
        "channel",
        status=status,
        row=row,
        line=channel_line(row),
        form=form or ChannelForm(initial=initial_of(found)),
        mute_form=mute_form or _mute_form(request, reading),
        tables=[
            mute_table(silences, zone, channel=found.pk),
            of_one_channel(replace(delivery_table(zone, sent), title="Latest deliveries")),
        ],
        longest_mute=LONGEST_MUTE.days,
        **context,
    )


def _mute_form(request: PageRequest, reading: QuerySession) -> MuteForm:
    kind, subject = request.GET.get("kind", ""), request.GET.get("subject", "")
    begin = mute_initial(reading.now, reading.choice.zone, kind=kind, subject=subject)
    return MuteForm(initial=begin)


def _to(pk: int, place: str = "") -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{reverse('web:channel', args=[pk])}{place}")


def _origin(request: PageRequest) -> str:
    return client_address(request) or ""
