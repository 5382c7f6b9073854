"""What arrives at chats and webhooks, and that an address has the portal do nothing else."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from apprise.plugins.slack import NotifySlack

from apps.alerts.adapters.messenger import PortalMessenger
from apps.alerts.domain.channels import AddressRefused, ChannelKind, checked
from apps.alerts.domain.digests import Message
from apps.alerts.ports import NotDelivered
from tests.alerts.servers import WebServer, running, secured

HERE = PortalMessenger(sender="a@b.org", allowed=["127.0.0.1", "hooks.slack.com"])
SLACK = "https://hooks.slack.com/services/T01234567/B01234567/abcdefghijkl"
TEAMS = (
    "https://default0a.0b.environment.api.powerplatform.com/powerautomate/automations/direct"
    "/workflows/0123abc/triggers/manual/paths/invoke?api-version=1&sp=%2Ftriggers&sig=a-b_c"
)
LINK = "https://gpu.example.org/workloads/west/a_b/Job/x/?a=1&b=2"
HOSTILE = Message(
    "ns/a_b holds 4 GPUs & waits <!channel>",
    "* ben: <!channel> <https://evil.example|see> [see](https://evil.example) <at>boss</at>\n"
    f"  1 < 2 *bold* _b_\n{LINK}\n",
    "<abc@example.org>",
)


def test_slack_shows_title_text_and_link_and_nobody_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(WebServer()) as server:
        monkeypatch.setattr(NotifySlack, "webhook_url", server.url("/services"))
        HERE.send(ChannelKind.SLACK, SLACK, HOSTILE)
    ((path, body),) = server.got
    assert path == "/services/T01234567/B01234567/abcdefghijkl"
    (shown,) = body["attachments"]
    assert shown["title"] == "ns/a_b holds 4 GPUs &amp; waits &lt;!channel&gt;"
    assert "&lt;!channel&gt; &lt;https://evil.example|see&gt; [see]" in shown["text"]
    assert shown["text"].splitlines()[-1] == LINK.replace("&", "&amp;")
    assert body["mrkdwn"] is False
    # Nothing is loaded from a third party to show it.
    assert "github" not in str(body)


@pytest.fixture
def teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    server = WebServer()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secured(server, tmp_path)))
    monkeypatch.setattr("apps.alerts.domain.channels._TEAMS", ("127.0.0.1",))
    return server


def at(server: WebServer, address: str) -> str:
    return address.replace(
        "default0a.0b.environment.api.powerplatform.com", f"127.0.0.1:{server.server_port}"
    )


def test_teams_shows_each_line_as_it_is_and_links_as_links(teams: WebServer) -> None:
    with running(teams) as server:
        server.status = 202
        HERE.send(ChannelKind.TEAMS, at(server, TEAMS), HOSTILE)
    ((path, body),) = teams.got
    assert path.startswith(
        "/powerautomate/automations/direct/workflows/0123abc/triggers/manual/paths/invoke?"
    )
    assert "sig=a-b_c" in path
    (card,) = (one["content"] for one in body["attachments"])
    runs: list[dict[str, Any]] = [run for block in card["body"] for run in block["inlines"]]
    assert [run["text"] for run in runs] == [HOSTILE.subject, *HOSTILE.text.splitlines()]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert runs[-1]["selectAction"] == {"type": "Action.OpenUrl", "url": LINK}
    assert "entities" not in str(card)


def test_a_webhook_is_told_by_which_a_copy_is_known() -> None:
    with running(WebServer()) as server:
        HERE.send(ChannelKind.WEBHOOK, server.url("/a%2Fb/c?room=a&room=b&x="), HOSTILE)
    ((path, body),) = server.got
    assert path == "/a%2Fb/c?room=a&room=b&x="
    assert (body["id"], body["title"]) == ("<abc@example.org>", HOSTILE.subject)
    assert body["message"].rstrip() == HOSTILE.text.rstrip()


@pytest.mark.parametrize(
    "more",
    ["template={}", "blocks=yes&template={}", "mode=bot", "verify=no", "to=%23other", "tags=x"],
)
@pytest.mark.parametrize(("kind", "address"), [("slack", f"{SLACK}?"), ("teams", f"{TEAMS}&")])
def test_what_an_address_adds_is_not_done(
    teams: WebServer,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    address: str,
    more: str,
) -> None:
    """Apprise fetches a template from anywhere, or reads a file: an address shall not say so."""
    with running(WebServer()) as inside, running(teams) as server:
        monkeypatch.setattr(NotifySlack, "webhook_url", server.url("/services"))
        written = at(server, address) + more.format(inside.url("/metadata"))
        with suppress(NotDelivered):
            HERE.send(ChannelKind(kind), written, HOSTILE)
    assert (inside.fetched, inside.got) == ([], [])
    assert all("verify" not in path and "template" not in path for path, _ in server.got)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("slack", f"{SLACK}?template=http://127.0.0.1/"),
        ("slack", "https://hooks.slack.com/services/T0/B0/a-b"),
        ("slack", "https://hooks.slack.com:8443/services/T0/B0/ab"),
        ("teams", "https://example.webhook.office.com/webhookb2/a"),
        ("teams", TEAMS.replace("sig=", "gis=")),
        ("teams", f"https://{'a' * 64}.logic.azure.com{TEAMS[TEAMS.index('/workflows') :]}"),
        ("webhook", f"https://{'a' * 64}.example.org/"),
        ("webhook", "https://example..org/"),
        ("webhook", "https://exa\\mple.org/"),
        ("webhook", "https://ex ample.org/"),
        ("webhook", "https://example.org/a\r\nX: y"),
    ],
)
def test_an_address_that_cannot_be_called_is_refused_when_it_is_written(
    kind: str, written: str
) -> None:
    with pytest.raises(AddressRefused):
        checked(ChannelKind(kind), written)


@pytest.mark.parametrize("host", ["a" * 64 + ".example.org", "..example.org"])
def test_a_host_that_is_no_name_is_no_crash(host: str) -> None:
    with pytest.raises(NotDelivered, match="no host's name"):
        HERE.send(ChannelKind.WEBHOOK, f"https://{host}/", HOSTILE)


@pytest.mark.parametrize("answers", [True, False])
def test_no_log_tells_the_secret_part_of_an_address(
    caplog: pytest.LogCaptureFixture, answers: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    server = WebServer()
    if answers:
        with running(server):
            HERE.send(ChannelKind.WEBHOOK, server.url(), HOSTILE)
    else:
        server.server_close()
        with pytest.raises(NotDelivered):
            HERE.send(ChannelKind.WEBHOOK, server.url(), HOSTILE)
    assert "secret-part" not in caplog.text
