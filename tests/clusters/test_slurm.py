"""The job log of a Slurm cluster: host lists, rows of sacct, and jobs as pods."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps as django_apps
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.adapters.slurm.job_log import COLUMNS, LogRejected, account_namespace, jobs_of
from apps.clusters.adapters.slurm.node_events import NodeEvent, spans_of
from apps.clusters.adapters.slurm.source import JOB_KIND, SlurmSource
from apps.clusters.domain.host_lists import hosts_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.ports import SourceRejected, SourceUnavailable
from tests.factories import make_cluster, make_pod, make_workload

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = Window(NOON, NOON + timedelta(hours=1))
T0 = int(NOON.timestamp())
DAY = 86_400
MODEL = "NVIDIA-A100-SXM4-80GB"
ENTRY = {"nodes": [{"names": "gpu[01-02]", "gpus": 8, "model": MODEL}]}

JOB = {
    "JobIDRaw": "100",
    "JobName": "train",
    "Account": "Vision_Lab",
    "Partition": "a100",
    "QOS": "normal",
    "Submit": str(T0 - 600),
    "Start": str(T0),
    "End": str(T0 + 1800),
    "State": "COMPLETED",
    "ReqTRES": "cpu=8,gres/gpu=4,mem=64G,node=1",
    "AllocTRES": "billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=64G,node=1",
    "NodeList": "gpu01",
}


def row(**fields: str) -> str:
    return "|".join((JOB | fields)[name] for name in COLUMNS)


def log(*rows: str) -> str:
    return "\n".join(["|".join(COLUMNS), *rows]) + "\n"


WriteLog = Callable[..., SlurmSource]


@pytest.fixture
def source(tmp_path: Path) -> WriteLog:
    def written(*rows: str, at: int = T0 + 7200, name: str = "jobs.psv") -> SlurmSource:
        path = tmp_path / name
        path.write_text(log(*rows), encoding="utf-8")
        os.utime(path, (at, at))
        entry: dict[str, Any] = {**ENTRY, "jobs": str(tmp_path / "*.psv")}
        return SlurmSource.from_config(entry)

    return written


# ---------------------------------------------------------------- host lists


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[08-10]", ["gpu08", "gpu09", "gpu10"]),
        ("gpu[1,3-4],login", ["gpu1", "gpu3", "gpu4", "login"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
    ],
)
def test_host_lists_are_read_as_slurm_writes_them(text: str, hosts: list[str]) -> None:
    assert hosts_of(text) == hosts


@pytest.mark.parametrize(
    "text", ["", "gpu[", "gpu]", "gpu[3-1]", "gpu[a]", "a,,b", "gpu[[1]]", "gpu[1-9999999]"]
)
def test_other_texts_are_no_host_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|do not match|more than"):
        hosts_of(text)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20, unique=True))
def test_numbers_keep_their_width(numbers: list[int]) -> None:
    listed = ",".join(f"{number:03d}" for number in numbers)
    assert hosts_of(f"gpu[{listed}]") == [f"gpu{number:03d}" for number in numbers]


# ---------------------------------------------------------------- rows


def test_gpus_count_in_total_or_by_type() -> None:
    by_type = row(JobIDRaw="101", AllocTRES="cpu=1,gres/gpu:a100=2,gres/gpu:h100=1")
    without = row(JobIDRaw="102", AllocTRES="cpu=1", ReqTRES="cpu=1")
    step = row(JobIDRaw="100.batch")
    jobs, strange, _ = jobs_of(log(row(), by_type, without, step), ZoneInfo("UTC"))
    assert [(job.id, job.gpus) for job in jobs] == [("100", 4), ("101", 3)]
    assert strange == []


def test_local_times_are_those_of_the_zone() -> None:
    local = row(Submit="2026-11-20T12:50:00", Start="2026-11-20T13:00:00", End="Unknown")
    (job,), *_ = jobs_of(log(local), ZoneInfo("Europe/Berlin"))
    assert (job.submitted, job.started, job.ended) == (T0 - 600, T0, None)


def test_the_name_of_a_job_may_hold_the_mark_between_fields() -> None:
    (job,), strange, _ = jobs_of(log(row(JobName="a|b|c")), ZoneInfo("UTC"))
    assert (job.name, job.account, strange) == ("a|b|c", "vision-lab", [])


def test_a_job_that_was_canceled_while_it_was_pending_never_started() -> None:
    gone = row(State="CANCELLED by 1000", AllocTRES="", NodeList="None assigned")
    (job,), *_ = jobs_of(log(gone), ZoneInfo("UTC"))
    assert (job.started, job.ended, job.state) == (None, T0 + 1800, "CANCELLED")


def test_strange_lines_hide_no_other() -> None:
    rows = (row(Submit="yesterday"), "1|2", row(AllocTRES="gres/gpu=many"), row())
    jobs, strange, _ = jobs_of(log(*rows), ZoneInfo("UTC"))
    assert [job.id for job in jobs] == ["100"]
    assert [line.partition(":")[0] for line in strange] == ["line 2", "line 3", "line 4"]


@pytest.mark.parametrize("text", ["", "JobID|State\n1|COMPLETED\n"])
def test_a_file_without_the_columns_says_how_to_write_one(text: str) -> None:
    with pytest.raises(LogRejected, match="has no column JobIDRaw: write it with sacct"):
        jobs_of(text, ZoneInfo("UTC"))


def test_accounts_become_namespaces_of_the_catalog() -> None:
    assert account_namespace("Vision_Lab.2") == "vision-lab-2"
    assert account_namespace("(null)") == "null"
    assert account_namespace("") == "none"


# ---------------------------------------------------------------- pods


def test_a_job_holds_its_gpus_from_start_to_end(source: WriteLog) -> None:
    answer = source(row()).ledger(HOUR)
    (pod,) = answer.pods
    assert (pod.created, pod.bound, pod.finished) == (T0 - 600, T0, T0 + 1800)
    assert (pod.namespace, pod.node, pod.requests) == ("vision-lab", "gpu01", {"nvidia.com/gpu": 4})
    assert pod.ran(HOUR.end_seconds) == ((T0, T0 + 1800),)
    assert [node.node for node in answer.nodes] == ["gpu01", "gpu02"]
    assert all(answer.covered.values())


def test_a_job_on_several_nodes_is_a_gang_of_a_pod_on_each(source: WriteLog) -> None:
    tres = "gres/gpu=16,node=2"
    wide = row(JobIDRaw="200", AllocTRES=tres, NodeList="gpu[01-02]")
    pods = source(wide).ledger(HOUR).pods
    assert [(pod.uid, pod.node, pod.requests["nvidia.com/gpu"], pod.gang) for pod in pods] == [
        ("slurm-200", "gpu01", 8.0, "200"),
        ("slurm-200-1", "gpu02", 8.0, "200"),
    ]


def test_a_pending_job_holds_nothing_and_keeps_its_name_when_it_starts(source: WriteLog) -> None:
    pending = row(Start="Unknown", End="Unknown", State="PENDING", AllocTRES="", NodeList="")
    (before,) = source(pending).ledger(HOUR).pods
    (after,) = source(row(End="Unknown"), at=T0 + 7300).ledger(HOUR).pods
    assert (before.uid, before.bound, before.node) == ("slurm-100", None, "")
    assert (after.uid, after.bound, after.finished) == ("slurm-100", T0, None)


def test_the_file_that_was_written_last_knows_best(source: WriteLog) -> None:
    source(row(End="Unknown", State="RUNNING"), at=T0 + 100, name="z-old.psv")
    answer = source(row(), name="a-new.psv").ledger(HOUR)
    assert [pod.finished for pod in answer.pods] == [T0 + 1800]


def test_a_job_that_ended_while_no_file_was_written_does_not_run_for_ever(
    source: WriteLog,
) -> None:
    running = row(End="Unknown", State="RUNNING")
    waits = row(JobIDRaw="101", Start="Unknown", End="Unknown", State="PENDING", NodeList="")
    source(running, waits, at=T0 + 100, name="monday.psv")
    # Files of two days would have it: this one is of another partition.
    (still, _) = source(at=T0 + 2 * DAY, name="late.psv").ledger(HOUR).pods
    assert still.ran(HOUR.end_seconds) == ((T0, HOUR.end_seconds),)
    after = source(row(JobIDRaw="102"), at=T0 + 5 * 86_400, name="saturday.psv").ledger(HOUR)
    lost, gone, ended = after.pods
    assert lost.ran(HOUR.end_seconds) == ((T0, T0 + 100),)
    # Nothing tells that its work failed.
    assert (lost.ended, lost.finished, lost.end_reason) == (T0 + 100, None, "")
    assert (gone.ended, gone.bound) == (T0 + 100, None)
    assert ended.end_reason == "Completed"
    assert after.warnings == (
        "2 jobs went while no file was written, and the end is not known (100, 101): write a file "
        "that has that time",
    )
    # A file of that time tells: it need not be the last.
    source(row(End=str(T0 + 1800)), at=T0 + 86_400, name="tuesday.psv")
    told = source(row(JobIDRaw="102"), at=T0 + 5 * 86_400, name="saturday.psv").ledger(HOUR)
    assert [pod.ended for pod in told.pods] == [T0 + 1800, T0 + 100, T0 + 1800]


def test_the_file_of_a_partition_loses_no_job_of_another(source: WriteLog) -> None:
    running = row(End="Unknown", State="RUNNING")
    other = row(JobIDRaw="7", Partition="h100", End="Unknown", State="RUNNING")
    # Pending in both: what the file of one no longer has may run in the other.
    either = row(
        JobIDRaw="8",
        Partition="a100,h100",
        Start="Unknown",
        End="Unknown",
        NodeList="",
        AllocTRES="",
    )
    source(running, at=T0 + 7200, name="a100.psv")
    source(other, either, at=T0 + 2 * 86_400, name="h100.psv")
    found = source(other, at=T0 + 5 * 86_400, name="h100.psv").ledger(HOUR)
    assert {pod.uid: pod.ended for pod in found.pods} == {"slurm-100": None, "slurm-7": None}
    source(other, either, at=T0 + 2 * 86_400, name="h100-old.psv")
    kept = source(other, at=T0 + 5 * 86_400, name="h100.psv").ledger(HOUR)
    assert {pod.uid: pod.ended for pod in kept.pods} == {
        **dict.fromkeys(("slurm-100", "slurm-7", "slurm-8")),
    }
    assert not kept.warnings
    # The next file of its own partition tells that it went, and one of all partitions does.
    source(row(JobIDRaw="9"), at=T0 + 4 * 86_400, name="a100-new.psv")
    told = source(other, at=T0 + 5 * 86_400, name="h100.psv").ledger(HOUR)
    assert {pod.uid: pod.ended for pod in told.pods}["slurm-100"] == T0 + 7200
    whole = source(other, row(JobIDRaw="9"), at=T0 + 9 * 86_400, name="whole.psv").ledger(HOUR)
    assert {pod.uid: pod.ended for pod in whole.pods}["slurm-8"] == T0 + 2 * 86_400


_PARTITIONS = ("a100", "h100", "l4")


@given(
    st.lists(
        st.tuples(st.sampled_from(_PARTITIONS), st.integers(0, 4 * DAY), st.integers(60, 6 * DAY)),
        min_size=1,
        max_size=8,
    ),
    st.lists(
        st.tuples(st.sampled_from(_PARTITIONS), st.integers(DAY, 6 * DAY)), min_size=1, max_size=8
    ),
)
def test_a_job_that_runs_in_the_last_file_of_its_partition_never_ends(
    jobs: list[tuple[str, int, int]], files: list[tuple[str, int]]
) -> None:
    """Each file has all jobs of its partition of two days; they are written at any times."""
    runs: set[str] = set()
    with TemporaryDirectory() as folder:
        # The last one names a job always, and is after all others.
        jobs = [*jobs, ("a100", 0, 9 * DAY)]
        files = [*files, ("a100", 7 * DAY)]
        for number, (partition, written) in enumerate(sorted(files, key=lambda one: one[1])):
            there = [
                (f"{place}", start, start + length if start + length <= written else None)
                for place, (of, start, length) in enumerate(jobs)
                if of == partition and start <= written and start + length > written - 2 * DAY
            ]
            runs -= {f"{place}" for place, (of, *_) in enumerate(jobs) if of == partition}
            runs |= {name for name, _, end in there if end is None}
            rows = [
                row(JobIDRaw=name, Partition=partition, Submit=f"{T0 + start}",
                    Start=f"{T0 + start}", End="Unknown" if end is None else f"{T0 + end}")
                for name, start, end in there
            ]  # fmt: skip
            path = Path(folder) / f"{partition}-{number}.psv"
            path.write_text(log(*rows), encoding="utf-8")
            os.utime(path, (T0 + written, T0 + written))
        source = SlurmSource.from_config({**ENTRY, "jobs": f"{folder}/*.psv"})
        week = Window(NOON, NOON + timedelta(hours=1))
        found = {pod.uid.removeprefix("slurm-"): pod.ended for pod in source.ledger(week).pods}
    assert {name for name in found if name in runs and found[name] is not None} == set()


def test_a_job_of_a_partition_that_was_left_is_lost_with_it(source: WriteLog) -> None:
    """Files of the whole cluster need not name each partition: what they share tells that."""
    source(row(End="Unknown"), row(JobIDRaw="7", Partition="h100"), at=T0 + 7200, name="old.psv")
    later = row(JobIDRaw="8", Partition="h100")
    found = source(later, at=T0 + 5 * 86_400, name="new.psv").ledger(HOUR)
    assert {pod.uid: pod.ended for pod in found.pods}["slurm-100"] == T0 + 7200


def test_an_hour_waits_for_the_file_of_each_partition(source: WriteLog) -> None:
    """Else jobs that began or ended since would be missing in an hour that counts as complete."""
    source(row(), at=T0 + 1800, name="a100.psv")
    other = row(JobIDRaw="7", Partition="h100", End="Unknown", State="RUNNING")
    early = source(other, at=T0 + 7200, name="h100.psv")
    with pytest.raises(SourceUnavailable, match="of partition a100 ends at 2026-11-20 12:30 UTC"):
        early.ledger(HOUR)
    assert len(source(row(), at=T0 + 7300, name="a100.psv").ledger(HOUR).pods) == 2
    # One that nobody writes any more holds up nothing, and is said.
    source(row(End="Unknown"), at=T0 + 1800, name="a100.psv")
    found = source(other, at=T0 + 2 * 86_400, name="h100.psv").ledger(HOUR)
    assert {pod.uid: pod.ended for pod in found.pods} == {"slurm-100": None, "slurm-7": None}
    (warning,) = found.warnings
    assert warning.startswith("no file of partition a100 was written since 2026-11-20 12:30 UTC")
    # Of a partition without GPUs there is nothing to wait for.
    cpu = row(JobIDRaw="9", Partition="cpu", ReqTRES="cpu=1", AllocTRES="cpu=1")
    source(row(), at=T0 + 2 * 86_400, name="a100.psv")
    source(cpu, at=T0 + 600, name="cpu.psv")
    assert not source(other, at=T0 + 2 * 86_400, name="h100.psv").ledger(HOUR).warnings


def test_an_empty_file_beside_an_older_one_is_of_another_partition(source: WriteLog) -> None:
    """A file of the whole cluster would have what ran an hour ago."""
    for end in ("Unknown", str(T0 + 1800)):
        source(row(End=end), at=T0 + 1900, name="a100.psv")
        with pytest.raises(SourceUnavailable, match="of partition a100 ends at 2026-11-20 12:31"):
            source(at=T0 + 7200, name="h100.psv").ledger(HOUR)
    source(row(End="Unknown"), at=T0 + 1900, name="a100.psv")
    found = source(at=T0 + 2 * DAY, name="h100.psv").ledger(HOUR)
    assert [pod.ended for pod in found.pods] == [None]
    (warning,) = found.warnings
    assert warning.startswith("no file of partition a100 was written since 2026-11-20 12:31 UTC")


def test_an_empty_file_of_a_cluster_that_is_idle_holds_up_nothing(source: WriteLog) -> None:
    early = {"Submit": str(T0 - 2 * DAY), "Start": str(T0 - 2 * DAY), "End": str(T0 - DAY)}
    source(row(**early), at=T0 + 1900, name="friday.psv")
    assert source(at=T0 + 7200, name="saturday.psv").ledger(HOUR).pods == []


def test_a_log_that_ends_before_the_window_is_tried_again(source: WriteLog) -> None:
    early = source(row(), at=T0 + 1200)
    with pytest.raises(SourceUnavailable, match=r"job log ends at 2026-11-20 12:20 UTC"):
        early.ledger(HOUR)
    assert source(row()).ledger(HOUR).pods


def test_what_is_wrong_with_files_is_said(source: WriteLog, tmp_path: Path) -> None:
    some = source(row(), row(JobIDRaw="7", Submit="never"))
    (warning,) = some.ledger(HOUR).warnings
    assert warning.startswith(f"{tmp_path}/jobs.psv: 1 line could not be read (line 3: ")
    (tmp_path / "jobs.psv").write_text("hello", encoding="utf-8")
    with pytest.raises(SourceRejected, match=r"jobs.psv has no column JobIDRaw"):
        some.ledger(HOUR)
    (tmp_path / "jobs.psv").unlink()
    with pytest.raises(SourceUnavailable, match="no file matches"):
        some.health()


def test_who_ran_a_job_is_told_where_the_log_has_it(source: WriteLog, tmp_path: Path) -> None:
    one = source(row())
    assert one.people(HOUR, ()) == {}
    path = tmp_path / "jobs.psv"
    path.write_text(f"{'|'.join((*COLUMNS, 'User'))}\n{row()}|ben\n", encoding="utf-8")
    os.utime(path, (T0 + 7300, T0 + 7300))
    assert one.people(HOUR, ()) == {"slurm-100": "ben"}


def test_people_are_compared_as_those_of_pods_are(source: WriteLog, tmp_path: Path) -> None:
    one, path = source(row()), tmp_path / "jobs.psv"
    users = ("Ben", "system:node:a", "b\u2028en")
    rows = [f"{row(JobIDRaw=str(n))}|{user}" for n, user in enumerate(users)]
    path.write_text("\n".join(["|".join((*COLUMNS, "User")), *rows]), encoding="utf-8")
    os.utime(path, (T0 + 7300, T0 + 7300))
    assert one.people(HOUR, ()) == {"slurm-0": "ben"}


# ---------------------------------------------------------------- what users may write


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85", "\r"])
def test_the_name_of_a_job_writes_no_other_job(source: WriteLog, sign: str) -> None:
    forged = row(JobIDRaw="666", Account="victim", JobName="none")
    found = source(row(JobName=f"train{sign}{forged}{sign}rest")).ledger(HOUR)
    assert [(pod.uid, pod.namespace) for pod in found.pods] == [("slurm-100", "vision-lab")]
    assert not found.warnings


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_part_of_a_field() -> None:
    (job,), strange, _ = jobs_of("\ufeff" + log(row()).replace("\n", "\r\n"), ZoneInfo("UTC"))
    assert (job.id, job.nodes, strange) == ("100", ("gpu01",), [])


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "²", "٣"])
def test_numbers_that_cannot_be_are_lines_that_cannot_be_read(number: str) -> None:
    many = row(JobIDRaw="1", AllocTRES=f"gres/gpu={number}")
    times = [row(JobIDRaw="2", **{name: number}) for name in ("Submit", "Start", "End")]
    early = row(JobIDRaw="3", Start="0001-01-01T00:00:00")
    jobs, strange, _ = jobs_of(log(many, *times, early, row()), ZoneInfo("Asia/Tokyo"))
    assert [job.id for job in jobs] == ["100"]
    assert [line.partition(":")[0] for line in strange] == [f"line {n}" for n in range(2, 7)]
    assert max(map(len, strange)) < 200


# ---------------------------------------------------------------- node events


EVENTS_HEAD = "NodeName|TimeStart|TimeEnd|State|Reason"


@pytest.fixture
def with_events(tmp_path: Path, source: WriteLog) -> WriteLog:
    def written(*rows: str, at: int = T0 + 7200, head: str = EVENTS_HEAD) -> SlurmSource:
        source(row())
        path = tmp_path / "nodes.events"
        path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
        os.utime(path, (at, at))
        files = {"jobs": str(tmp_path / "*.psv"), "events": str(path)}
        return SlurmSource.from_config({**ENTRY, **files})

    return written


def test_what_cannot_be_read_of_node_events_costs_its_line_alone(with_events: WriteLog) -> None:
    down = f"gpu01|{T0}|Unknown|DOWN|x\u2028gpu02|{T0}|Unknown|DOWN|y"
    found = with_events(down, f"gpu02|{'9' * 400}|Unknown|DOWN|z", head="\ufeff" + EVENTS_HEAD)
    answer = found.ledger(HOUR)
    assert {node.node for node in answer.nodes if not node.ready} == {"gpu01"}
    assert len(answer.warnings) == 1


def states(some: SlurmSource) -> list[tuple[str, float, float, bool, bool]]:
    return [
        (one.node, one.start - T0, one.end - T0, one.ready, one.schedulable)
        for one in some.ledger(HOUR).nodes
    ]


def test_nodes_that_were_down_or_drained_are_known_from_events(with_events: WriteLog) -> None:
    down = f"gpu01|{T0 + 600}|{T0 + 1200}|DOWN*|Not responding"
    drained = f"gpu02|{T0 - 600}|Unknown|DRAIN|fan | left"
    whole = "|2026-11-20T12:10:00|Unknown||Cluster Registered TRES"
    assert states(with_events(down, drained, whole)) == [
        ("gpu01", 0, 600, True, True),
        ("gpu01", 600, 1200, False, False),
        ("gpu01", 1200, 3600, True, True),
        ("gpu02", 0, 3600, True, False),
    ]


def test_of_two_states_at_once_the_worse_counts(with_events: WriteLog) -> None:
    rows = [
        f"gpu[01-02]|{T0}|{T0 + 1800}|DRAIN|work",
        f"gpu01|{T0 + 900}||down|crashed",
        f"gpu02|{T0 + 3600}||DOWN+DRAIN|later",
    ]
    assert states(with_events(*rows)) == [
        ("gpu01", 0, 900, True, False),
        ("gpu01", 900, 1800, False, False),
        ("gpu01", 1800, 3600, False, False),
        ("gpu02", 0, 1800, True, False),
        ("gpu02", 1800, 3600, True, True),
    ]


def test_without_events_nothing_is_said_of_drained_nodes(source: WriteLog) -> None:
    assert all(one.ready and one.schedulable for one in source(row()).ledger(HOUR).nodes)


def test_an_hour_waits_until_its_events_are_written(with_events: WriteLog) -> None:
    with pytest.raises(SourceUnavailable, match="node events end at 2026-11-20 12:30"):
        with_events(at=T0 + 1800).ledger(HOUR)


def test_events_that_cannot_be_read_are_told(with_events: WriteLog) -> None:
    (warning,) = (
        with_events(f"gpu01|soon|{T0}|DOWN|x", "gpu02||Unknown|DOWN|x").ledger(HOUR).warnings
    )
    assert "2 lines could not be read" in warning
    with pytest.raises(SourceRejected, match="has no column State"):
        with_events(head="NodeName|TimeStart|TimeEnd").ledger(HOUR)


@pytest.mark.django_db
def test_jobs_that_were_stored_in_slurms_words_have_those_of_pods() -> None:
    jobs = make_workload(make_cluster("slurm"), "vision", "train", JOB_KIND)
    other = make_workload(make_cluster("west"), "vision", "train")
    for state in ("COMPLETED", "NODE_FAIL", "FAILED", "Completed", "STRANGE"):
        make_pod(jobs, state, created_at=NOON, end_reason=state)
    make_pod(other, "theirs", created_at=NOON, end_reason="COMPLETED")
    import_module("apps.clusters.migrations.0014_slurm_end_reasons").rename(django_apps, None)
    assert dict(Pod.objects.values_list("name", "end_reason")) == {
        "COMPLETED": "Completed",
        "NODE_FAIL": "NodeLost",
        "FAILED": "Error",
        "Completed": "Completed",
        "STRANGE": "STRANGE",
        # Whoever writes this word as the reason of a pod is no job of Slurm.
        "theirs": "COMPLETED",
    }


@given(
    spans=st.lists(
        st.tuples(st.integers(-900, 4500), st.integers(1, 3000), st.booleans()), max_size=6
    )
)
def test_spans_of_a_node_cover_the_hour_once(spans: list[tuple[int, int, bool]]) -> None:
    events = [NodeEvent("a", T0 + at, T0 + at + length, drain) for at, length, drain in spans]
    found = list(spans_of(events, HOUR))
    assert sum(one.end - one.start for one in found) == 3600
    for one in found:
        middle = (one.start + one.end) / 2
        here = [e for e in events if e.start <= middle < (e.end or 0)]
        assert one.schedulable is not bool(here)
        assert one.ready is all(e.drained for e in here)
