"""What the room of notices does: say once, deliver, keep channels, forget what is old."""

from apps.alerts.services.channels import (
    LONGEST_MUTE,
    MOST_CHANNELS,
    ChannelRefused,
    Wanted,
    add_channel,
    answer_idle,
    change_channel,
    mute,
    remove_channel,
    switch_channel,
    unmute,
)
from apps.alerts.services.delivering import (
    TriedTooSoon,
    deliver,
    pause_tries,
    send_again,
    try_channel,
)
from apps.alerts.services.evaluate import Measurement, NewAlert, evaluate, go_on, notify
from apps.alerts.services.retention import prune, renew_seals

__all__ = [
    "LONGEST_MUTE",
    "MOST_CHANNELS",
    "ChannelRefused",
    "Measurement",
    "NewAlert",
    "TriedTooSoon",
    "Wanted",
    "add_channel",
    "answer_idle",
    "change_channel",
    "deliver",
    "evaluate",
    "go_on",
    "mute",
    "notify",
    "pause_tries",
    "prune",
    "remove_channel",
    "renew_seals",
    "send_again",
    "switch_channel",
    "try_channel",
    "unmute",
]
