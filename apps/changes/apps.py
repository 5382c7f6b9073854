from typing import Any

from django.apps import AppConfig


class ChangesConfig(AppConfig):
    name = "apps.changes"

    def ready(self) -> None:
        """Let the audit hear of what is done to accounts."""
        from apps.accounts.services import noted

        noted.connect(_heard, dispatch_uid="changes.people_audit")


def _heard(*, line: Any, **_: Any) -> None:
    from apps.changes.services.people_audit import hear  # most commands never need this room

    hear(line)
