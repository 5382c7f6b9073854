"""Signing in and out, and one's own password."""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import authenticate, logout, update_session_auth_hash
from django.contrib.auth import views as auth
from django.contrib.auth.forms import AuthenticationForm
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
)
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from apps.accounts.adapters.addresses import client_address
from apps.accounts.services import ActingParty, end_sessions, set_own_password
from apps.web.accounts.login_throttling import remember_browser
from apps.web.accounts.people_forms import PasswordForm
from apps.web.accounts.sign_in import SignInForm, sign_in_page, ways_in
from apps.web.accounts.single_sign_on import begin, finish
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, query_session


class SignIn(auth.LoginView):
    template_name = "sign_in/page.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in with a password, where the portal takes one."""
        if not settings.LOCAL_SIGN_IN:
            return sign_in_page(request, "This portal takes no passwords.", HTTPStatus.FORBIDDEN)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_valid(form)
        remember_browser(answer, form.get_user().get_username())
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | ways_in()

    def get_success_url(self) -> str:
        """Return where to go next; never here again, which Django takes for a mistake of ours."""
        target: str = super().get_success_url()
        here = urlsplit(target).path == self.request.path
        return self.get_default_redirect_url() if here else target


class SignOut(auth.LogoutView):
    http_method_names = ["post", "options"]


@change
def sign_out_everywhere(request: PageRequest) -> HttpResponseBase:
    """End all sessions of the reader, this one too."""
    end_sessions(request.user)
    logout(request)
    return HttpResponseRedirect(reverse("web:sign-in"))


@page
def password(request: PageRequest) -> HttpResponseBase:
    return _password_page(request, PasswordForm(request.user))


@change
def change_password(request: PageRequest) -> HttpResponseBase:
    """Change the reader's own password, which ends their other sessions.

    The old one is asked for by the way of a sign-in, so that wrong ones are counted as there: who
    finds a session open cannot try passwords at will.
    """
    if not _has_password(request):
        raise Http404("You sign in without a password of this portal.")
    form = PasswordForm(request.user, request.POST)
    if not form.is_valid():
        return _password_page(request, form, status=HTTPStatus.BAD_REQUEST)
    name = request.user.get_username()
    known = authenticate(request, username=name, password=form.cleaned_data["old"])
    if known is None or known.pk != request.user.pk:
        form.add_error("old", "That is not the password of this account.")
        return _password_page(request, form, status=HTTPStatus.BAD_REQUEST)
    by = ActingParty(name, client_address(request) or "")
    fresh = set_own_password(request.user, form.cleaned_data["new"], by=by, now=timezone.now())
    update_session_auth_hash(request, fresh)
    return HttpResponseRedirect(f"{reverse('web:password')}?changed=yes")


def _has_password(request: PageRequest) -> bool:
    return settings.LOCAL_SIGN_IN and request.user.has_usable_password()


def _password_page(
    request: PageRequest, form: PasswordForm, *, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    return respond(
        request,
        query_session(request),
        "password",
        status=status,
        form=form,
        has_password=_has_password(request),
        changed=request.GET.get("changed") == "yes",
    )


@require_safe
@never_cache
def to_provider(request: HttpRequest) -> HttpResponseBase:
    """Send the browser to the sign-in provider.

    A link and not a form: browsers hold the page's form-action against every address that a form
    is sent on to, and a provider may send on to others.
    """
    return begin(request, next_url=_next(request))


@require_safe
@never_cache
def from_provider(request: HttpRequest) -> HttpResponseBase:
    """Sign in who comes back from the sign-in provider."""
    return finish(request)


def _next(request: HttpRequest) -> str:
    """Return the page that was asked for, where it is one of this portal."""
    target = request.GET.get("next", "")
    own = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    is_sign_in = urlsplit(target).path.startswith(reverse("web:sign-in"))
    return target if own and not is_sign_in else reverse(settings.LOGIN_REDIRECT_URL)
