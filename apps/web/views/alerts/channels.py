"""Channels: where alerts go. Making, changing, trying, muting and removing them."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.accounts.adapters.addresses import client_address
from apps.accounts.permissions import NotAllowed, can_administer
from apps.alerts import selectors
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.ports import NotDelivered
from apps.alerts.services import (
    LONGEST_MUTE,
    ChannelRefused,
    Silence,
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
from apps.web.alerts.channels import channel_lines, delivery_lines, mute_lines
from apps.web.alerts.forms import ChannelForm, MuteForm, NewChannelForm, initial_of, mute_initial
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

if TYPE_CHECKING:
    from apps.alerts.models import Channel

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
    begin = {"at": "08:00", "kinds": [kind.value for kind in AlertKind]}
    return NewChannelForm(given, teams=teams, platform=platform, initial=begin)


def _listed(
    request: PageRequest, form: NewChannelForm, *, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    return respond(
        request,
        reading,
        "channels",
        status=status,
        lines=channel_lines(selectors.channel_rows(request.user)),
        mutes=mute_lines(selectors.mute_rows(request.user, reading.now)),
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
        pause_tries(request.user)
        try_channel(found)
    except (NotDelivered, TriedTooSoon) as failure:
        return _shown(request, found, failure=str(failure))
    return _shown(request, found, tried=True)


@change
def mute_one(request: PageRequest, pk: int) -> HttpResponseBase:
    found, form = _found(request, pk), MuteForm(request.POST)
    with timezone.override(query_session(request).choice.zone):
        valid = form.is_valid()
    if valid:
        try:
            mute(
                request.user,
                found,
                Silence(
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
        raise Http404("There is no such silence, or it is not yours.")
    # Pages read whole seconds: the one that follows at once shall not list it any more.
    now = timezone.now().replace(microsecond=0)
    unmute(request.user, muted, now=now, origin=_origin(request))
    return _to(muted.channel_id, "#silences")


def _found(request: PageRequest, pk: int) -> "Channel":
    """Return a channel of the reader; who may not change it is told that nothing is there."""
    found = selectors.channel_of(request.user, pk)
    if found is None:
        raise Http404("There is no such channel, or it is not yours.")
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
    (line,) = channel_lines(selectors.channel_rows(request.user, only=found.pk))
    sent, _ = selectors.delivery_page(request.user, channel=found.pk, page_size=LAST_DELIVERIES)
    silences = selectors.mute_rows(request.user, reading.now)
    return respond(
        request,
        reading,
        "channel",
        status=status,
        line=line,
        form=form or ChannelForm(initial=initial_of(found)),
        mute_form=mute_form or _mute_form(request, reading),
        mutes=mute_lines(silences, channel=found.pk),
        lines=delivery_lines(sent),
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
