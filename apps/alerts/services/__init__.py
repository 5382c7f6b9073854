"""What the room of alerts does: say once, deliver, keep channels, forget what is old."""

from apps.alerts.services.channels import (
    LONGEST_MUTE,
    MOST_CHANNELS,
    ChannelRefused,
    Silence,
    Wanted,
    add_channel,
    answer_idle,
    change_channel,
    mute,
    prune,
    remove_channel,
    renew_seals,
    switch_channel,
    unmute,
)
from apps.alerts.services.delivery import (
    TriedTooSoon,
    deliver,
    pause_tries,
    send_again,
    try_channel,
)
from apps.alerts.services.evaluation import Measurement, NewAlert, evaluate, go_on, notify
