"""The services of Apprise that post to chats and webhooks, made of the parts of an address.

Apprise can be given an address as it is, and then takes its options from the query: a template to
be fetched from anywhere or read from the disk, certificates that are not checked. So nothing of
an address is handed on but what is listed here.
"""

from typing import Any

import apprise
from apprise.plugins.base import NotifyBase
from apprise.plugins.custom_json import NotifyJSON
from apprise.plugins.slack import NotifySlack
from apprise.plugins.workflows import NotifyWorkflows

from apps.alerts.domain.channels import (
    AddressRefused,
    ChannelKind,
    slack_tokens,
    teams_workflow,
    webhook_parts,
)

# No redirects: they could lead to where the address itself may not. Seconds to connect and read.
_LIMITS = {"redirect": "no", "cto": "5", "rto": "10"}
_PLAIN = {"include_image": False, "include_footer": False}
_ASSET = apprise.AppriseAsset(app_id="gpuportal", app_desc="gpuportal", app_url="")


class TeamsCard(NotifyWorkflows):  # type: ignore[no-untyped-call]
    """A card of Teams that shows each line as it is, and what is a link as a link.

    Blocks of text are Markdown to Teams, and Apprise escapes each full stop for it, also in
    links; runs of text are none.
    """

    notify_format = apprise.NotifyFormat.TEXT

    def gen_payload(
        self, body: str, title: str = "", notify_type: object = None, **_: object
    ) -> dict[str, Any]:
        head = _block({"type": "TextRun", "text": title, "weight": "Bolder", "size": "Large"})
        lines = [_block(_run(line)) for line in body.splitlines() if line.strip()]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": self.adaptive_card_version,
            "body": [head, *lines],
            "msteams": {"width": "full"},
        }
        content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        return {"type": "message", "attachments": [content]}


def _block(run: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [run], "spacing": "Small"}


def _run(line: str) -> dict[str, Any]:
    word = line.strip()
    if word.startswith(("https://", "http://")) and " " not in word:
        opens = {"type": "Action.OpenUrl", "url": word}
        return {"type": "TextRun", "text": word, "selectAction": opens}
    return {"type": "TextRun", "text": line}


def service(kind: ChannelKind, address: str, message_id: str) -> NotifyBase:
    """Return what posts to an address. Raises AddressRefused where it is none of that kind's."""
    made: type[NotifyBase]
    parts: dict[str, object]
    if kind is ChannelKind.SLACK:
        a, b, c = slack_tokens(address)
        made, parts = NotifySlack, {"token_a": a, "token_b": b, "token_c": c, "format": "text"}
    elif kind is ChannelKind.TEAMS:
        made, parts = TeamsCard, {"secure": True, **teams_workflow(address)}
    elif kind is ChannelKind.WEBHOOK:
        # The id is the same for a copy, by which a receiver can know it for one.
        told = {"id": message_id} if message_id else {}
        made, parts = NotifyJSON, {"payload": told, "format": "text", **webhook_parts(address)}
    else:
        raise AddressRefused("This is no address of a chat or a webhook.")
    return made(**parts, **_PLAIN, **_LIMITS, asset=_ASSET)
