"""A plain scheduler to hold suggestions against, and what carrying out a suggestion does.

Written apart from the portal's own reckoning, node by node, so that neither can hide the other's
mistakes.
"""

from collections.abc import Mapping

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    Expression,
    NodeSnapshot,
    ObservedObject,
    Placement,
    PodSnapshot,
    Taint,
    Toleration,
)
from apps.pending.domain.diagnosis import Action, Suggestion
from apps.pending.domain.wording import ALSO

Nodes = dict[str, NodeSnapshot]


def starts_on(pod: PodSnapshot, nodes: Nodes) -> list[str]:
    """Return the nodes on which a pod could start now."""
    return [name for name, node in nodes.items() if _takes(name, node, pod)]


def in_turn(suggestions: tuple[Suggestion, ...]) -> list[list[Suggestion]]:
    """Return the suggestions as the groups that belong together."""
    groups: list[list[Suggestion]] = []
    for one in suggestions:
        if one.text.startswith(ALSO) and groups:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def applied(one: Suggestion, pod: PodSnapshot, nodes: Nodes) -> tuple[PodSnapshot, Nodes]:
    """Return pod and nodes after a suggestion was carried out, on the first node that it names."""
    change = one.change
    on = str(change["nodes"][0]) if change.get("nodes") else ""
    match one.action:
        case Action.FREE:
            used = dict(nodes[on].used)
            left = used.get(change["resource"], 0.0) - change["amount"]
            assert left >= -1e-6, "more is to be freed than is used"
            used[change["resource"]] = left
            return pod, nodes | {on: replace(nodes[on], used=used)}
        case Action.UNCORDON:
            return pod, nodes | {name: _uncordoned(nodes[name]) for name in change["nodes"]}
        case Action.CHECK_NODE:
            well = replace(nodes[on], ready=True, taints=_without_sickness(nodes[on]))
            return pod, nodes | {on: well}
        case Action.ADD_NODE:
            # A node that the pod may go to: what it looks like is for its owner to choose.
            size = {r: units * 2 for r, units in pod.requests.items()}
            return replace(pod, placement=Placement()), nodes | {
                "added": NodeSnapshot({}, (), size)
            }
        case Action.REQUEST:
            requests = {r: u for r, u in pod.requests.items() if r != change["resource"]}
            requests[change.get("instead") or change["resource"]] = change["to"]
            return replace(pod, requests=requests), nodes
        case Action.TOLERATE:
            more = Toleration(change["key"], "Equal", change["value"], change["effect"])
            placement = pod.placement
            with_it = replace(placement, tolerations=(*placement.tolerations, more))
            return replace(pod, placement=with_it), nodes
        case Action.SELECT:
            return replace(pod, placement=_reselected(pod.placement, change)), nodes
    raise AssertionError(f"nobody can carry out {one}")


def _reselected(placement: Placement, change: Mapping[str, object]) -> Placement:
    remove, add = change["remove"], change.get("add", {})
    assert isinstance(remove, dict | list)
    assert isinstance(add, dict)
    texts = [f"{k}={v}" for k, v in remove.items()] if isinstance(remove, dict) else remove
    selector = {k: v for k, v in placement.node_selector.items() if f"{k}={v}" not in texts}
    terms = tuple(
        kept
        for term in placement.affinity
        if (kept := tuple(wish for wish in term if _said(wish) not in texts))
    )
    changed = any(_said(wish) in texts for term in placement.affinity for wish in term)
    # Where all of a term was dropped, nothing of it is asked for any more.
    affinity = terms if len(terms) == len(placement.affinity) or not changed else ()
    return replace(placement, node_selector=selector | add, affinity=affinity)


def _said(wish: Expression) -> str:
    values = ", ".join(wish.values)
    return f"{wish.key} {wish.operator} {values}" if values else f"{wish.key} {wish.operator}"


def _takes(name: str, node: NodeSnapshot, pod: PodSnapshot) -> bool:
    placement = pod.placement
    taints = list(node.taints)
    if node.unschedulable:
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    if not node.ready:
        taints.append(Taint("node.kubernetes.io/not-ready", "", "NoSchedule"))
    hard = [t for t in taints if t.effect in ("NoSchedule", "NoExecute")]
    return (
        all(node.labels.get(k) == v for k, v in placement.node_selector.items())
        and _wanted(name, node.labels, placement.affinity)
        and all(any(_bears(one, taint) for one in placement.tolerations) for taint in hard)
        and all(_has(node, resource, units) for resource, units in pod.requests.items())
        and _has(node, "pods", 1)
    )


def _has(node: NodeSnapshot, resource: str, units: float) -> bool:
    if resource not in node.allocatable:
        return resource in ("cpu", "memory", "pods") or units <= 0
    return node.allocatable[resource] - node.used.get(resource, 0.0) >= units - 1e-6


def _bears(one: Toleration, taint: Taint) -> bool:
    effect = one.effect in ("", taint.effect)
    if one.operator == "Exists":
        return effect and one.key in ("", taint.key)
    return effect and one.key == taint.key and one.value == taint.value


def _wanted(
    name: str, labels: Mapping[str, str], terms: tuple[tuple[Expression, ...], ...]
) -> bool:
    return not terms or any(bool(t) and all(_holds(w, name, labels) for w in t) for t in terms)


def _holds(wish: Expression, name: str, labels: Mapping[str, str]) -> bool:
    value = name if wish.field else labels.get(wish.key)
    match wish.operator:
        case "In":
            return value in wish.values
        case "NotIn":
            return value not in wish.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.isdigit():
        return False
    bound = int(wish.values[0])
    return int(value) > bound if wish.operator == "Gt" else int(value) < bound


def _uncordoned(node: NodeSnapshot) -> NodeSnapshot:
    """Return a node as it is once the controller has taken the taint of the cordon off."""
    cordon = "node.kubernetes.io/unschedulable"
    taints = tuple(t for t in node.taints if t.key != cordon)
    return replace(node, unschedulable=False, taints=taints)


def _without_sickness(node: NodeSnapshot) -> tuple[Taint, ...]:
    return tuple(t for t in node.taints if not t.key.startswith("node.kubernetes.io/"))


def nodes_of(sightings: list[ObservedObject]) -> Nodes:
    """Return the nodes among sightings, by name."""
    return {one.name: one.body for one in sightings if isinstance(one.body, NodeSnapshot)}
