"""What somebody sees in the portal while a store is away: an outage as such, and never a zero."""

from django.test import Client

from apps.accounts.domain.identity import Role
from apps.usage.models import PodHour, TierHour
from tests.factories import make_user


class Pages:
    """What an administrator sees who is signed in."""

    def __init__(self) -> None:
        self.client = Client(raise_request_exception=False)
        self.client.force_login(make_user("root", Role.ADMIN))

    def while_away(self) -> None:
        for path in ("/", "/capacity/tiers/", "/admin/data-quality/"):
            answer = self.client.get(path)
            text = answer.content.decode()
            assert (answer.status_code, answer["Retry-After"]) == (503, "10")
            assert "Database unavailable" in text
            assert "Traceback" not in text
        ready = self.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
        assert self.client.get("/api/v1/clusters").status_code == 503

    def before_any_hour(self) -> None:
        assert not PodHour.objects.exists()
        assert not TierHour.objects.exists()
        assert "No hour has been collected yet." in self.client.get("/").content.decode()
        assert self.client.get("/readyz").status_code == 200

    def reasons(self) -> str:
        """Return the page that says of each hour why it has no facts."""
        page = "/admin/data-quality/?first=2026-10-01&last=2026-10-01&tab=calendar"
        return self.client.get(page).content.decode()
