"""What admission adds to pods, what ResourceQuotas count, and the refusal of a pod beyond one."""

from collections.abc import Mapping

from simulator.scheduler.amounts import is_over, quantity, requests_of, total, written
from simulator.scheduler.store import Object, Store

_REQUESTS = "requests."
_PODS = ("pods", "count/pods")
TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
]
"""What the plugin DefaultTolerationSeconds adds to every pod."""


class Forbidden(Exception):
    """A request that admission refuses with 403; its text is the whole message."""


def admit_pod(store: Store, pod: Object) -> None:
    """Raise Forbidden when a ResourceQuota of its namespace leaves no room for a pod."""
    meta = pod["metadata"]
    asked = requests_of(pod["spec"])
    for quota in store.all("resourcequotas", meta["namespace"]):
        hard = {key: quantity(text) for key, text in quota["spec"].get("hard", {}).items()}
        delta = {key: _of_pod(key, asked) for key in hard}
        used = used_of(store, quota)
        over = [
            key
            for key, amount in sorted(delta.items())
            if amount and used[key] + amount > hard[key]
        ]
        if over:
            raise Forbidden(
                f'pods "{meta["name"]}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
                f"requested: {_list(over, delta)}, used: {_list(over, used)}, "
                f"limited: {_list(over, hard)}"
            )


def used_of(store: Store, quota: Object) -> dict[str, float]:
    """Return what counts against each key that anything counts against."""
    pods = store.all("pods", quota["metadata"]["namespace"])
    counted = [requests_of(pod["spec"]) for pod in pods if not is_over(pod)]
    asked = total(counted)
    found = {}
    for key in quota["spec"].get("hard", {}):
        if key in _PODS:
            found[key] = float(len(counted))
        elif key.startswith(_REQUESTS) or key in {"cpu", "memory"}:
            found[key] = asked.get(key.removeprefix(_REQUESTS), 0.0)
    return found


def count_quotas(store: Store) -> None:
    """Bring the status of every ResourceQuota up to date."""
    for quota in store.all("resourcequotas"):
        used = {key: written(amount) for key, amount in used_of(store, quota).items()}
        status = {"hard": dict(quota["spec"].get("hard", {})), "used": used}
        if quota.get("status") != status:
            store.change("resourcequotas", quota, lambda item, s=status: item.update(status=s))  # type: ignore[misc]


def _of_pod(key: str, asked: Mapping[str, float]) -> float:
    if key in _PODS:
        return 1.0
    if key.startswith(_REQUESTS) or key in {"cpu", "memory"}:
        return asked.get(key.removeprefix(_REQUESTS), 0.0)
    return 0.0


def _list(keys: list[str], amounts: Mapping[str, float]) -> str:
    return ",".join(f"{key}={written(amounts[key])}" for key in keys)
