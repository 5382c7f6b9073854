"""Parts of `make load` that need no hour of it."""

import json
import os
from typing import Any

import pytest

from tests.load.__main__ import table
from tests.load.churn import Changes
from tests.load.processes import used
from tests.load.readers import read
from tests.servers import free_port


def test_what_was_used_before_does_not_count() -> None:
    before = used(os.getpid())
    now = used(os.getpid()).since(before)
    assert now.cpu_seconds < before.cpu_seconds
    assert 0 < now.largest_mib <= now.mib


def test_a_watch_goes_on_where_it_ended() -> None:
    changes = Changes(8)
    changes.run(2, 1, lived_seconds=0)
    every = lines(changes, 4_200_000)
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in every]
    assert [one["type"] for one in every] == ["ADDED", "ADDED", "DELETED", "DELETED"]
    assert versions == sorted(set(versions))
    assert lines(changes, versions[1]) == every[2:]


def lines(changes: Changes, version: int) -> list[Any]:
    return [json.loads(line) for line in next(changes.after(version, 60)).splitlines()]


def test_an_unanswered_page_ends_the_readers() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RuntimeError, match="home"):
        read(url, "", {"home": ["/"]}, readers=2, seconds=60)


def test_growth_is_shown_beside_both() -> None:
    shown = table({"tenth": {"CPU, s": 2.0}, "whole": {"CPU, s": 30.0}})
    assert shown.splitlines()[-1] == "| CPU, s | 2 | 30 | 15.0 × |"
