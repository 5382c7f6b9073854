"""What the room of notices does: say once, deliver, keep channels, forget what is old."""

from apps.notices.services.channels import (
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
from apps.notices.services.delivering import (
    TriedTooSoon,
    deliver,
    pause_tries,
    send_again,
    try_channel,
)
from apps.notices.services.retention import prune, renew_seals
from apps.notices.services.saying import Measured, Said, go_on, hold, say

__all__ = [
    "LONGEST_MUTE",
    "MOST_CHANNELS",
    "ChannelRefused",
    "Measured",
    "Said",
    "TriedTooSoon",
    "Wanted",
    "add_channel",
    "answer_idle",
    "change_channel",
    "deliver",
    "go_on",
    "hold",
    "mute",
    "pause_tries",
    "prune",
    "remove_channel",
    "renew_seals",
    "say",
    "send_again",
    "switch_channel",
    "try_channel",
    "unmute",
]
