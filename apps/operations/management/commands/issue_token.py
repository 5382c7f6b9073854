"""`issue_token USER`: the API token of a person, alone on the last line."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from rest_framework.authtoken.models import Token


class Command(BaseCommand):
    help = "Print a person's API token, made where there is none: `Authorization: Token …`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the name to sign in with")
        parser.add_argument(
            "--replace", action="store_true", help="make a new one; the old one stops working"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        people = get_user_model()
        name = options["user"]
        try:
            person = people.objects.get_by_natural_key(name)
        except people.DoesNotExist as error:
            raise CommandError(
                f"nobody signs in as {name!r}: make the account with `person {name} --role …` first"
            ) from error
        if not person.is_active:
            raise CommandError(f"{name!r} is deactivated: the token would not be accepted")
        with transaction.atomic():
            if options["replace"]:
                Token.objects.filter(user=person).delete()
            token, _created = Token.objects.get_or_create(user=person)
        self.stdout.write(token.key)
