"""Worker: thirteen months of history, the addresses of its pages, and a session to read them.

python -m tests.bench.worker tests.load.history DAYS POD_HOUR_DAYS WORKLOADS
"""

from datetime import UTC, datetime
from typing import Any

from django.test import Client

from apps.accounts.models import User
from tests.bench import history
from tests.bench.pages import addresses


def measure(days: str, pod_hour_days: str, workloads: str) -> dict[str, Any]:
    """Fill the database; return the addresses of each page and a session's cookie."""
    facts = history.write(
        datetime.now(UTC),
        days=int(days),
        pod_hour_days=int(pod_hour_days),
        workloads=int(workloads),
    )
    client = Client()
    client.force_login(User.objects.get(username="bench-pages"))
    cookie = client.cookies["sessionid"]
    return {"pages": addresses(facts), "cookie": f"{cookie.key}={cookie.value}"}
