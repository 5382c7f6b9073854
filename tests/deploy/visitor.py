"""A person whose browser reaches a web pod through the ingress, and a program with a token."""

import http.client
import json
import re
from typing import Any
from urllib.parse import urlencode

from tests.deploy.installation import HOST
from tests.deploy.pods import Pod

_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
_SECONDS = 60.0


class Visitor:
    """Asks a web pod as an ingress does that ends TLS: with the host, and from whom it came."""

    def __init__(self, web: Pod, token: str = "") -> None:
        self._web = web
        self.token = token
        self.cookies: dict[str, str] = {}

    def ask(
        self, verb: str, path: str, body: str = "", kind: str = "", *, https: bool = True
    ) -> tuple[int, str, dict[str, str]]:
        """Return status, text and headers."""
        headers = {
            "Host": HOST,
            "X-Forwarded-Proto": "https" if https else "http",
            "X-Forwarded-For": "203.0.113.7",
            "Referer": f"https://{HOST}/",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
        }
        if kind:
            headers["Content-Type"] = kind
        if self.token and path.startswith("/api/"):
            headers["Authorization"] = f"Token {self.token}"
        connection = http.client.HTTPConnection(
            self._web.address, self._web.port("http"), timeout=_SECONDS
        )
        try:
            connection.request(verb, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        for line in response.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response.status, text, dict(response.headers)

    def page(self, path: str) -> str:
        """Return a page, which has to be there."""
        status, text, _ = self.ask("GET", path)
        assert status == 200, (path, status, text[:2000])
        return text

    def post(self, path: str, form_of: str, **form: str) -> str:
        """Send the form of a page; return where it leads to."""
        found = _TOKEN.search(self.page(form_of))
        assert found is not None
        body = urlencode({**form, "csrfmiddlewaretoken": found[1]})
        status, text, headers = self.ask("POST", path, body, "application/x-www-form-urlencoded")
        assert status == 302, (path, status, text[-2000:])
        return headers["Location"]

    def api(self, verb: str, path: str, body: Any = None) -> Any:
        """Return what the API answers."""
        text = "" if body is None else json.dumps(body)
        status, answer, _ = self.ask(verb, f"/api/v1/{path}", text, "application/json")
        assert status in {200, 201}, (path, status, answer)
        return json.loads(answer)
