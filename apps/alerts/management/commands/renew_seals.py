"""`renew_seals`: read what the old secret key sealed, and seal it under the present one."""

from typing import Any

from django.core.management.base import BaseCommand

from apps.alerts.services import renew_seals


class Command(BaseCommand):
    help = (
        "Seal addresses of channels under GPUPORTAL_SECRET_KEY now, which beat does once a day. "
        "After it GPUPORTAL_SECRET_KEY_OLD opens no address any more."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        self.stdout.write(f"{renew_seals()} addresses sealed under the present key.")
