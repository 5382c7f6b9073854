"""The commands `gpuportal` and `kubectl gpuportal`."""

import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuportal_client import queries, tables
from gpuportal_client.connection import Portal, PortalError, Row
from gpuportal_client.explained import explain as explain_figure
from gpuportal_client.output import (
    Column,
    Output,
    complain,
    console,
    printable,
    write_data,
    write_rows,
    write_story,
)
from gpuportal_client.settings import (
    checked_token,
    checked_url,
    kube_scope,
    portal_from,
    save_account,
)

app = typer.Typer(
    help="Ask a gpuportal: why work is pending, what GPUs are used for, and whether a job starts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Url = Annotated[str, typer.Option("--url", help="Address of the portal; else GPUPORTAL_URL.")]
Cluster = Annotated[str, typer.Option("--cluster", help="Name of the cluster in the portal.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Unless told, that of the kubeconfig.")
]
All = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces that you see.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="All but table have every field.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Rows at most; 0 for all.")]
Start = Annotated[str, typer.Option(help="First day, as 2026-03-28; else 7 days before the end.")]
End = Annotated[str, typer.Option(help="Day after the last; else tomorrow: today is in.")]
By = Annotated[str, typer.Option("--by", help="Groups, separated by commas.")]

_EXIT_PENDING, _EXIT_NEVER = 3, 4


def main() -> None:
    """Run the command line; what goes wrong is one sentence and the exit code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Half a character of the portal, or a terminal without UTF-8, must not end the output.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except PortalError as error:
        complain(str(error))
        sys.exit(1)
    except BrokenPipeError:
        # The reader, such as `head`, has gone. Nothing is left to tell it.
        sys.stderr.close()
        sys.exit(1)


def _scope(portal: Portal, cluster: str, namespace: str, *, everywhere: bool) -> queries.Scope:
    kube = kube_scope()
    found = queries.find_cluster(portal, cluster, kube.cluster)
    return queries.Scope(found, "" if everywhere else namespace or kube.namespace)


@app.command()
def login(url: Annotated[str, typer.Argument(help="https://portal.example")]) -> None:
    """Keep the address of a portal and a token, for the commands after."""
    address = checked_url(url)
    text = f"Token, from {address}/tokens/"
    token = typer.prompt(text, hide_input=sys.stdin.isatty(), err=True)
    portal = Portal(address, checked_token(token))
    tiers = portal.rows("tiers", {})
    path = save_account(portal)
    console().print(f"{address} accepts the token; it has {len(tiers)} tiers. Kept in {path}")


@app.command()
def why(
    name: Annotated[str, typer.Argument(help="Pod, workload or Kind/name; all unless told.")] = "",
    namespace: Namespace = "",
    everywhere: All = False,
    cluster: Cluster = "",
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """Say why work is pending, and the smallest change that lets it start."""
    portal = portal_from(url)
    scope = _scope(portal, cluster, namespace, everywhere=everywhere)
    rows = queries.why_pending(portal, scope, name)
    if output is Output.TABLE and rows:
        for row in rows:
            write_story(tables.pending_story(row))
        return
    write_rows(rows, tables.PENDING, output, empty=f"Nothing is pending in {scope}.")


@app.command()
def queue(
    namespace: Namespace = "",
    everywhere: All = False,
    cluster: Cluster = "",
    order: Annotated[str, typer.Option(help="longest pending first, or most GPUs.")] = "longest",
    limit: Limit = 50,
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """List pending workloads, longest first."""
    portal = portal_from(url)
    scope = _scope(portal, cluster, namespace, everywhere=everywhere)
    rows = queries.pending(portal, scope, limit=limit or None, order=order)
    write_rows(rows, tables.PENDING, output, empty=f"Nothing is pending in {scope}.")


def _add_report(
    name: str,
    read: Callable[[Portal, queries.Scope, str, dict[str, str], int | None], list[Row]],
    columns: Sequence[Column],
    *,
    by: str,
    summary: str,
    empty: Callable[[queries.Scope], str],
) -> None:
    """Add a command that shows what `read` returns of a window, by groups."""

    # Typer takes options from a signature: reports of their own would repeat it.
    @app.command(name, help=summary)
    def show(
        by: By = by,
        start: Start = "",
        end: End = "",
        namespace: Namespace = "",
        everywhere: All = False,
        cluster: Cluster = "",
        limit: Limit = 50,
        output: Format = Output.TABLE,
        url: Url = "",
    ) -> None:
        portal = portal_from(url)
        scope = _scope(portal, cluster, namespace, everywhere=everywhere)
        times = queries.window(portal, start, end)
        rows = read(portal, scope, by, times, limit or None)
        grouped = tables.grouped(by, columns)
        write_rows(rows, grouped, output, empty=empty(scope), heading=_window(times))


def _no_facts(scope: queries.Scope) -> str:
    return f"No facts of {scope} in this window. `gpuportal list collections` has the hours."


_add_report(
    "usage",
    queries.usage,
    tables.USAGE,
    by="tier",
    summary="Show GPU-hours and utilization of a window.",
    empty=_no_facts,
)
_add_report(
    "waste",
    queries.waste,
    tables.WASTE,
    by="tier",
    summary="Show capacity that was not active in a window, with its cost.",
    empty=_no_facts,
)
_add_report(
    "serving",
    queries.serving,
    tables.SERVING,
    by="model",
    summary="Show what inference services did: tokens, per GPU-hour and their cost; most tokens "
    "first.",
    empty=lambda scope: f"No inference service of {scope} has series in this window.",
)


@app.command()
def quotas(
    namespace: Namespace = "",
    everywhere: All = False,
    cluster: Cluster = "",
    limit: Limit = 100,
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """List quota keys: limit, use, and what is pending for them."""
    portal = portal_from(url)
    scope = _scope(portal, cluster, namespace, everywhere=everywhere)
    rows = queries.quotas(portal, scope, limit or None)
    write_rows(rows, tables.QUOTAS, output, empty=f"No quota limits GPUs in {scope}.")


@app.command()
def preflight(
    manifest: Annotated[str, typer.Argument(help="File of YAML or JSON; - for standard input.")],
    namespace: Namespace = "",
    cluster: Cluster = "",
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 where pods wait, 4 where they never start.")
    ] = False,
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """Say whether the pods of a manifest would start. Nothing is sent to the cluster."""
    portal = portal_from(url)
    scope = _scope(portal, cluster, namespace, everywhere=False)
    results: list[Row] = queries.preflight(portal, scope, _text_of(manifest))["results"]
    if output is Output.TABLE:
        for row in results:
            write_story(tables.preflight_story(row))
    else:
        write_data(results, output)
    verdicts = {row["verdict"] for row in results}
    if check and verdicts & {"waits", "never"}:
        raise typer.Exit(_EXIT_NEVER if "never" in verdicts else _EXIT_PENDING)


@app.command()
def request(
    key: Annotated[str, typer.Argument(help="As `gpuportal quotas` shows it.")],
    to: Annotated[str, typer.Option(help="The new limit, in units of the key.")],
    reason: Annotated[str, typer.Option(help="Why; the administrator reads it.")],
    until: Annotated[str, typer.Option(help="Day on which it reverts; unless told never.")] = "",
    quota: Annotated[str, typer.Option(help="Name of the quota or queue, of several.")] = "",
    team: Annotated[str, typer.Option(help="Where several teams use a queue.")] = "",
    draft: Annotated[bool, typer.Option("--draft", help="Write it, and do not submit it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    namespace: Namespace = "",
    cluster: Cluster = "",
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """Request a change of a quota. The token needs the scope `request`."""
    portal = portal_from(url)
    scope = _scope(portal, cluster, namespace, everywhere=False)
    row = queries.find_quota(portal, scope, key, quota)
    hard = "none" if row["hard"] is None else f"{row['hard']:g}"
    asked = f"{key} of {queries.place_of(row)}: {hard} → {to} {row['unit']}. Submit the request?"
    if not (yes or draft):
        typer.confirm(printable(asked), abort=True, err=True)
    body: dict[str, Any] = {"to": to, "reason": reason}
    body |= {name: text for name, text in (("until", until), ("team", team)) if text}
    written = queries.request_change(portal, row, body, submit=not draft)
    if output is Output.TABLE:
        write_story(f"Request {written['id']}, {written['state']}: {_page(portal, written)}")
    else:
        write_data([written], output)


@app.command()
def requests(
    which: Annotated[str, typer.Option(help="mine, queue (for you to decide), or all.")] = "mine",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only this namespace.")] = "",
    everywhere: All = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster.")] = "",
    limit: Limit = 50,
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """List quota requests of all namespaces, the last changed first."""
    # Requests of a person are few, and asked for from anywhere: the kubeconfig does not narrow.
    scope = queries.Scope(cluster, "" if everywhere else namespace)
    params = {**scope.params(), "which": which}
    rows = portal_from(url).rows("quota-requests", params, limit=limit or None)
    write_rows(rows, tables.REQUESTS, output, empty="There is no such request.")


@app.command()
def explain(
    figure: Annotated[str, typer.Argument(help="A column of usage.")] = "allocated_gpu_hours",
    tier: Annotated[str, typer.Option(help="Only this tier.")] = "",
    team: Annotated[str, typer.Option(help="Only this team.")] = "",
    start: Start = "",
    end: End = "",
    namespace: Namespace = "",
    everywhere: All = False,
    cluster: Cluster = "",
    output: Format = Output.TABLE,
    url: Url = "",
) -> None:
    """Explain a figure: its equation with numbers, how it is known, and what is missing."""
    portal = portal_from(url)
    scope = _scope(portal, cluster, namespace, everywhere=everywhere)
    times = queries.window(portal, start, end)
    filters = {**scope.params(), **times, "tier": tier, "team": team}
    explained = explain_figure(portal, figure, filters)
    if output is Output.TABLE:
        write_story(f"{_window(times)}\n{tables.explanation_story(explained)}")
    else:
        write_data([explained.row()], output)


@app.command("list")
def list_rows(
    path: Annotated[str, typer.Argument(help="A list of docs/api.md: fairness, budgets, slots.")],
    filters: Annotated[list[str] | None, typer.Argument(help="As tier=whole-a100")] = None,
    limit: Limit = 100,
    output: Format = Output.JSON,
    url: Url = "",
) -> None:
    """Read any list of the API."""
    if not re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)*", path):
        raise PortalError(f"“{path}” is no list: write a name such as quotas or pending/history.")
    params: dict[str, tuple[str, ...]] = {}
    for text in filters or []:
        name, sign, value = text.partition("=")
        if not sign:
            raise PortalError(f"“{text}” is no filter: write name=value.")
        params[name] = (*params.get(name, ()), value)
    portal = portal_from(url)
    rows = portal.rows(path, params, limit=limit or None)
    if rows or output is not Output.TABLE:
        write_rows(rows, tables.plain_columns(rows), output, empty="")
    if not rows:
        # In each format: `[]` of a list that is for others would read as "nothing to tell".
        complain(f"{path} has no rows that you see. {queries.summary_of(portal, path)}".rstrip())


@app.command()
def mcp(url: Url = "") -> None:
    """Serve read-only tools to an assistant by the Model Context Protocol, on standard input."""
    try:
        from gpuportal_client.mcp_server import make_server
    except ModuleNotFoundError as error:
        raise PortalError(
            "The MCP server needs a package more: pipx install 'gpuportal-client[mcp]'"
        ) from error
    make_server(portal_from(url)).run("stdio")


def _page(portal: Portal, row: Row) -> str:
    return f"{portal.url}/quotas/requests/{row['id']}/"


def _window(times: dict[str, str]) -> str:
    return f"Window: {queries.window_text(times)}"


def _text_of(manifest: str) -> str:
    """Return the text of a file or of standard input. Raises PortalError."""
    try:
        raw = sys.stdin.buffer.read() if manifest == "-" else Path(manifest).read_bytes()
        return raw.decode("utf-8")
    except OSError as error:
        raise PortalError(f"{manifest} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PortalError(f"{manifest} is no text in UTF-8.") from error
