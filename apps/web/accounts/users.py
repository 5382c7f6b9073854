"""Users and their roles on teams, for administrators."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from msgspec import Struct

from apps.accounts import selectors
from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import Role
from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import NotAllowed, can_administer
from apps.accounts.selectors import MembershipRow, PersonRow
from apps.accounts.services import (
    Manager,
    PersonChanges,
    PlaceRefused,
    add_person,
    give_place,
    give_role,
    shut_out,
    switch_person,
    take_place,
)
from apps.clusters.domain.columns import Column
from apps.web.components.page_query import href
from apps.web.components.tables import (
    LaterRows,
    RowAction,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, query_session

if TYPE_CHECKING:
    from apps.accounts.models import User


_CONTROL = {"class": "form-control"}
# So that no browser fills in the password of who sits before it.
_NEW = "new-password"


def _password(label: str, autocomplete: str, *, required: bool = True) -> forms.CharField:
    """Return a field of a password, which is taken as it is typed."""
    attrs = {**_CONTROL, "autocomplete": autocomplete}
    widget = forms.PasswordInput(attrs=attrs)
    return forms.CharField(
        label=label, required=required, max_length=4096, strip=False, widget=widget
    )


class PersonForm(forms.Form):
    """The person of a new account. Without a password it expects a sign-in through the provider."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=forms.TextInput(attrs={**_CONTROL, "autocomplete": "off"}),
    )
    email = forms.EmailField(
        label="E-mail address (optional)",
        required=False,
        max_length=254,
        widget=forms.EmailInput(attrs={**_CONTROL, "autocomplete": "off"}),
    )
    role = forms.ChoiceField(
        label="Role",
        choices=[(role.value, role.value) for role in Role],
        initial=Role.VIEWER.value,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    password = _password("First password", _NEW, required=False)

    def clean(self) -> dict[str, Any]:
        """Check the password against the person; where no provider is, one is needed."""
        given: dict[str, Any] = super().clean() or {}
        password = given.get("password") or ""
        if not password and settings.SINGLE_SIGN_ON is None:
            self.add_error(
                "password", ("Without a sign-in provider, a user needs a password to sign in.")
            )
        elif password:
            person = get_user_model()(
                username=given.get("username", ""), email=given.get("email", "")
            )
            _check(self, "password", password, person)
        return given


class PasswordForm(forms.Form):
    """The old password, and the new one twice; whether the old one is right is for the caller."""

    old = _password("Current password", "current-password")
    new = _password("New password", _NEW)
    again = _password("Confirm password", _NEW)

    def __init__(self, person: "User", *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._person = person

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        new, again = given.get("new"), given.get("again")
        if new and again and new != again:
            self.add_error("again", "The passwords differ.")
        if new:
            _check(self, "new", new, self._person)
        # Some sites ask for a new password after an incident: the old one would change nothing.
        if new and new == given.get("old"):
            self.add_error("new", "This is the current password.")
        return given


def _check(form: forms.Form, field: str, password: str, person: "User") -> None:
    try:
        validate_password(password, person)
    except ValidationError as refusal:
        form.add_error(field, refusal)


_GIVEN_BY = {
    "groups": "from groups",
    "portal": "set here",
    "createsuperuser": "from createsuperuser",
}


class UserLine(Struct, frozen=True):
    """An account in the list and in its file."""

    username: Annotated[str, Column("User name")]
    email: Annotated[str, Column("E-mail address", off_page=True)]
    role: Annotated[str, Column("Role")]
    role_from: Annotated[str, Column("Role from", off_page=True)]
    teams: Annotated[str, Column("Teams", wraps=True)]
    sign_in_method: Annotated[str, Column("Sign-in method")]
    last_sign_in_at: Annotated[datetime | None, Column("Last sign-in", absent="never")]
    tokens: Annotated[int, Column("Tokens", help="Valid ones.")]
    state: Annotated[str, Column("State")]


def user_table(rows: Sequence[PersonRow], zone: ZoneInfo, *, reader: int) -> Table:
    """Return the accounts with a switch; the reader's own has none."""
    return Table(
        id="accounts",
        title="Accounts",
        columns=declared_columns(UserLine),
        rows=LaterRows(rows, lambda row: _user_row(row, is_own=row.pk == reader)),
        zone=zone,
        empty="No users yet. Create accounts below or with `manage.py person`.",
    )


def _user_row(row: PersonRow, *, is_own: bool) -> TableRow:
    line = row_from(
        UserLine,
        row,
        role_from=_GIVEN_BY.get(row.role_from, "set here"),
        teams=", ".join(map(_place_words, row.places)) or "none",
        sign_in_method=row.signs_in or "no sign-in yet",
        state="active" if row.active else "disabled",
    )
    verb = "Disable" if row.active else "Enable"
    switch = RowAction(
        verb,
        href(f"{verb.lower()}-user", pk=str(row.pk)) or "",
        f"{verb} the account of {row.username}",
    )
    return TableRow(
        declared_values(line),
        {"username": href("user", pk=str(row.pk))},
        details={
            "username": row.email,
            "role": line.role_from,
            "state": "your own" if is_own else "",
        },
        # No user disables themselves: an administrator must be left to undo it.
        actions=() if is_own else (switch,),
    )


def _place_words(place: MembershipRow) -> str:
    given = _GIVEN_BY.get(place.source, "from the catalog")
    return f"{place.team} ({'lead' if place.lead else 'member'}, {given})"


class PlaceLine(Struct, frozen=True):
    """A place on a team, in the list and the file of an account's page."""

    team: Annotated[str, Column("Team")]
    role: Annotated[str, Column("Role")]
    source: Annotated[str, Column("From")]


def place_table(person: PersonRow, zone: ZoneInfo) -> Table:
    """Return a person's places on teams; those that nothing else gives can be taken."""
    return Table(
        id="places",
        title="Teams",
        columns=declared_columns(PlaceLine),
        rows=[_place_row(place, person) for place in person.places],
        zone=zone,
        empty="No teams. Add one below.",
    )


def _place_row(place: MembershipRow, person: PersonRow) -> TableRow:
    role = "lead" if place.lead else "member"
    remove = RowAction(
        "Remove",
        href("set-team", pk=str(person.pk)) or "",
        f"Remove {person.username} from team {place.team}",
        (("team", place.team), ("place", "none")),
    )
    given = _PLACES.get(place.source, "the catalog")
    return TableRow(
        declared_values(PlaceLine(place.team, role, given)),
        details={} if place.can_be_taken else {"source": "changed at its source"},
        actions=(remove,) if place.can_be_taken else (),
    )


_PLACES = {"groups": "groups of the sign-in provider", "portal": "an administrator"}


Parts = ParamSpec("Parts")
_NOTHING_THERE = "Account not found, or you may not change it."


@page
def people(request: PageRequest) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    return _listed(request, PersonForm())


@page
def person(request: PageRequest, pk: int) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    return _shown(request, pk)


def _managing(
    view: Callable[Concatenate[PageRequest, Manager, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view that changes something of others; who may not is told that nothing is there."""

    @wraps(view)
    def wrapped(
        request: PageRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if not can_administer(request.user):
            raise Http404(_NOTHING_THERE)
        who = Manager(request.user, client_address(request) or "", timezone.now())
        try:
            return view(request, who, *args, **kwargs)
        # Both look alike: the answer does not tell which accounts there are.
        except (NotAllowed, ObjectDoesNotExist) as refusal:
            raise Http404(_NOTHING_THERE) from refusal

    return change(cast("Callable[Concatenate[PageRequest, Parts], HttpResponseBase]", wrapped))


@_managing
def make(request: PageRequest, who: Manager) -> HttpResponseBase:
    form = PersonForm(request.POST)
    if not form.is_valid():
        return _listed(request, form, status=HTTPStatus.BAD_REQUEST)
    given = form.cleaned_data
    changes = PersonChanges(role=Role(given["role"]), email=given["email"])
    try:
        made = add_person(who, given["username"], changes, given["password"] or None)
    except ValidationError as refusal:
        form.add_error(None, refusal.messages)
        return _listed(request, form, status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(reverse("web:user", kwargs={"pk": made.pk}))


@_managing
def disable(_request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    switch_person(who, pk, on=False)
    return HttpResponseRedirect(reverse("web:users"))


@_managing
def enable(_request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    switch_person(who, pk, on=True)
    return HttpResponseRedirect(reverse("web:users"))


@_managing
def role(request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    """Change a role; no user changes their own, so that one administrator is always left."""
    given = request.POST.get("role", "")
    # The list has no other roles: the form was made up, or comes from another version.
    if given not in {each.value for each in Role}:
        return _shown(request, pk, "Choose a role from the list.")
    give_role(who, pk, Role(given))
    return _to_person(pk)


@_managing
def place(request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    """Put somebody on a team or take them off it."""
    team, given = request.POST.get("team", "").replace("\0", ""), request.POST.get("place", "")
    try:
        if given in {"lead", "member"}:
            give_place(who, pk, team, lead=given == "lead")
        elif given == "none":
            take_place(who, pk, team)
        else:
            return _shown(request, pk, "Choose lead or member.")
    except PlaceRefused as refusal:
        return _shown(request, pk, str(refusal))
    return _to_person(pk)


@_managing
def shut(_request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    """End the sessions and revoke the tokens of somebody."""
    shut_out(who, pk)
    return _to_person(pk)


def _to_person(pk: int) -> HttpResponseBase:
    return HttpResponseRedirect(reverse("web:user", kwargs={"pk": pk}))


def _shown(request: PageRequest, pk: int, problem: str = "") -> HttpResponseBase:
    """Return the page of one account, with what cannot be done. Raises Http404."""
    reading = query_session(request)
    row = selectors.person(pk, now=reading.now)
    if row is None:
        raise Http404("Account not found.")
    return respond(
        request,
        reading,
        "user",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        person=row,
        tables=[place_table(row, reading.choice.zone)],
        problem=problem,
        roles=[each.value for each in Role],
        teams=selectors.open_teams(),
        is_own=pk == request.user.pk,
    )


def _listed(
    request: PageRequest, form: PersonForm, *, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    rows = selectors.people(now=reading.now)
    return respond(
        request,
        reading,
        "users",
        status=status,
        tables=[user_table(rows, reading.choice.zone, reader=request.user.pk)],
        form=form,
        by_provider=settings.SINGLE_SIGN_ON is not None,
    )
