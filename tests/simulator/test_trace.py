"""Reading a trace: what is kept of it, how it repeats, and what is refused."""

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from simulator.fleet import DAY
from simulator.scenarios.helios import Helios
from simulator.scenarios.trace import Level, TraceError, read_trace

HEADER = "time,vc,total_gpu_num,running_gpu_num,pending_gpu_num"


def write(path: Path, minutes: list[dict[str, tuple[int, int, int]]]) -> Path:
    """Write one row per minute and team: (quota, running, pending)."""
    start = datetime(2020, 1, 6, tzinfo=UTC)
    lines = [HEADER]
    for number, teams in enumerate(minutes):
        time = (start + timedelta(minutes=number)).strftime("%Y-%m-%d %H:%M:%S")
        lines += [f"{time},{team},{q},{r},{p}" for team, (q, r, p) in teams.items()]
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_only_changes_are_kept(tmp_path: Path, name: str) -> None:
    path = write(
        tmp_path / name, [{"A": (8, 1, 0)}, {"A": (8, 1, 0)}, {"A": (8, 2, 3)}, {"A": (6, 2, 3)}]
    )

    trace = read_trace(path)

    assert trace.minutes == 4
    assert trace.teams == {
        "A": [Level(0, 8, 1, 0, 0, 0), Level(2, 8, 2, 3, 0, 0), Level(3, 6, 2, 3, 0, 0)]
    }
    assert trace.quota("A") == 8


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 4, [(0, 1), (2, 2), (3, 4)]),
        (1, 3, [(1, 1), (2, 2)]),
        (2, 3, [(2, 2)]),
        (3, 4, [(3, 4)]),
    ],
)
def test_a_part_starts_with_what_was_so_at_its_start(
    tmp_path: Path, start: int, end: int, expected: list[tuple[int, int]]
) -> None:
    running = [1, 1, 2, 4]
    trace = read_trace(write(tmp_path / "t.csv", [{"A": (8, r, 0)} for r in running]))

    found = [(level.minute, level.running) for level in trace.part("A", start, end)]

    assert found == expected


@pytest.mark.parametrize(
    ("minutes", "repeat"),
    [(100, 100), (1440, 1440), (3000, 2880), (10_080, 10_080), (34_560, 30_240)],
)
def test_a_trace_repeats_by_whole_weeks_or_days(tmp_path: Path, minutes: int, repeat: int) -> None:
    trace = read_trace(write(tmp_path / "t.csv", [{"A": (8, 1, 0)}] * minutes))

    assert trace.repeat_minutes == repeat


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        pytest.param([], "line 1: no column time, vc", id="empty"),
        pytest.param(["time,vc,total_gpu_num"], "running_gpu_num, pending", id="columns"),
        pytest.param([HEADER, "2020-01-01 00:00:00,A,8,1"], "line 2", id="short row"),
        pytest.param([HEADER, "2020-01-01 00:00:00,A,8,x,0"], "line 2.*'x'", id="not a number"),
        pytest.param([HEADER, "2020-01-01 00:00:00,A,8,-1,0"], "negative", id="negative"),
        pytest.param([HEADER, "noon,A,8,1,0"], "line 2.*noon", id="time"),
        pytest.param(
            [HEADER, "2020-01-01 00:00:00,A,8,1,0", "2020-01-01 00:02:00,A,8,1,0"],
            "line 3.*minute 1 was due",
            id="gap",
        ),
        pytest.param(
            [HEADER, "2020-01-01 00:00:00,A,8,1,0", "2020-01-01 00:00:00,A,8,1,0"],
            "line 3",
            id="twice",
        ),
        pytest.param(
            [HEADER, "2020-01-01 00:00:00,A,8,1,0", "2020-01-01 00:00:30,A,8,1,0"],
            "whole minute",
            id="half minute",
        ),
        pytest.param(
            [HEADER, "2020-01-01 00:00:00,A,8,1,0", "2020-01-01 00:00:00,a,8,1,0"],
            "upper and lower case",
            id="names",
        ),
        pytest.param(
            [
                HEADER,
                "2020-01-01 00:00:00,A,8,1,0",
                "2020-01-01 00:00:00,B,8,1,0",
                "2020-01-01 00:01:00,A,8,1,0",
            ],
            "same number of minutes",
            id="one team shorter",
        ),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused(
    tmp_path: Path, lines: list[str], says: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines), encoding="utf-8")

    with pytest.raises(TraceError, match=says):
        read_trace(path)


def test_a_file_that_is_not_there_or_not_gzip_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "t.csv.gz"
    broken.write_bytes(b"not gzip")

    for path in (broken, tmp_path / "none.csv"):
        with pytest.raises(TraceError, match=path.name):
            read_trace(path)


def test_another_trace_makes_another_cluster(tmp_path: Path) -> None:
    days = [{"A": (12, 3, 1), "b": (5, 5, 0)}] * 700 + [{"A": (10, 2, 0), "b": (5, 0, 2)}] * 740
    trace = read_trace(write(tmp_path / "t.csv", days))
    origin = 1_790_812_800

    scenario = Helios(seed=1, origin=origin, trace=trace)

    epoch = scenario.epoch_at(origin)
    assert epoch is not None
    assert [len(node.devices) for node in scenario.nodes] == [8, 4, 5]
    assert [epoch.hard["a"].at(origin + 60 * m) for m in (0, 699, 700)] == [12, 12, 10]
    assert [epoch.used["b"].at(origin + 60 * m) for m in (0, 700)] == [5, 2]
    late = scenario.epoch_at(origin + 3 * DAY)
    assert late is not None
    assert late.used["a"].at(origin + 3 * DAY) == 4
