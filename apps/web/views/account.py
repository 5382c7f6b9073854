"""Signing in and out."""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth import views as auth
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from apps.accounts.services import end_sessions
from apps.web.pages import change
from apps.web.reading import PageRequest
from apps.web.sign_in import SignInForm, sign_in_page, ways_in
from apps.web.single_sign_on import begin, finish


class SignIn(auth.LoginView):
    template_name = "sign_in/page.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in with a password, where the portal takes one."""
        if not settings.LOCAL_SIGN_IN:
            return sign_in_page(request, "This portal takes no passwords.", HTTPStatus.FORBIDDEN)
        return super().post(request, *args, **kwargs)

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
