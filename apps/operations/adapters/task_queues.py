"""How many tasks are in Celery's queues, and since when, asked of the broker itself."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from celery import current_app
from kombu.exceptions import KombuError

from gpuportal.redis_errors import redis_errors

_SECONDS = 2


class BrokerUnavailable(Exception):
    """The broker did not tell of its queues."""


class QueueDepth(NamedTuple):
    """Tasks in a queue; `oldest` is when the first of them was sent, Unix seconds."""

    messages: int
    oldest: float | None


def queue_depths() -> dict[str, QueueDepth]:
    """Return the queues of this installation by name. Raises BrokerUnavailable."""
    try:
        return _depths()
    except redis_errors(OSError, KombuError) as error:
        raise BrokerUnavailable(str(error)) from error


def _depths() -> dict[str, QueueDepth]:
    with current_app.connection_for_read(connect_timeout=_SECONDS) as connection:
        names = _queue_names()
        if connection.transport_cls == "filesystem":
            return _of_files(names)
        # Not `queue_declare`, which would make unused queues.
        channel = connection.default_channel
        return {name: _of_redis(channel, name) for name in names}


def _queue_names() -> set[str]:
    conf = current_app.conf
    routed = (conf.task_routes or {}).values() if isinstance(conf.task_routes, dict) else ()
    names = {one["queue"] for one in routed if isinstance(one, dict) and "queue" in one}
    return names | set(current_app.amqp.queues)


def _of_redis(channel: Any, name: str) -> QueueDepth:
    """Return the length of the lists of a queue, one for each priority.

    Senders push to the left of a list, workers pop from its right.
    """
    keys = [channel._q_for_pri(name, priority) for priority in channel.priority_steps]
    lengths = {key: int(channel.client.llen(key)) for key in keys}
    sent = (_sent_at(channel.client.lindex(key, -1)) for key, length in lengths.items() if length)
    return QueueDepth(
        sum(lengths.values()), min((at for at in sent if at is not None), default=None)
    )


def _sent_at(message: bytes | None) -> float | None:
    # Taken meanwhile; or of the version before, which has no time.
    headers = (json.loads(message).get("headers") or {}) if message else {}
    sent_at = headers.get("sent_at")
    return float(sent_at) if sent_at is not None else None


def _of_files(names: set[str]) -> dict[str, QueueDepth]:
    """Return the messages in a folder, a file each: TIME_UUID.QUEUE.msg."""
    folder = Path(current_app.conf.broker_transport_options["data_folder_in"])
    times: dict[str, list[float]] = defaultdict(list)
    for path in folder.glob("*.msg"):
        try:
            times[path.name.split(".")[1]].append(path.stat().st_mtime)
        except FileNotFoundError:  # a worker took it meanwhile
            continue
    return {
        name: QueueDepth(len(times[name]), min(times[name], default=None))
        for name in sorted(names | times.keys())
        if "pidbox" not in name
    }
