"""The reader's API tokens: the list of them, making one, revoking one."""

from http import HTTPStatus
from typing import cast

from django import forms
from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import TokenScope
from apps.accounts.permissions import can_administer
from apps.accounts.selectors import tokens_of
from apps.accounts.services import (
    LONGEST_DAYS,
    USUAL_DAYS,
    ActingParty,
    IssuedToken,
    TokenRefused,
    issue_token,
    revoke_token,
)
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

SCOPES = {
    TokenScope.READ: "read: see what you see",
    TokenScope.REQUEST: "request: ask for quota where you may",
    TokenScope.DECIDE: "decide: review requests of others",
}


class TokenForm(forms.Form):
    """What a new token is for, what it may, and for how long."""

    name = forms.CharField(
        label="What it is for",
        max_length=80,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    scopes = forms.MultipleChoiceField(
        label="What it may be used for",
        choices=[(scope.value, text) for scope, text in SCOPES.items()],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        required=False,
    )
    days = forms.IntegerField(
        label="Days until it expires",
        min_value=1,
        max_value=LONGEST_DAYS,
        initial=USUAL_DAYS,
        widget=forms.NumberInput(attrs={"class": "form-control"}),
    )

    @classmethod
    def of(cls, request: PageRequest) -> "TokenForm":
        """Return the form with what is given."""
        return cls._shown_to(request, cls(request.POST))

    @classmethod
    def blank(cls, request: PageRequest) -> "TokenForm":
        """Return the form as it is before anything is given."""
        return cls._shown_to(request, cls(initial={"scopes": [TokenScope.READ.value]}))

    @staticmethod
    def _shown_to(request: PageRequest, form: "TokenForm") -> "TokenForm":
        if not can_administer(request.user):
            shown = [(s.value, text) for s, text in SCOPES.items() if s is not TokenScope.DECIDE]
            cast("forms.MultipleChoiceField", form.fields["scopes"]).choices = shown
        return form


@page
def tokens(request: PageRequest) -> HttpResponseBase:
    return _listed(request, query_session(request), form=TokenForm.blank(request))


@change
def make(request: PageRequest) -> HttpResponseBase:
    """Make a token and show it this once, in the answer itself, so that nothing keeps it."""
    reading, form = query_session(request), TokenForm.of(request)
    if not form.is_valid():
        return _listed(request, reading, status=HTTPStatus.BAD_REQUEST, form=form)
    try:
        issued = issue_token(
            request.user,
            name=form.cleaned_data["name"],
            scopes=[TokenScope(word) for word in form.cleaned_data["scopes"]],
            days=form.cleaned_data["days"],
            now=reading.now,
            by=_by(request),
        )
    except TokenRefused as refusal:
        form.add_error(None, str(refusal))
        return _listed(request, reading, status=HTTPStatus.BAD_REQUEST, form=form)
    return _listed(request, reading, form=TokenForm.blank(request), issued=issued)


@change
def revoke(request: PageRequest, pk: int) -> HttpResponseBase:
    if not revoke_token(request.user, pk, now=timezone.now(), by=_by(request)):
        raise Http404("There is no such token, or it is not yours.")
    return HttpResponseRedirect(reverse("web:tokens"))


def _by(request: PageRequest) -> ActingParty:
    return ActingParty(request.user.username, client_address(request) or "")


def _listed(
    request: PageRequest,
    reading: QuerySession,
    *,
    form: TokenForm,
    status: int = HTTPStatus.OK,
    issued: IssuedToken | None = None,
) -> HttpResponseBase:
    rows = tokens_of(request.user, now=reading.now)
    return respond(request, reading, "tokens", status=status, rows=rows, form=form, issued=issued)
