"""A user's own account: sign-in and sign-out, password, API tokens and saved views."""

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.contrib.auth import authenticate, logout, update_session_auth_hash
from django.contrib.auth import views as auth
from django.contrib.auth.forms import AuthenticationForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import Resolver404, get_script_prefix, resolve, reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from msgspec import Struct

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import TokenScope
from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import can_administer
from apps.accounts.selectors import TokenRow, tokens_of
from apps.accounts.services import (
    LONGEST_DAYS,
    LONGEST_VIEW_NAME,
    USUAL_DAYS,
    ActingParty,
    IssuedToken,
    TokenRefused,
    ViewRefused,
    delete_view,
    end_sessions,
    issue_token,
    revoke_token,
    save_view,
    set_own_password,
)
from apps.clusters.domain.columns import Column
from apps.web.accounts.sign_in import SignInForm, remember_browser, sign_in_page, ways_in
from apps.web.accounts.single_sign_on import begin, finish
from apps.web.accounts.users import PasswordForm
from apps.web.components.page_query import EVERY, href, with_query
from apps.web.components.tables import (
    RowAction,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.components.window_picker import PLACE_KEYS
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session


class SignIn(auth.LoginView):
    template_name = "sign_in/page.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in with a password, where the portal takes one."""
        # The page may have been open since before, or the form be made up.
        if not settings.LOCAL_SIGN_IN:
            return sign_in_page(
                request, "Passwords are disabled: use the sign-in provider.", HTTPStatus.FORBIDDEN
            )
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
        raise Http404("Your sign-in provider keeps your password.")
    form = PasswordForm(request.user, request.POST)
    if not form.is_valid():
        return _password_page(request, form, status=HTTPStatus.BAD_REQUEST)
    name = request.user.get_username()
    known = authenticate(request, username=name, password=form.cleaned_data["old"])
    # Another backend may know the same name as another account.
    if known is None or known.pk != request.user.pk:
        form.add_error("old", "The current password is wrong.")
        return _password_page(request, form, status=HTTPStatus.BAD_REQUEST)
    by = ActingParty(name, client_address(request) or "")
    fresh = set_own_password(request.user, form.cleaned_data["new"], by=by, now=timezone.now())
    # A new password ends all sessions; this one belongs to who just proved the old one.
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
    # Who is signed in would be sent from there to here again.
    is_sign_in = urlsplit(target).path.startswith(reverse("web:sign-in"))
    return target if own and not is_sign_in else reverse(settings.LOGIN_REDIRECT_URL)


SCOPES = {
    TokenScope.READ: "read: everything you can see",
    TokenScope.REQUEST: "request: request quota",
    TokenScope.DECIDE: "decide: approve requests",
}


class TokenForm(forms.Form):
    """What a new token is for, what it may, and for how long."""

    name = forms.CharField(
        label="Purpose",
        max_length=80,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[(scope.value, text) for scope, text in SCOPES.items()],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        required=False,
    )
    days = forms.IntegerField(
        label="Valid for days",
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
        # A scope that a person could not use is not offered; the service refuses it, too.
        if not can_administer(request.user):
            shown = [(s.value, text) for s, text in SCOPES.items() if s is not TokenScope.DECIDE]
            cast("forms.MultipleChoiceField", form.fields["scopes"]).choices = shown
        return form


@page
def tokens(request: PageRequest) -> HttpResponseBase:
    return _listed(request, query_session(request), form=TokenForm.blank(request))


@change
def create_token(request: PageRequest) -> HttpResponseBase:
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
def end_token(request: PageRequest, pk: int) -> HttpResponseBase:
    if not revoke_token(request.user, pk, now=timezone.now(), by=_by(request)):
        raise Http404("Token not found, or it is not yours.")
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
    table = token_table(tokens_of(request.user, now=reading.now), reading.choice.zone)
    return respond(
        request, reading, "tokens", status=status, tables=[table], form=form, issued=issued
    )


class TokenLine(Struct, frozen=True):
    """A token in the list and in its file."""

    name: Annotated[str, Column("Purpose")]
    ending: Annotated[str, Column("Ends in")]
    scopes: Annotated[str, Column("Scopes")]
    created_at: Annotated[datetime, Column("Created")]
    expires_at: Annotated[datetime, Column("Expires")]
    last_used_at: Annotated[datetime | None, Column("Last used", absent="never")]
    state: Annotated[str, Column("State")]


def token_table(rows: Sequence[TokenRow], zone: ZoneInfo) -> Table:
    """Return a person's own tokens, each valid one with the button that revokes it."""
    return Table(
        id="own-tokens",
        title="Tokens",
        columns=declared_columns(TokenLine),
        rows=[_token_row(row) for row in rows],
        zone=zone,
        empty="No tokens. Create one below.",
    )


def _token_row(row: TokenRow) -> TableRow:
    line = row_from(
        TokenLine,
        row,
        ending=f"…{row.ending}",
        scopes=", ".join(row.scopes),
        state=_STATES.get(row.state, row.state),
    )
    revoke = RowAction(
        "Revoke",
        href("revoke-token", pk=str(row.pk)) or "",
        f"Revoke token {row.name} ending in {row.ending}",
    )
    return TableRow(declared_values(line), actions=(revoke,) if row.state == "live" else ())


_STATES = {"live": "valid"}


LONGEST = 2000
# Pages that are no view of anything, or not for keeping.
_NOT_SAVED = frozenset(
    {"sign-in", "sign-out", "styleguide"}
    | {"views", "save-view", "delete-view", "first-run"}
    | {"sign-in-provider", "sign-in-callback", "sign-out-everywhere"}
    | {"tokens", "create-token", "revoke-token", "users", "user", "create-user", "disable-user"}
    | {"enable-user", "set-role", "set-team", "revoke-access"}
    | {"password", "change-password"}
)


def own_address(text: str) -> str | None:
    """Return an address as it is saved, without places in lists; None for what is none of ours.

    What comes back begins with one slash and leads to a page of this portal: neither another host
    nor what a browser would take for one.
    """
    if len(text) > LONGEST or not text.startswith("/") or text.startswith("//"):
        return None
    if "\\" in text or not text.isprintable() or "\0" in unquote(text):
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    # Whatever passes as a path must still lead to a page: it is opened with one click.
    if parts.scheme or parts.netloc or not _is_page(parts.path):
        return None
    given = parse_qsl(parts.query, keep_blank_values=True)
    kept = [
        (key, value)
        for key, value in given
        if key not in PLACE_KEYS and (value or key not in EVERY)
    ]
    address = with_query(parts.path, kept)
    # Encoding may lengthen what was short enough as it came.
    return address if len(address) <= LONGEST else None


def _is_page(path: str) -> bool:
    prefix = get_script_prefix()
    if not path.startswith(prefix):
        return False
    try:
        found = resolve("/" + unquote(path[len(prefix) :]))
    except Resolver404:
        return False
    return found.namespaces == ["web"] and found.url_name not in _NOT_SAVED


@page
def views(request: PageRequest) -> HttpResponseBase:
    return respond(request, query_session(request), "saved")


@change
def add_view(request: PageRequest) -> HttpResponseBase:
    """Save the page at hand and go back to it; what is refused is said on the list of views."""
    name, given = request.POST.get("name", ""), request.POST.get("address", "")
    address = own_address(given)
    if address is None:
        return _refused(request, "Only pages of this portal can be saved.")
    try:
        save_view(request.user, name=name, address=address)
    except ViewRefused as refusal:
        return _refused(request, str(refusal), name=name[:LONGEST_VIEW_NAME], address=address)
    return HttpResponseRedirect(address)


@change
def remove_view(request: PageRequest, pk: int) -> HttpResponseBase:
    if not delete_view(request.user, pk):
        raise Http404("View not found, or it is not yours.")
    return HttpResponseRedirect(reverse("web:views"))


def _refused(
    request: PageRequest, problem: str, *, name: str = "", address: str = ""
) -> HttpResponseBase:
    return respond(
        request,
        query_session(request),
        "saved",
        status=HTTPStatus.BAD_REQUEST,
        problem=problem,
        again={"name": name, "address": address} if address else None,
    )
