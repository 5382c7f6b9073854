"""`person NAME`: make somebody's account, or change what an existing one may do."""

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.accounts import services
from apps.accounts.domain.identity import Role


class Command(BaseCommand):
    help = (
        "Make an account that signs in to the portal, or change the role, e-mail address or state "
        "of one that is there; its password then stays as it is. A new one's password is asked "
        "for, or read from the first line of standard input."
    )
    requires_system_checks = ()  # they import every page: a second, and 30 MB

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the user name to sign in with")
        roles = [role.value for role in Role]
        parser.add_argument(
            "--role", choices=roles, help="what the account may see; a new one needs it"
        )
        parser.add_argument("--email", help="an address")
        parser.add_argument(
            "--single-sign-on",
            action="store_true",
            help="hand it over: drop the password, end its sessions, revoke its tokens and forget "
            "who signed in to it; it belongs to whom the sign-in provider next sends with its name",
        )
        parser.add_argument(
            "--deactivate", action="store_true", help="refuse its sign-ins and its tokens"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        name, role = options["name"], options["role"]
        changes = services.PersonChanges(
            role=Role(role) if role else None,
            email=options["email"],
            active=_active(options),
            drops_password=options["single_sign_on"],
        )
        try:
            if services.person_exists(name):
                by, now = services.from_command("person"), timezone.now()
                self._tell(services.change_person(name, changes, by=by, now=now), "Changed")
            else:
                self._tell(self._make(name, changes), "Made")
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error

    def _make(self, name: str, changes: services.PersonChanges) -> services.Account:
        if changes.role is None:
            roles = ", ".join(role.value for role in Role)
            raise CommandError(
                f"no account has the name {name!r}: a new account needs --role ({roles})"
            )
        if changes.active is False:
            raise CommandError(f"no account has the name {name!r}, so none was deactivated")
        services.check_new_person(name, changes)
        # Checked before the prompt: a refused name needs no password.
        password = None if changes.drops_password else _password(name)
        by, now = services.from_command("person"), timezone.now()
        return services.make_person(name, changes, password=password, by=by, now=now)

    def _tell(self, person: services.Account, verb: str) -> None:
        state = "" if person.active else ", deactivated"
        self.stdout.write(f"{verb}: {person.name}, {person.role.value}{state}")


def _active(options: dict[str, Any]) -> bool | None:
    """Return what is asked for; naming a role brings a deactivated account back."""
    if options["deactivate"]:
        return False
    return True if options["role"] else None


def _password(name: str) -> str:
    """Return a password that may be used; raises CommandError and ValidationError."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if getpass.getpass("The same again: ") != password:
            raise CommandError("the two passwords differ; nothing was changed")
    else:
        # The end of the line is no part of a password; blanks may be.
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError(
            "no password was given: type it, or write it to the first line of standard input"
        )
    validate_password(password)
    return password
