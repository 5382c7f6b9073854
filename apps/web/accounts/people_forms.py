"""Forms of accounts: making one for somebody, and changing one's own password."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from apps.accounts.domain.identity import Role

if TYPE_CHECKING:
    from apps.accounts.models import User

_CONTROL = {"class": "form-control"}
# So that no browser fills in the password of who sits before it.
_NEW = {**_CONTROL, "autocomplete": "new-password"}


class PersonForm(forms.Form):
    """Who a new account is for. Without a password it waits for the sign-in provider."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=forms.TextInput(attrs={**_CONTROL, "autocomplete": "off"}),
    )
    email = forms.EmailField(
        label="E-mail address (may be empty)",
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
    password = forms.CharField(
        label="First password",
        required=False,
        max_length=4096,
        strip=False,
        widget=forms.PasswordInput(attrs=_NEW),
    )

    def clean(self) -> dict[str, Any]:
        """Check the password against the person; where no provider is, one is needed."""
        given: dict[str, Any] = super().clean() or {}
        password = given.get("password") or ""
        if not password and settings.SINGLE_SIGN_ON is None:
            self.add_error("password", "Nobody could sign in without one: there is no provider.")
        elif password:
            person = get_user_model()(
                username=given.get("username", ""), email=given.get("email", "")
            )
            _check(self, "password", password, person)
        return given


class PasswordForm(forms.Form):
    """The old password, and the new one twice; whether the old one is right is for the caller."""

    old = forms.CharField(
        label="Password until now",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={**_CONTROL, "autocomplete": "current-password"}),
    )
    new = forms.CharField(
        label="New password",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs=_NEW),
    )
    again = forms.CharField(
        label="The new one again",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs=_NEW),
    )

    def __init__(self, person: "User", *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._person = person

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        new, again = given.get("new"), given.get("again")
        if new and again and new != again:
            self.add_error("again", "The two differ.")
        if new:
            _check(self, "new", new, self._person)
        if new and new == given.get("old"):
            self.add_error("new", "That is the password until now.")
        return given


def _check(form: forms.Form, field: str, password: str, person: "User") -> None:
    try:
        validate_password(password, person)
    except ValidationError as refusal:
        form.add_error(field, refusal)
