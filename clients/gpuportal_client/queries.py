"""What a question asks of the API: its scope, its window, and the lists that answer it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuportal_client.connection import Params, Portal, PortalError, Row
from gpuportal_client.shapes import (
    CLUSTER,
    PENDING,
    PREFLIGHT,
    QUOTA,
    USAGE,
    WASTE,
    WRITTEN,
    checked,
    misfit,
)

_WINDOW_DAYS = 7
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Scope:
    """Where rows are looked for; empty texts do not narrow."""

    cluster: str = ""
    namespace: str = ""

    def params(self) -> dict[str, str]:
        """Return the parameters of it."""
        return {"cluster": self.cluster, "namespace": self.namespace}

    def __str__(self) -> str:
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces that you see"
        return f"{where} of {self.cluster}" if self.cluster else where


def find_cluster(portal: Portal, wanted: str, kube_name: str) -> str:
    """Return the portal's name of the cluster; empty where none is told.

    `wanted` is what the person wrote, `kube_name` that of the kubeconfig, which the catalog may
    call otherwise. The only cluster of a portal needs no name.
    """
    if wanted:
        return wanted
    known = _clusters(portal)
    if kube_name in known:
        return kube_name
    return known[0] if len(known) == 1 else ""


def _clusters(portal: Portal) -> list[str]:
    return [row["name"] for row in checked(portal.rows("clusters", {}), CLUSTER, "clusters")]


def window(portal: Portal, start: str, end: str) -> dict[str, str]:
    """Return the window of a ledger: the seven days up to today, and today, unless told otherwise.

    `end` is not in it. Raises PortalError.
    """
    try:
        # As the pages of the portal have it: who compares both finds the same figures.
        last = end or (_today(portal) + timedelta(1)).isoformat()
        first = start or (date.fromisoformat(last[:10]) - timedelta(_WINDOW_DAYS)).isoformat()
    except (ValueError, OverflowError) as error:
        raise PortalError(f"“{end}” is no date to end a window: write 2026-03-28.") from error
    return {"start": first, "end": last}


def _today(portal: Portal) -> date:
    """Return the portal's day, which is another one than this machine's in another time zone.

    One request. An older portal does not tell its day: this machine's has to do there.
    """
    told = portal.get("").get("today")
    if isinstance(told, str):
        try:
            return date.fromisoformat(told)
        except ValueError as error:
            raise misfit("", f"“today” is no date but {told!r}") from error
    return datetime.now().astimezone().date()


def window_text(times: Mapping[str, str]) -> str:
    """Return a window as the heading of a table: its first and its last day, or its two times."""
    start, end = times["start"], times["end"]
    try:
        first, last = date.fromisoformat(start), date.fromisoformat(end) - timedelta(1)
    except (ValueError, OverflowError):
        return f"From {start} until {end}"
    return f"{first}" if first == last else f"{first} to {last}"


def summary_of(portal: Portal, path: str) -> str:
    """Return what the portal's schema says of a list: what it has, and for whom it is.

    Empty where it says nothing.
    """
    try:
        operation: Any = portal.schema()
    except PortalError:
        # The rows were answered: a schema that is not served takes nothing from them.
        return ""
    for name in ("paths", f"/api/v1/{path}", "get"):
        operation = operation.get(name) if isinstance(operation, dict) else None
    summary = operation.get("summary") if isinstance(operation, dict) else None
    return summary if isinstance(summary, str) else ""


def pending(
    portal: Portal, scope: Scope, *, limit: int | None = None, order: str = ""
) -> list[Row]:
    """Return pending workloads, longest first unless `order` is `most`."""
    rows = portal.rows("pending", {**scope.params(), "order": order}, limit=limit)
    return checked(rows, PENDING, "pending")


def why_pending(portal: Portal, scope: Scope, name: str) -> list[Row]:
    """Return the pending rows of an object, pod or workload by its name; all of an empty name.

    Raises PortalError where nothing of that name is pending.
    """
    rows = pending(portal, scope)
    if not name:
        return rows
    wanted = name.lower()
    found = [row for row in rows if wanted in _names(row)]
    if found:
        return found
    raise PortalError(
        f"“{name}” is not pending in {scope}: it runs, it has ended, or you do not see its team. "
        "`gpuportal queue` lists what is pending."
    )


def _names(row: Row) -> set[str]:
    kind, name, workload = row["kind"], row["name"], row["workload"] or ""
    return {text.lower() for text in (name, f"{kind}/{name}", workload, workload.partition("/")[2])}


def usage(
    portal: Portal, scope: Scope, group_by: str, times: Params, limit: int | None
) -> list[Row]:
    """Return the ledger of a window by group, one row each, most allocated first."""
    params = {**scope.params(), **times, "interval": "total", "group_by": group_by}
    rows = checked(portal.rows("usage", params), USAGE, "usage")
    return sorted(rows, key=lambda row: -(row["allocated_gpu_hours"] or 0.0))[:limit]


def waste(
    portal: Portal, scope: Scope, group_by: str, times: Params, limit: int | None
) -> list[Row]:
    """Return the priced capacity that was not active, by group and cause, dearest first."""
    params = {**scope.params(), **times, "interval": "total", "group_by": group_by}
    rows = checked(portal.rows("waste", params), WASTE, "waste")
    return sorted(rows, key=lambda row: -float(row["cost"] or 0.0))[:limit]


def serving(
    portal: Portal, scope: Scope, group_by: str, times: Params, limit: int | None
) -> list[Row]:
    """Return what inference services did in a window by group, most tokens first."""
    params = {**scope.params(), **times, "group_by": group_by}
    return portal.rows("serving", params, limit=limit)


def quotas(portal: Portal, scope: Scope, limit: int | None = None) -> list[Row]:
    """Return quota keys of a namespace, or of a cluster with its queues."""
    return checked(portal.rows("quotas", scope.params(), limit=limit), QUOTA, "quotas")


def preflight(portal: Portal, scope: Scope, manifest: str) -> Row:
    """Return whether the pods of a manifest would start. Raises PortalError."""
    if not scope.cluster or not scope.namespace:
        if scope.cluster:
            raise PortalError("For which namespace? Name it with --namespace.")
        known = ", ".join(_clusters(portal))
        raise PortalError(f"For which cluster? Name it with --cluster: {known}")
    if not manifest.strip():
        raise PortalError("The manifest is empty.")
    answer = portal.post("preflight", {**scope.params(), "manifest": manifest})
    results = answer.get("results")
    if not isinstance(results, list):
        raise misfit("preflight", "it has no results")
    checked(results, PREFLIGHT, "preflight")
    return answer


def find_quota(portal: Portal, scope: Scope, key: str, name: str) -> Row:
    """Return the one quota row of a key, in the namespace or among the queues of the cluster.

    Raises PortalError where there is none, or several.
    """
    found = _matching(quotas(portal, scope), key, name)
    if not found and scope.namespace:
        queues: Params = {"cluster": scope.cluster, "source": ("ClusterQueue", "Queue")}
        found = _matching(checked(portal.rows("quotas", queues), QUOTA, "quotas"), key, name)
    if len(found) == 1:
        return found[0]
    if not found:
        raise PortalError(f"No quota of {scope} has the key {key}. `gpuportal quotas` lists them.")
    several = ", ".join(place_of(row) for row in found[:_NAMED])
    more = f" and {len(found) - _NAMED} others" if len(found) > _NAMED else ""
    raise PortalError(
        f"Several quotas have this key; name one with {_telling(found)}: {several}{more}."
    )


def place_of(quota: Row) -> str:
    """Return cluster, namespace and name of a quota; a queue has no namespace."""
    parts = (quota["cluster"], quota["namespace"], quota["name"])
    return "/".join(part for part in parts if part)


def _telling(found: list[Row]) -> str:
    """Return the options by which quotas of one key differ."""
    options = {"cluster": "--cluster", "namespace": "-n", "name": "--quota"}
    differing = [option for f, option in options.items() if len({row[f] for row in found}) > 1]
    # Names of quotas are often the same everywhere: they tell apart only within a namespace.
    if "-n" in differing:
        differing = [option for option in differing if option != "--quota"]
    return " and ".join(differing) or "--quota"


def _matching(rows: list[Row], key: str, name: str) -> list[Row]:
    return [row for row in rows if row["key"] == key and name in ("", row["name"])]


def _written(amount: float) -> str:
    """Return an amount as the API writes those of requests: 8, 0.5."""
    return f"{Decimal(str(amount)).normalize():f}"


def request_change(portal: Portal, quota: Row, body: dict[str, Any], *, submit: bool) -> Row:
    """Write a request to change a quota, and submit it. Raises PortalError.

    `body` has `to` and `reason`, and may have `until`, `needed_by` and `team`.
    """
    place = {name: quota[name] for name in ("cluster", "namespace", "source", "name", "key")}
    if quota["hard"] is None:
        raise PortalError(
            f"{quota['key']} of {place_of(quota)} has no limit, so that none can be changed."
        )
    body = {**place, "from": _written(quota["hard"]), **body}
    (draft,) = checked([portal.post("quota-requests", body)], WRITTEN, "quota-requests")
    if not submit:
        return draft
    try:
        path = f"quota-requests/{draft['id']}/submit"
        answer = portal.post(path, {"version": draft["version"]})
        return checked([answer], WRITTEN, path)[0]
    except PortalError as error:
        raise PortalError(
            f"{error} The request is kept as a draft: {portal.url}/quotas/requests/{draft['id']}/"
        ) from error
