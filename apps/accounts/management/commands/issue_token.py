"""`issue_token USER`: a new API token of a person, alone on the last line."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from apps.accounts import services
from apps.accounts.domain.formats import utc_words
from apps.accounts.domain.identity import TokenScope


class Command(BaseCommand):
    help = (
        "Make an API token of a person and print it, alone on the last line: `Authorization: "
        "Token …`. It cannot be printed again."
    )
    requires_system_checks = ()  # they import every page: a second, and 30 MB

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the name to sign in with")
        parser.add_argument("--name", default="issue_token", help="what it is for")
        parser.add_argument(
            "--scope",
            action="append",
            choices=[scope.value for scope in TokenScope],
            help="what it may be used for, each with an option of its own; reading always",
        )
        parser.add_argument(
            "--days",
            type=int,
            default=services.USUAL_DAYS,
            help=f"how long it holds; {services.USUAL_DAYS} unless given, "
            f"{services.LONGEST_DAYS} at most",
        )
        parser.add_argument(
            "--replace",
            action="store_true",
            help="revoke the person's other tokens of this name",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        people = get_user_model()
        name = options["user"]
        try:
            person = people.objects.get_by_natural_key(name)
        except people.DoesNotExist as error:
            raise CommandError(
                f"no account has the name {name!r}: create it with `person {name} --role …` first"
            ) from error
        if not person.is_active:
            raise CommandError(f"{name!r} is deactivated: the token would not be accepted")
        try:
            issued = self._issue(person, options)
        except services.TokenRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stdout.write(
            f"“{issued.name}” of {name}, until {utc_words(issued.expires_at, now=timezone.now())}:"
        )
        self.stdout.write(issued.key)

    @transaction.atomic
    def _issue(self, person: Any, options: dict[str, Any]) -> services.IssuedToken:
        now, by = timezone.now(), services.from_command("issue_token")
        if options["replace"]:
            services.revoke_named(person, options["name"], now=now, by=by)
        return services.add_token(
            person,
            name=options["name"],
            scopes=[TokenScope(word) for word in options["scope"] or ()],
            days=options["days"],
            now=now,
            by=by,
        )
