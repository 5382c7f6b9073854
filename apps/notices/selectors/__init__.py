"""Reads of notices: what was said, where it goes, what became of it."""

from apps.notices.selectors.channels import (
    channel_of,
    channel_rows,
    delivery_page,
    mute_of,
    mute_rows,
    teams_for_channels,
)
from apps.notices.selectors.rows import AnswerRow, ChannelRow, DeliveryRow, MuteRow, NoticeRow
from apps.notices.selectors.said import answers_to, notice_of, notice_page

__all__ = [
    "AnswerRow",
    "ChannelRow",
    "DeliveryRow",
    "MuteRow",
    "NoticeRow",
    "answers_to",
    "channel_of",
    "channel_rows",
    "delivery_page",
    "mute_of",
    "mute_rows",
    "notice_of",
    "notice_page",
    "teams_for_channels",
]
