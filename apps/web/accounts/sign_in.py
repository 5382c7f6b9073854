"""The sign-in page: its form, and the page with what went wrong on another way in."""

from typing import Any

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.accounts.domain.identity import is_reserved


class SignInForm(AuthenticationForm):
    """Django's form, with texts that say what can be done."""

    error_messages = {
        "invalid_login": (
            "That user name and password do not belong together. Both mind upper and lower case. "
            "An administrator can set a new password with manage.py changepassword."
        ),
        "inactive": "This account is switched off. Ask an administrator to switch it on.",
        "reserved": (
            "Nobody signs in with this name: it is, or looks like, what the portal calls itself. "
            "Ask an administrator for an account of another name."
        ),
    }

    def __init__(self, request: HttpRequest | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.fields["username"].label = "User name"
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"

    def confirm_login_allowed(self, user: Any) -> None:
        """Refuse a name of the portal itself, which `createsuperuser` may have given."""
        super().confirm_login_allowed(user)
        if is_reserved(user.get_username()):
            raise ValidationError(self.error_messages["reserved"], code="reserved")


def ways_in() -> dict[str, Any]:
    """Return what the page's template needs to know: which ways to sign in there are."""
    provider = settings.SINGLE_SIGN_ON
    return {
        "provider_name": provider.name if provider else "",
        "local_sign_in": settings.LOCAL_SIGN_IN,
    }


def sign_in_page(request: HttpRequest, problem: str, status: int) -> HttpResponse:
    """Return the page with a problem that is none of the form's; all ways in stay open."""
    context = {"form": SignInForm(request), "problem": problem, **ways_in()}
    return render(request, "sign_in/page.html", context, status=status)
