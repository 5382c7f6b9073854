"""Forms of channels: where alerts go, when, and what is not to be heard for a while."""

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from django import forms

from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import HEADINGS, Cadence
from apps.alerts.services import Wanted
from apps.web.alerts.words import CADENCES, CHANNELS, DAYS, TELLS

if TYPE_CHECKING:
    from apps.alerts.models import Channel

MINE, PLATFORM = "me", "platform"
_AT = time(8)
_CONTROL = {"class": "form-control"}
_SELECT = {"class": "form-select"}
_CLOCK = {"class": "form-control", "type": "time"}


class AddressInput(forms.TextInput):
    """A field that repeats an e-mail address and nothing else: a webhook's address is a secret."""

    def format_value(self, value: Any) -> str | None:
        return None if "/" in str(value or "") else super().format_value(value)


class ChannelForm(forms.Form):
    """What a person writes of a channel."""

    name = forms.CharField(
        label="Name", max_length=80, widget=forms.TextInput({**_CONTROL, "autocomplete": "off"})
    )
    kind = forms.ChoiceField(
        label="Goes to",
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
        label="Kinds of alerts",
        choices=[(kind.value, f"{HEADINGS[kind]}: {TELLS[kind]}") for kind in AlertKind],
        widget=forms.CheckboxSelectMultiple({"class": "form-check-input"}),
        required=False,
    )
    cadence = forms.ChoiceField(
        label="How often",
        choices=[(cadence.value, label) for cadence, label in CADENCES.items()],
        widget=forms.Select(_SELECT),
        help_text="What is urgent goes at once in any case.",
    )
    at = forms.TimeField(
        label="Time of day",
        required=False,
        widget=forms.TimeInput(_CLOCK, format="%H:%M"),
        help_text="For each day and each week; 08:00 unless another is given.",
    )
    weekday = forms.ChoiceField(
        label="Day of the week",
        choices=list(enumerate(DAYS)),
        required=False,
        widget=forms.Select(_SELECT),
        help_text="For each week.",
    )
    quiet_from = forms.TimeField(
        label="Quiet from", required=False, widget=forms.TimeInput(_CLOCK, format="%H:%M")
    )
    quiet_to = forms.TimeField(
        label="Quiet until",
        required=False,
        widget=forms.TimeInput(_CLOCK, format="%H:%M"),
        help_text="What comes between these times waits for their end, but for what is urgent.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "channel-%s", **kwargs})

    @property
    def took_back_address(self) -> bool:
        """Whether an address was written that the page does not repeat."""
        return self.is_bound and "/" in str(self["address"].value() or "")

    def wanted(self, *, active: bool = True) -> Wanted:
        """Return what is wanted, of a form that is valid."""
        given = self.cleaned_data
        return Wanted(
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
        choices = [(MINE, "me: what I may see")]
        choices += [(f"team-{pk}", f"the team {name}") for pk, name in teams.items()]
        if platform:
            choices.append((PLATFORM, "the platform: everything that is said"))
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
        choices=[("", "any kind"), *((kind.value, HEADINGS[kind]) for kind in AlertKind)],
        widget=forms.Select(_SELECT),
    )
    subject = forms.CharField(
        label="About",
        required=False,
        max_length=600,
        widget=forms.TextInput({**_CONTROL, "autocomplete": "off", "spellcheck": "false"}),
        help_text="As the log writes it, such as budget:vision/gpu_hours. Empty: anything.",
    )
    until = forms.DateTimeField(
        label="Until",
        widget=forms.DateTimeInput({**_CONTROL, "type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    why = forms.CharField(
        label="Why",
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
