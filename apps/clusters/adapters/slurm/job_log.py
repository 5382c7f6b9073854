"""Jobs as `sacct --parsable2 --allocations` prints them, decoded into structs.

A file begins with the names of its columns, parted by "|". Of `gres/gpu` the total counts, and
where there is none the sum over its types. Source: sacct(1).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.domain.host_lists import hosts_of

COLUMNS = (
    *("JobIDRaw", "JobName", "Account", "Partition", "QOS", "Submit", "Start", "End"),
    *("State", "ReqTRES", "AllocTRES", "NodeList"),
)
"""What a file must have, in any order. `User` may be there too: who ran a job."""
_NO_TIME = {"", "Unknown", "None", "N/A"}
_NO_NODES = {"", "None assigned", "Unknown"}
_GPUS = "gres/gpu"
_NAMESPACE = re.compile(r"[^a-z0-9-]+")
_LONGEST = 63
_MOST_DIGITS = 7
_SHOWN = 40
# In the year 5138: no later second can be stored as a time, and no job runs then.
_LAST_SECOND = 99_999_999_999


class LogRejected(Exception):
    """A file is no job log; the text says what to do."""


class SlurmJob(Struct, frozen=True):
    """One job that asked for GPUs, or was given some; times are Unix seconds, None: not yet."""

    id: str
    name: str
    account: str
    partition: str
    qos: str
    submitted: float
    started: float | None
    ended: float | None
    state: str
    gpus: int
    nodes: tuple[str, ...]
    user: str = ""

    @property
    def partitions(self) -> frozenset[str]:
        """Where it runs, or each in which it may while it is pending."""
        return frozenset(self.partition.split(","))


class JobLog(NamedTuple):
    """The jobs of a file that have to do with GPUs, and what could not be read of it.

    `partitions` are those that any job of the file is in, also one without GPUs.
    """

    jobs: list[SlurmJob]
    strange: list[str]
    partitions: frozenset[str]


def jobs_of(text: str, zone: ZoneInfo) -> JobLog:
    """Return what a file says; local times are those of `zone`.

    Raises LogRejected where columns are missing.
    """
    head, rows = table_of(text, COLUMNS, "sacct --allusers --allocations --parsable2 --format=")
    jobs: list[SlurmJob] = []
    strange: list[str] = []
    partitions: set[str] = set()
    for number, line in enumerate(rows, start=2):
        if not line.strip():
            continue
        try:
            row = dict(zip(head, _fields(line, head), strict=True))
            jobs.extend(_job(row, zone))
            partitions.add(row["Partition"])
        except (ValueError, ArithmeticError) as error:
            strange.append(f"line {number}: {error}")
    # A job that is pending in one of several names them all: the file need not be of each.
    return JobLog(jobs, strange, frozenset(one for one in partitions if one and "," not in one))


def table_of(text: str, columns: Sequence[str], command: str) -> tuple[list[str], list[str]]:
    """Return the head and the rows of a file that Slurm wrote, without a byte order mark.

    `command` writes it. Raises LogRejected where columns are missing.
    """
    # Names of jobs are their owners' own: what else Python takes for the end of a line, as U+2028,
    # would let a name write whole rows of other jobs.
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    head = lines[0].split("|")
    if missing := [name for name in columns if name not in head]:
        raise LogRejected(f"has no column {missing[0]}: write it with {command}{','.join(columns)}")
    return head, lines[1:]


def read_text(path: str) -> str:
    """Return what a file says, each sign as it stands there. Raises OSError."""
    # Read as text, a lone carriage return in the name of a job would become the end of a line.
    return Path(path).read_bytes().decode("utf-8", errors="replace")


def _fields(line: str, head: Sequence[str]) -> list[str]:
    fields = line.split("|")
    extra = len(fields) - len(head)
    if extra < 0:
        raise ValueError(f"has {len(fields)} fields, {len(head)} were expected")
    if not extra:
        return fields
    # The name of a job may hold the mark that parts fields; nothing else may.
    at = head.index("JobName")
    return [*fields[:at], "|".join(fields[at : at + extra + 1]), *fields[at + extra + 1 :]]


def _job(row: Mapping[str, str], zone: ZoneInfo) -> Iterator[SlurmJob]:
    gpus = _gpus(row["AllocTRES"]) or _gpus(row["ReqTRES"])
    # Steps have a dot in their number; they are part of their job.
    if not gpus or "." in row["JobIDRaw"]:
        return
    submitted = time_of(row["Submit"], zone)
    if submitted is None:
        raise ValueError("has no time of submission")
    started, ended = time_of(row["Start"], zone), time_of(row["End"], zone)
    nodes = () if row["NodeList"] in _NO_NODES else tuple(hosts_of(row["NodeList"]))
    if started is not None and not nodes:
        # Canceled while it was pending: Slurm writes its end as its start.
        started = None
    yield SlurmJob(
        id=row["JobIDRaw"],
        name=row["JobName"] or row["JobIDRaw"],
        account=account_namespace(row["Account"]),
        partition=row["Partition"],
        qos=row["QOS"],
        submitted=submitted,
        started=None if started is None else max(started, submitted),
        ended=None if ended is None else max(ended, started or submitted),
        state=row["State"].partition(" ")[0],
        gpus=gpus,
        nodes=nodes,
        user=row.get("User", ""),
    )


def account_namespace(account: str) -> str:
    """Return an account as a namespace of the catalog: small letters, digits and dashes."""
    return _NAMESPACE.sub("-", account.lower()).strip("-")[:_LONGEST] or "none"


def _gpus(tres: str) -> int:
    """Return the GPUs of `cpu=8,gres/gpu=4,gres/gpu:a100=4`."""
    amounts = dict(part.partition("=")[::2] for part in tres.split(",") if "=" in part)
    if _GPUS in amounts:
        return _whole(amounts[_GPUS])
    return sum(_whole(n) for name, n in amounts.items() if name.startswith(f"{_GPUS}:"))


def _whole(text: str) -> int:
    if not _is_number(text) or len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:_SHOWN]!r} is no number of GPUs")
    return int(text)


def time_of(text: str, zone: ZoneInfo) -> float | None:
    """Return a time as Slurm prints it in Unix seconds; None where it has not come yet."""
    if text in _NO_TIME:
        return None
    # With SLURM_TIME_FORMAT=%s it prints seconds, which no change of summer time makes unclear.
    if _is_number(text):
        found = float(text)
    else:
        at = datetime.fromisoformat(text)
        found = (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()
    if not 0 <= found <= _LAST_SECOND:
        raise ValueError(f"{text[:_SHOWN]!r} is no time")
    return found


def _is_number(text: str) -> bool:
    # Python takes raised digits and those of other scripts for digits, too.
    return text.isascii() and text.isdigit()
