"""How to fix, as something to paste: the commands and snippets of a suggestion.

Values come from the cluster: what a shell reads is quoted for it, and YAML scalars are JSON
strings, which are YAML too. Where there is no short and certain form there is none.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from apps.pending.domain.diagnosis import Action
from apps.pending.domain.wording import ALSO
from apps.pending.selectors import SuggestionRow
from apps.quotas.domain.keys import QuotaRef
from apps.web.components.commands import kubectl
from apps.web.quota_requests.request_input import ask_href

SuggestedChange = Mapping[str, Any]
_MOST_NODES = 3
_ASKERS = frozenset(
    {
        *(Action.TOLERATE, Action.SELECT, Action.REQUEST, Action.CREATE_CLAIM),
        *(Action.CHANGE_CLAIM, Action.CREATE_VOLUME, Action.FIX_IMAGE, Action.CHECK_CONTAINER),
        *(Action.SET_SCHEDULER, Action.RELAX, Action.COMPLETE_GANG, Action.UNSUSPEND),
        *(Action.SPECIFY, Action.UNGATE),
    }
)


class FixStep(Struct, frozen=True):
    """One suggestion: `also` goes with the one before it; `who` can do it; `code` to paste.

    `ask` is the address at which the quota can be asked for that it speaks of; empty for others.
    """

    text: str
    also: bool
    who: str
    code: str
    code_is: str
    ask: str = ""


class FixSubject(Protocol):
    """What suggestions are about: pending work, or work that is not submitted yet."""

    @property
    def cluster(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def suggestions(self) -> Sequence[SuggestionRow]: ...


class FixTarget(Struct, frozen=True):
    """Work that is not submitted yet: no command can name it."""

    cluster: str
    namespace: str
    kind: str = ""
    name: str = ""
    suggestions: Sequence[SuggestionRow] = ()


def help_of(row: FixSubject, *, reason: str = "") -> list[FixStep]:
    """Return how to fix it, the best first; a request of quota begins with the reason.

    Steps with the same snippet are one, in the words of the last: that names all of its nodes.
    """
    steps: dict[object, FixStep] = {}
    for number, one in enumerate(row.suggestions):
        step = _help(one, row, reason)
        steps[step.code if step.code_is == "snippet" else number] = step
    return list(steps.values())


def _help(one: SuggestionRow, row: FixSubject, reason: str) -> FixStep:
    also = one.text.startswith(ALSO)
    text = one.text.removeprefix(ALSO)
    code = _code(one, row)
    return FixStep(
        text=text[:1].upper() + text[1:] if also else text,
        also=also,
        who=owner_of(one.action),
        code=code,
        code_is="command" if code.startswith("kubectl") else "snippet" if code else "",
        ask=ask_of(one, row, reason=reason),
    )


def ask_of(one: SuggestionRow, row: FixSubject, *, reason: str = "") -> str:
    """Return where the change of a quota can be asked for that a suggestion speaks of."""
    change = one.change
    try:
        if one.action == Action.RAISE_QUOTA:
            space = change.get("namespace") or row.namespace
            names = ("ResourceQuota", space, change["quota"], change["key"])
        elif one.action == Action.RAISE_QUEUE_QUOTA and change["flavor"]:
            cell = f"{change['flavor']}/{change['resource']}"
            names = ("ClusterQueue", "", change["cluster_queue"], cell)
        else:
            return ""
        ref = QuotaRef(*names, row.cluster)
        return ask_href(ref, after=_quantity(change["to"]), reason=reason)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""  # kept by another version of the portal: the words are there all the same


def owner_of(action: str) -> str:
    """Return who can carry out an action; empty where no action is needed."""
    if action == Action.WAIT:
        return ""
    return "workload owner" if action in _ASKERS else "platform admin"


def _code(one: SuggestionRow, row: FixSubject) -> str:
    """Return commands or a snippet; empty where the change lacks what these need."""
    write = _WRITERS.get(one.action)
    if write is None:
        return ""
    try:
        return write(one.change, row)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""  # kept by another version of the portal: the words are there all the same


def _scalar(value: object) -> str:
    return json.dumps(
        value if isinstance(value, str | int | bool) else str(value), ensure_ascii=False
    )


def _number(value: object) -> str:
    number = float(value) if isinstance(value, int | float | str) else 0.0
    return str(int(number)) if number.is_integer() else repr(number)


def _patch(kind: str, name: str, patch: object, namespace: str = "") -> str:
    text = json.dumps(patch, ensure_ascii=False)
    return kubectl("patch", kind, name, "--type", "merge", "--patch", text, namespace=namespace)


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _tolerate(change: SuggestedChange, _row: FixSubject) -> str:
    value = change["value"]
    how = ["  operator: Equal", f"  value: {_scalar(value)}"] if value else ["  operator: Exists"]
    head = ["tolerations:", f"- key: {_scalar(change['key'])}"]
    return _joined([*head, *how, f"  effect: {_scalar(change['effect'])}"])


def _select(change: SuggestedChange, _row: FixSubject) -> str:
    remove, add = change["remove"], change.get("add") or {}
    if not isinstance(remove, Mapping):
        return ""  # expressions: their place in the affinity is not known here
    gone = [f"# remove {_scalar(k)}: {_scalar(v)}" for k, v in remove.items() if k not in add]
    kept = [f"  {_scalar(key)}: {_scalar(value)}" for key, value in add.items()]
    return _joined([*(["nodeSelector:", *kept] if kept else []), *gone])


def _uncordon(change: SuggestedChange, _row: FixSubject) -> str:
    return _joined([kubectl("uncordon", name) for name in change["nodes"][:_MOST_NODES]])


def _raise_quota(change: SuggestedChange, row: FixSubject) -> str:
    patch = {"spec": {"hard": {change["key"]: _quantity(change["to"])}}}
    namespace = change.get("namespace") or row.namespace
    return _patch("resourcequota", change["quota"], patch, namespace)


def _quantity(value: object) -> str:
    return value if isinstance(value, str) else _number(value)


def _resume(change: SuggestedChange, row: FixSubject) -> str:
    if row.kind == "PodGroup":
        return ""  # a queue of Volcano, which its own tool opens
    patch = {"spec": {"stopPolicy": "None"}}
    commands = []
    if change.get("cluster_queue"):
        commands.append(_patch("clusterqueue", change["cluster_queue"], patch))
    if change.get("local_queue"):
        namespace, _, name = change["local_queue"].partition("/")
        commands.append(_patch("localqueue", name, patch, namespace))
    return _joined(commands)


def _request(change: SuggestedChange, _row: FixSubject) -> str:
    resource = change.get("instead") or change["resource"]
    amount = _scalar(_number(change["to"]))
    return _joined(["resources:", "  limits:", f"    {_scalar(resource)}: {amount}"])


def _scheduler(change: SuggestedChange, _row: FixSubject) -> str:
    return f"schedulerName: {_scalar(change['to'])}"


def _activate(change: SuggestedChange, row: FixSubject) -> str:
    namespace = change.get("namespace") or row.namespace
    patch = {"spec": {"active": True}}
    return _patch("workloads.kueue.x-k8s.io", change["name"], patch, namespace)


def _unsuspend(change: SuggestedChange, row: FixSubject) -> str:
    # Of work that is not submitted yet there is nothing to patch.
    if isinstance(row, FixTarget):
        return "suspend: false"
    namespace = change.get("namespace") or row.namespace
    return _patch(change["kind"].lower(), change["name"], {"spec": {"suspend": False}}, namespace)


def _container_logs(change: SuggestedChange, row: FixSubject) -> str:
    logs = ("logs", row.name, "--container", change["container"], "--previous")
    return _joined(
        [_describe_pod(change, row), kubectl(*logs, namespace=row.namespace)]
        if row.kind == "Pod"
        else []
    )


def _describe_pod(_change: SuggestedChange, row: FixSubject) -> str:
    return (
        kubectl("describe", "pod", row.name, namespace=row.namespace) if row.kind == "Pod" else ""
    )


def _node_conditions(change: SuggestedChange, _row: FixSubject) -> str:
    return _joined([kubectl("describe", "node", name) for name in change["nodes"][:_MOST_NODES]])


def _fix_volume(change: SuggestedChange, row: FixSubject) -> str:
    commands = []
    if change.get("driver"):  # a node's CSINode lists the drivers that are registered there
        commands.append(kubectl("describe", "csinode", change["node"]))
    if row.kind == "Pod":
        commands.append(_describe_pod(change, row))
    return _joined(commands)


def _add_node(change: SuggestedChange, _row: FixSubject) -> str:
    """Return what the new nodes are to show: how one comes by them is not the cluster's to say."""
    count, units = int(change.get("count", 1)), _quantity(change["amount"])
    head = "# a node" if count == 1 else f"# {count} nodes, each"
    offer = f"    {_scalar(change['resource'])}: {_scalar(units)}"
    return _joined([f"{head} with at least", "status:", "  allocatable:", offer])


_WRITERS: Mapping[str, Callable[[SuggestedChange, FixSubject], str]] = {
    Action.TOLERATE: _tolerate,
    Action.SELECT: _select,
    Action.UNCORDON: _uncordon,
    Action.RAISE_QUOTA: _raise_quota,
    Action.RESUME_QUEUE: _resume,
    Action.REQUEST: _request,
    Action.SET_SCHEDULER: _scheduler,
    Action.ACTIVATE: _activate,
    Action.UNSUSPEND: _unsuspend,
    Action.FIX_IMAGE: _describe_pod,
    Action.FIX_VOLUME: _fix_volume,
    Action.ADD_NODE: _add_node,
    Action.CHECK_CONTAINER: _container_logs,
    Action.CHECK_NODE: _node_conditions,
}
