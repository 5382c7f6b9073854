from typing import Any

from django.apps import AppConfig


class QuotaRequestsConfig(AppConfig):
    name = "apps.quota_requests"

    def ready(self) -> None:
        """Let the audit hear of what is done to accounts."""
        from apps.accounts.services import noted

        noted.connect(_heard, dispatch_uid="quota_requests.people_audit")


def _heard(*, line: Any, **_: Any) -> None:
    from apps.quota_requests.services.audit_log import hear  # most commands never need this room

    hear(line)
