"""What an address and the form of a request say, and the quota keys that one may ask for."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from math import ceil
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django import forms
from django.http import QueryDict
from msgspec import Struct

from apps.accounts.permissions import can_administer, led_by, teams_led_by
from apps.accounts.selectors import leads_by_team, team_names
from apps.clusters.domain.window import local_moment
from apps.quota_requests import services
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.domain.targets import TargetRefused, target_of
from apps.quota_requests.selectors import RequestDetail, RequestFilters, RequestList, RequestRow
from apps.quota_requests.services import QuotaToAsk
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors import QuotaFilters, QuotaOrder, QuotaRow, quota_rows
from apps.web.components.formats import unit_words
from apps.web.components.page_query import PER_PAGE, Query, href, next_href
from apps.web.query_session import QuerySession
from apps.web.quotas.keys import Saturation, key_href, ref_text, saturation

if TYPE_CHECKING:
    from apps.accounts.models import User


LONGEST = 10_000
LOCAL = "%Y-%m-%dT%H:%M"
_WRITTEN = "form-control"
_ENDED = frozenset(
    {RequestState.WITHDRAWN, RequestState.REJECTED, RequestState.EXPIRED, RequestState.REVERTED}
)


def ask_href(ref: QuotaRef, *, after: str = "", reason: str = "", query: Query = ()) -> str:
    """Return the address of the form for a change of a key, with `after` and reason where given.

    `query` is that of the reading, where there is one.
    """
    given = [(name, text) for name, text in (("after", after), ("reason", reason)) if text]
    return href("new-request", [("key", ref_text(ref)), *given, *query]) or ""


def again_href(detail: RequestDetail) -> str:
    """Return the form filled in with what an ended request said; empty where it goes on."""
    if detail.row.state not in _ENDED:
        return ""
    query = [("key", ref_text(detail.row.ref)), ("again", str(detail.row.id))]
    return href("new-request", query) or ""


def number_of(text: str) -> int | None:
    """Return the number of a request that an address names; None for what is no number."""
    # A key of the database has at most 19 digits: longer numbers are refused by it.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def may_ask(user: "User") -> bool:
    """Say whether a person may ask for any quota: what leads nowhere is not shown. One query."""
    return can_administer(user) or bool(teams_led_by(user))


# ---------------------------------------------------------------- the form


def _text(**attributes: str) -> forms.TextInput:
    return forms.TextInput(attrs={"class": _WRITTEN, "autocomplete": "off", **attributes})


def _local_time(label: str) -> forms.DateTimeField:
    return forms.DateTimeField(
        label=label,
        required=False,
        # A browser adds seconds where they are not zero.
        input_formats=[LOCAL, f"{LOCAL}:%S"],
        widget=forms.DateTimeInput(
            format=LOCAL, attrs={"class": _WRITTEN, "type": "datetime-local"}
        ),
        error_messages={"invalid": "This is no time: write it as 2026-10-31T18:00."},
    )


class RequestForm(forms.Form):
    """From what to what, why, and until when; times are local to the report's time zone."""

    before = forms.CharField(max_length=40, widget=_text(inputmode="numeric"), label="Limit")
    after = forms.CharField(max_length=40, widget=_text(inputmode="numeric"), label="To")
    team = forms.CharField(max_length=200, required=False, label="For the team")
    reason = forms.CharField(
        label="Reason",
        max_length=LONGEST,
        widget=forms.Textarea(attrs={"class": _WRITTEN, "rows": "2"}),
        error_messages={"required": "A request needs its reason: say what the GPUs are for."},
    )
    needed_by = forms.DateField(
        label="Needed by",
        required=False,
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"class": _WRITTEN, "type": "date"}),
        error_messages={"invalid": "This is no day: write it as 2026-10-31."},
    )
    until = _local_time("Expires")
    starts_at = _local_time("Starts")

    def clean_starts_at(self) -> datetime | None:
        starts_at: datetime | None = self.cleaned_data["starts_at"]
        _check_in_reach(starts_at)
        return starts_at

    def clean_needed_by(self) -> date | None:
        day: date | None = self.cleaned_data["needed_by"]
        _check_in_reach(day)
        return day

    def clean_until(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["until"]
        _check_in_reach(until)
        return until

    @classmethod
    def for_quota(cls, found: QuotaToAsk, given: QueryDict) -> "RequestForm":
        """Return the form as it is before anything is written, `after` as the address says.

        Without one it is as much more as is blocked now, at least one. The reason is that of the
        address, else it says what is blocked.
        """
        team = found.teams[0] if len(found.teams) == 1 else ""
        after, blocked = given.get("after", "").strip()[:40], ceil(found.blocked or 0.0)
        # An amount with a suffix is not raised by one: it is left to be written.
        if not after and found.amount.isdigit():
            after = str(int(found.amount) + max(1, blocked))
        unit = unit_words(str(blocked), found.unit)
        own = f"{blocked} {unit} blocked by this quota." if blocked else ""
        reason = given.get("reason", "").replace("\0", "").strip()[:LONGEST] or own
        return cls(initial={"before": found.amount, "after": after, "team": team, "reason": reason})

    @classmethod
    def again(
        cls, detail: RequestDetail, found: QuotaToAsk, *, zone: ZoneInfo, now: datetime
    ) -> "RequestForm":
        """Return the form of a new request with what an ended one said; days gone by are not."""
        row = detail.row
        given = cls.of_request(detail, zone).initial
        if row.needed_by is not None and row.needed_by <= now:
            given["needed_by"] = None
        if row.until is not None and row.until <= now:
            given["until"] = None
        if row.starts_at is not None and row.starts_at <= now:
            given["starts_at"] = None
        # The team may have lost the quota since, or its reader the team.
        team = row.team if row.team in found.teams else ""
        return cls(initial={**given, "before": found.amount, "team": team})

    @classmethod
    def typed(cls, given: QueryDict, **instead: str) -> "RequestForm":
        """Return the form with what somebody typed so far, not checked yet."""
        fields = cls.base_fields
        return cls(initial={**{name: given.get(name, "") for name in fields}, **instead})

    @classmethod
    def of_request(cls, detail: RequestDetail, zone: ZoneInfo) -> "RequestForm":
        """Return the form with what a request says."""
        row = detail.row
        own = {"before": row.before, "after": row.after, "team": row.team, "reason": row.reason}
        return cls(
            initial={
                **own,
                "needed_by": row.needed_by and row.needed_by.astimezone(zone).date(),
                "until": row.until and _shown(row.until, zone),
                "starts_at": row.starts_at and _shown(row.starts_at, zone),
            }
        )


def _check_in_reach(value: date | None) -> None:
    # Near the ends of the calendar converting between time zones fails.
    if value is not None and not 2000 <= value.year < 9000:
        raise forms.ValidationError("This year is out of reach.")


def _shown(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return a moment as the form shows it: local, to the minute."""
    return moment.astimezone(zone).replace(tzinfo=None, second=0, microsecond=0)


def _left_as_shown(
    written: datetime | None, before: datetime | None, zone: ZoneInfo
) -> datetime | None:
    """Return the moment `before` where the form shows it as `written`.

    Else a request would move with each edit: an hour is there twice when clocks go back, and the
    form drops seconds.
    """
    if written is None or before is None or _shown(written, zone) != _shown(before, zone):
        return written
    return before


def _times(cleaned: Mapping[str, Any], zone: ZoneInfo) -> tuple[datetime | None, datetime | None]:
    """Return needed by, the start of its day, and until, both in the report's time zone."""
    day, until = cleaned["needed_by"], cleaned["until"]
    needed_by = None if day is None else datetime.combine(day, time(), tzinfo=zone)
    return needed_by, None if until is None else _moment(until, zone)


def _start_of(form: RequestForm, zone: ZoneInfo) -> datetime | None:
    starts_at: datetime | None = form.cleaned_data["starts_at"]
    return None if starts_at is None else _moment(starts_at, zone)


def _moment(written: datetime, zone: ZoneInfo) -> datetime:
    at = local_moment(written, zone)
    if at is None:
        raise services.RequestRefused(f"Clocks in {zone.key} skip {written:{LOCAL}}.")
    return at


def input_from(form: RequestForm, ref: QuotaRef, zone: ZoneInfo) -> services.RequestInput:
    """Return the input of a valid form. Raises RequestRefused for a time that never is."""
    needed_by, until = _times(form.cleaned_data, zone)
    return services.RequestInput(
        ref=ref,
        before=form.cleaned_data["before"],
        after=form.cleaned_data["after"],
        reason=form.cleaned_data["reason"],
        needed_by=needed_by,
        until=until,
        starts_at=_start_of(form, zone),
        team=form.cleaned_data["team"] or None,
    )


def edited_from(form: RequestForm, row: RequestRow, zone: ZoneInfo) -> services.Edited:
    """Return what a valid form makes of a request; what was emptied is emptied."""
    needed_by, until = _times(form.cleaned_data, zone)
    until = _left_as_shown(until, row.until, zone)
    starts_at = _left_as_shown(_start_of(form, zone), row.starts_at, zone)
    dates = {"needed_by": needed_by, "until": until, "starts_at": starts_at}
    return services.Edited(
        before=form.cleaned_data["before"],
        after=form.cleaned_data["after"],
        reason=form.cleaned_data["reason"],
        needed_by=needed_by,
        until=until,
        starts_at=starts_at,
        clear=frozenset(name for name, at in dates.items() if at is None),
    )


def said(error: Exception) -> str:
    """Return what an error of the services says, with what to do about it."""
    fix = getattr(error, "fix", "")
    return f"{error} {fix}".strip()


# ---------------------------------------------------------------- the list

WHICH = {
    RequestList.ALL: "all that you may see",
    RequestList.MINE: "written by you",
    RequestList.QUEUE: "pending your decision",
}


class RequestListQuery(Struct, frozen=True):
    """What a list of requests is narrowed to; `query` reproduces it."""

    which: RequestList
    states: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def query(self) -> Query:
        return [("which", self.which.value), *(("state", state) for state in self.states)]

    def filters(self, team: Sequence[str], cluster: Sequence[str]) -> RequestFilters:
        return RequestFilters(state=self.states, team=tuple(team), cluster=tuple(cluster))


def over_of(quota: QuotaToAsk | None) -> float:
    """Return by how much more is used than a quota allows: it was lowered, or came after pods."""
    if quota is None or quota.used is None:
        return 0.0
    # Never below zero: what is left of a quota is no news here.
    return max(0.0, quota.used - float(quantity(quota.amount).units))


def teams_seen(reading: QuerySession) -> Sequence[str]:
    """Return the teams whose requests a reader may see, by name. One query at most."""
    if reading.visibility.everything:
        return reading.choices.get("team") or ()
    own = reading.visibility.team_ids
    names = team_names() if own else {}
    return sorted(names[pk] for pk in own)


def request_list_query(given: QueryDict) -> RequestListQuery:
    """Read the requests and states of an address; unknown ones are reported."""
    problems = []
    name = given.get("which", "") or RequestList.ALL.value
    if name not in {which.value for which in RequestList}:
        problems.append(f"“{name[:40]}” is no list of requests: all are shown.")
        name = RequestList.ALL.value
    known = [state.value for state in RequestState]
    asked = [state for state in given.getlist("state") if state]
    # Known states still narrow the list; the first unknown one is told.
    states = tuple(dict.fromkeys(state for state in asked if state in known))
    unknown = next((state for state in asked if state not in known), "")
    if unknown:
        problems.append(f"There is no state “{unknown[:40]}”; there are: {', '.join(known)}.")
    return RequestListQuery(RequestList(name), states, tuple(problems))


LONGEST_TEXT = 100


class Asker(Struct, frozen=True):
    """For whose quota a person may ask: that of all teams, or of those that they lead."""

    every_team: bool
    teams: frozenset[str] = frozenset()

    @classmethod
    def of(cls, user: "User") -> "Asker":
        """One query at most."""
        if can_administer(user):
            return cls(every_team=True)
        return cls(every_team=False, teams=frozenset(one.team for one in led_by(user)))

    @property
    def asks(self) -> bool:
        return self.every_team or bool(self.teams)

    def ask_href(self, row: QuotaRow, query: Query = ()) -> str:
        """Return the form for a change of a key; empty where the reader may not request one.

        Who leads any team may open that of a shared queue: whether the team uses it is seen there.
        """
        if not (row.effective and row.team_count and _is_target(row)):
            return ""
        is_own = row.team in self.teams if row.team is not None else bool(self.teams)
        return ask_href(row.ref, query=query) if self.every_team or is_own else ""


def _is_target(row: QuotaRow) -> bool:
    """Say whether a request can be about this key: of a Volcano queue some are not changed."""
    try:
        target_of(row.ref, named=(row.resource,))
    except TargetRefused:
        return False
    return True


class KeyToAsk(Struct, frozen=True):
    """A quota key in a short list; `ask` leads to the form, empty where one may not ask."""

    row: QuotaRow
    href: str
    ask: str
    bar: Saturation | None


def key_choices(rows: Sequence[QuotaRow], reading: QuerySession, asker: Asker) -> list[KeyToAsk]:
    return [
        KeyToAsk(
            row=row,
            href=key_href(row.ref, reading.query) or "",
            ask=asker.ask_href(row, reading.query),
            bar=saturation(row),
        )
        for row in rows
    ]


class QuotaChoices(Struct, frozen=True):
    """A page of the keys to choose from; `find` is the text that they are searched for.

    `leads` are whom those ask who may not ask themselves.
    """

    keys: Sequence[KeyToAsk]
    find: str
    next_href: str = ""
    is_narrowed: bool = False
    may_ask: bool = True
    leads: Sequence[str] = ()


def choice_of(
    user: "User", reading: QuerySession, *, find: str, cursor: str | None
) -> QuotaChoices:
    """Return the keys that a person may ask for, the fullest first."""
    asker, find = Asker.of(user), find.strip()[:LONGEST_TEXT]
    if not asker.asks:
        return QuotaChoices((), find, may_ask=False, leads=_leads_for(reading))
    own = reading.filters
    named = own.team if asker.every_team else tuple(sorted(_narrowed(asker, own.team)))
    filters = QuotaFilters(cluster=own.cluster, team=named, effective=True, text=find)
    found = quota_rows(
        reading.now,
        filters=filters,
        visibility=reading.visibility,
        cursor=cursor,
        page_size=PER_PAGE,
        order=QuotaOrder.FULLEST,
    )
    query = [*reading.query, *([("find", find)] if find else [])]
    return QuotaChoices(
        keys=key_choices(found.rows, reading, asker),
        find=find,
        next_href=next_href(href("new-request") or "", query, found.next_cursor) or "",
        is_narrowed=bool(find or own.cluster or own.team),
    )


def _narrowed(asker: Asker, teams: Sequence[str]) -> frozenset[str]:
    """Return the led teams that an address names; all of them where it names none of them."""
    return asker.teams & set(teams) or asker.teams


def _leads_for(reading: QuerySession) -> list[str]:
    """Return the leads of a reader's teams; none for a reader who sees all."""
    leads = leads_by_team() if reading.visibility.team_ids else {}
    names = {name for pk in reading.visibility.team_ids for name in leads.get(pk, ())}
    return sorted(names)
