"""What a terminal shows of rows: columns of tables, and short texts for single rows."""

from collections.abc import Iterable, Sequence

from gpuportal_client.connection import Row
from gpuportal_client.explained import Explanation, ledger_word
from gpuportal_client.output import (
    Column,
    amount,
    duration,
    equivalents,
    instant,
    milliseconds,
    money,
    percent,
    printable,
    short,
)

_USES = {
    "kept_for_latency": "kept for latency",
    "no_requests": "no requests",
    "unknown": "no data",
}

PENDING = (
    Column("cluster", "CLUSTER"),
    Column("namespace", "NAMESPACE"),
    Column("kind", "KIND"),
    Column("name", "NAME"),
    Column("tier", "TIER"),
    Column("gpu_equivalents", "GPUS", equivalents, is_number=True),
    Column("wait_seconds", "PENDING FOR", duration, is_number=True),
    Column("cause", "CAUSE"),
    Column("detail", "DETAIL"),
)
USAGE = (
    Column("capacity_gpu_hours", "CAPACITY GPU-H", amount, is_number=True),
    Column("allocated_gpu_hours", "ALLOCATED GPU-H", amount, is_number=True),
    Column("busy_gpu_hours", "ACTIVE GPU-H", amount, is_number=True),
    Column("idle_gpu_hours", "IDLE GPU-H", amount, is_number=True),
    Column("unmeasured_gpu_hours", "NO METRICS GPU-H", amount, is_number=True),
    Column("utilization_ratio", "UTILIZATION", percent, is_number=True),
    Column("coverage_ratio", "COVERAGE", percent, is_number=True),
)
WASTE = (
    Column("cause", "CAUSE", ledger_word),
    Column("gpu_hours", "GPU-H", amount, is_number=True),
    Column("cost", "COST", money, is_number=True),
    Column("currency", "CURRENCY"),
)
SERVING = (
    Column("use", "USE", lambda value: _USES.get(value, value)),
    Column("tokens_in", "TOKENS IN", short, is_number=True),
    Column("tokens_out", "TOKENS OUT", short, is_number=True),
    Column("tokens_per_gpu_hour", "PER GPU-H", short, is_number=True),
    Column("cost_per_million_tokens", "COST/1M", money, is_number=True),
    Column("currency", "CURRENCY"),
    Column("ttft_ratio", "TTFT MET", percent, is_number=True),
    Column("ttft_objective_ms", "OBJECTIVE", milliseconds, is_number=True),
    Column("allocated_gpu_hours", "GPU-H", amount, is_number=True),
    Column("idle_gpu_hours", "IDLE GPU-H", amount, is_number=True),
)
QUOTAS = (
    Column("cluster", "CLUSTER"),
    Column("namespace", "NAMESPACE"),
    Column("source", "SOURCE"),
    Column("name", "NAME"),
    Column("key", "KEY"),
    Column("hard", "LIMIT", amount, is_number=True),
    Column("used", "USED", amount, is_number=True),
    Column("held", "ALLOCATED", amount, is_number=True),
    Column("pending", "PENDING", amount, is_number=True),
    Column("saturation_ratio", "USAGE", percent, is_number=True),
    Column("finding", "FINDING"),
)
REQUESTS = (
    Column("id", "ID", amount, is_number=True),
    Column("state", "STATE"),
    Column("team", "TEAM"),
    Column("cluster", "CLUSTER"),
    Column("namespace", "NAMESPACE"),
    Column("name", "QUOTA"),
    Column("key", "KEY"),
    Column("from", "FROM", is_number=True),
    Column("to", "TO", is_number=True),
    Column("changed_at", "CHANGED", instant),
    Column("until", "EXPIRES", instant),
    Column("reason", "REASON"),
)
_VERDICTS = {
    "starts": "starts now",
    "waits": "is pending until other work ends",
    "never": "never starts without a change",
}
_GRADES = {"inferred": "from series", "unmeasured": "no metrics"}


def grouped(by: str, columns: Iterable[Column]) -> list[Column]:
    """Return the columns of a table behind those of its groups."""
    groups = [name.strip() for name in by.split(",") if name.strip()]
    return [*(Column(name, name.upper().replace("_", " ")) for name in groups), *columns]


def plain_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column for each field of rows that holds neither a list nor an object."""
    fields = dict.fromkeys(name for row in rows for name in row)
    nested = {n for row in rows for n, v in row.items() if isinstance(v, list | dict)}
    return [Column(name, name.upper()) for name in fields if name not in nested]


def pending_story(row: Row) -> str:
    """Return what is known of a pending workload, a line each."""
    lines = [
        f"{row['namespace']}/{row['name']} ({row['kind']}, {row['tier']}, {_gpus(row)})",
        f"  pending for  {duration(row['wait_seconds'])}, since {instant(row['since'])} UTC",
        f"  cause        {row['cause']}: {row['explanation']}",
        *(f"  how to fix   {option['text']}" for option in row["suggestions"]),
        *(f"  event        {note}" for note in row["notes"]),
    ]
    if row["message"]:
        lines.append(f"  scheduler    {row['message']}")
    if row["stale"]:
        lines.append(f"  known until  {instant(row['as_of']) or 'never'}; it may be over")
    return _text(lines)


def preflight_story(row: Row) -> str:
    """Return whether pods of a manifest would start, a line each."""
    title = " ".join(part for part in (f"{row['kind']}/{row['name']}", row["role"]) if part)
    # Without pods and without a cause nothing is requested, which no verdict says.
    if not row["pods"] and not row["cause"]:
        return _text([f"{title}: {row['explanation']}"])
    lines = [f"{title}: {_VERDICTS.get(row['verdict'], row['verdict'])}"]
    if row["verdict"] != "starts":
        lines.append(f"  cause        {row['cause']}: {row['explanation']}")
    if row["tier"]:
        pods = "1 pod" if row["pods"] == 1 else f"{row['pods']} pods"
        lines.append(f"  tier         {row['tier']}, {_gpus(row)} in {pods}")
    wait = row["expected_wait_seconds"]
    if wait:
        lines.append(
            f"  queue time   {duration(wait['p10'])} to {duration(wait['p90'])}, "
            f"p50 {duration(wait['p50'])} (by {wait['basis']})"
        )
    if row["position"]:
        of = row["position"]
        lines.append(f"  position     {of['place']} of {of['of']} {of['queue']}".rstrip())
    lines.extend(
        f"  quota        {quota['name']} {quota['key']}: {amount(quota['left'])} left, "
        f"needs {amount(quota['needs'])}"
        for quota in row["quotas"]
    )
    if row["cost_per_hour"] is not None:
        lines.append(f"  cost         {money(row['cost_per_hour'])} {row['currency']} per hour")
    if row["change"]:
        lines.append(f"  how to fix   {row['change']['text']}")
    lines.extend(
        f"  alternative  {amount(option['units'])} {option['resource']} in each pod, "
        f"tier {option['tier']}: {_VERDICTS.get(option['verdict'], option['verdict'])}"
        for option in row["alternatives"]
    )
    if row["unchecked"]:
        lines.append(f"  not checked  {' '.join(row['unchecked'])}")
    return _text(lines)


def explanation_story(explained: Explanation) -> str:
    """Return a figure with its meaning, equations and what is missing, a line each."""
    is_ratio = explained.figure.endswith("_ratio")
    value = percent(explained.value) if is_ratio else f"{explained.value or 0:,.3f}"
    lines = [f"{explained.figure} = {value if explained.value is not None else 'no data'}"]
    lines.append(f"  meaning      {explained.meaning}")
    lines.extend(f"  equation     {equation}" for equation in explained.equations)
    if explained.holds is not None:
        lines.append(f"  adds up      {'yes' if explained.holds else 'NO'}")
    grades = [
        f"{_GRADES.get(name, name)} {hours:,.1f}"
        for name, hours in explained.grades.items()
        if hours
    ]
    if grades:
        lines.append(f"  known as     {', '.join(grades)} GPU-h of the allocated")
    lines.append(
        f"  incomplete   {explained.hours_missing} hours without facts, "
        f"{explained.hours_partial} in part"
    )
    return _text(lines)


def _gpus(row: Row) -> str:
    count = equivalents(row["gpu_equivalents"])
    return f"{count} GPU" if count == "1" else f"{count} GPUs"


def _text(lines: Iterable[str]) -> str:
    return "\n".join(printable(line) for line in lines)
