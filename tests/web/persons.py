"""My workloads of a portal that keeps who is behind its pods: how tests read them."""

from collections.abc import Mapping

from django.test import Client
from django.utils import timezone

from apps.alerts.domain.alerts import AlertKind
from apps.alerts.models import Alert, AlertState
from apps.alerts.services import NewAlert, notify
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import records_of

ADDRESS = "/my/workloads/"
WORKLOAD = "/workloads/west/vision/Job/train/"
TRAIN = "workload:west/vision/Job/train"


def statuses(clients: Mapping[str, Client], address: str) -> dict[str, int]:
    return {role: client.get(address).status_code for role, client in clients.items()}


def rows_of(client: Client, query: str = HOURLY) -> list[dict[str, str]]:
    return records_of(client, f"{ADDRESS}?{query}&format=csv&table=work")


def work(client: Client, query: str = HOURLY) -> set[str]:
    return {f"{row['namespace']}/{row['workload']}" for row in rows_of(client, query)}


def idle(portal: Portal) -> Alert:
    """Say that vision's Job is idle, as the alerts do."""
    now = timezone.now()
    said = NewAlert(
        AlertKind.IDLE, TRAIN, portal.vision.pk, "vision/train holds 6 GPUs idle", "Stop it.",
        occasion=("once",),
    )  # fmt: skip
    notify([said], now=now, zone=portal.zone)
    AlertState.objects.create(kind="idle", subject=TRAIN, level=12, said_at=now)
    return Alert.objects.get(subject=TRAIN)
