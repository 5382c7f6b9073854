"""Signing in and out."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth import views as auth
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest


class SignInForm(AuthenticationForm):
    """Django's form, with texts that say what can be done."""

    error_messages = {
        "invalid_login": (
            "That user name and password do not belong together. Both mind upper and lower case. "
            "An administrator can set a new password with manage.py changepassword."
        ),
        "inactive": "This account is switched off. Ask an administrator to switch it on.",
    }

    def __init__(self, request: HttpRequest | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.fields["username"].label = "User name"
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"


class SignIn(auth.LoginView):
    template_name = "sign_in/page.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_success_url(self) -> str:
        """Return where to go next; never here again, which Django takes for a mistake of ours."""
        target: str = super().get_success_url()
        here = urlsplit(target).path == self.request.path
        return self.get_default_redirect_url() if here else target


class SignOut(auth.LogoutView):
    http_method_names = ["post", "options"]
