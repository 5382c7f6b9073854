"""Trying again, and recognising a copy."""

from datetime import UTC, datetime

import pytest

from apps.alerts.domain.digests import RETRY_DELAYS, message_id, retry_at

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_a_delivery_is_tried_again_ever_later_and_then_given_up() -> None:
    times = [retry_at(failures, NOON) for failures in range(1, len(RETRY_DELAYS) + 2)]
    assert times[0] == NOON + RETRY_DELAYS[0]
    assert times[:-1] == sorted(t for t in times if t is not None)
    assert times[-1] is None


def test_what_did_not_fail_is_not_tried_again() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        retry_at(0, NOON)


def test_a_copy_of_a_message_has_the_same_id() -> None:
    one = message_id(["a", "b"], recipient="ada@example.org", host="portal.example.org")
    assert one == message_id(["b", "a"], recipient="ada@example.org", host="portal.example.org")
    assert one != message_id(["a"], recipient="ada@example.org", host="portal.example.org")
    assert one != message_id(["a", "b"], recipient="ben@example.org", host="portal.example.org")
    assert one.startswith("<")
    assert one.endswith("@portal.example.org>")
