"""Reads of alerts: what was said, where it goes, what became of it."""

from apps.alerts.selectors.alerts import alert_of, alert_page, answers_to
from apps.alerts.selectors.channels import (
    channel_of,
    channel_rows,
    delivery_page,
    mute_of,
    mute_rows,
    teams_for_channels,
)
from apps.alerts.selectors.rows import AlertRow, AnswerRow, ChannelRow, DeliveryRow, MuteRow
