"""What pages say at the time of a portal's clock, to somebody who may see everything."""

import re
from html import unescape

import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from tests.factories import make_user
from tests.faults.collecting import Collecting

_NO_TEXT = re.compile(r"<script.*?</script>|<style.*?</style>|<[^>]+>", re.DOTALL)


def words_of(page: str) -> str:
    """Return the words of a page, one blank between them."""
    return " ".join(unescape(_NO_TEXT.sub(" ", page)).split())


class PageTexts:
    """Pages of a portal, whose time is that of the simulator."""

    def __init__(self, portal: Collecting, patch: pytest.MonkeyPatch) -> None:
        self._portal, self._patch = portal, patch
        self._client = Client()
        known = User.objects.filter(username="admin").first()
        self._client.force_login(known or make_user("admin", Role.ADMIN))

    def text(self, address: str) -> str:
        """Return the words of a page that must be there, one blank between them."""
        with self._patch.context() as patch:
            patch.setattr("django.utils.timezone.now", self._portal.now)
            response = self._client.get(address)
        assert response.status_code == 200, address
        return words_of(response.content.decode())
