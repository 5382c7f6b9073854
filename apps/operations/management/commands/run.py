"""`run`: all processes of the portal on one machine, until Ctrl-C."""

import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.operations.management.supervisor import (
    ProcessEnded,
    Stopped,
    Supervisor,
    portal_commands,
    program_path,
    shell,
)


class Command(BaseCommand):
    help = "Run web, two workers, beat and watch; start again what dies."
    requires_system_checks = ()  # they import every page: a second, and 30 MB

    def handle(self, *_: Any, **__: Any) -> None:
        # Unbuffered: a line shows when it is written, and so those of several processes in their
        # order.
        environment = {**os.environ, "PATH": program_path(), "PYTHONUNBUFFERED": "1"}
        try:
            with Supervisor(settings.BASE_DIR, None, environment) as supervisor:
                for name, command in portal_commands().items():
                    supervisor.start(name, shell(command))
                supervisor.wait()
        except Stopped:
            self.stdout.write("Stopped.")
        except ProcessEnded as error:
            raise CommandError(f"{error}, so all stopped; see its last words above") from error
