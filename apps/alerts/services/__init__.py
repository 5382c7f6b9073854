"""What the room of alerts does: say once, deliver, keep channels, forget what is old."""

from apps.alerts.services.channels import (
    LONGEST_MUTE,
    MOST_CHANNELS,
    ChannelInput,
    ChannelRefused,
    MuteInput,
    add_channel,
    answer_idle,
    change_channel,
    mute,
    remove_channel,
    silence_alert,
    switch_channel,
    unmute,
)
from apps.alerts.services.delivery import (
    TriedTooSoon,
    deliver,
    page_address,
    pause_tries,
    send_again,
    try_channel,
)
from apps.alerts.services.evaluation import (
    Measurement,
    NewAlert,
    evaluate,
    go_on,
    note_history,
    notify,
)
from apps.alerts.services.reading import mark_all_read, mark_read
from apps.alerts.services.retention import end_names, prune, renew_seals
