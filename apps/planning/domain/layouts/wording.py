"""Sentences about layout advice, for the page and the documents."""

from collections.abc import Mapping

from apps.planning.domain.layouts.options import LeftAsIs

ASSUMPTIONS = (
    "The layout is taken to be there from the first day on.",
    "Quotas, queues and node selectors stay as they are.",
    "MIG layouts have only profiles that a tier offers. Each layout is full.",
    "Time-sliced GPUs get at most twice the replicas, as far as measured activity allows. Their "
    "memory is not checked.",
    "All work is placed anew, also with today's layout, on nodes as the scheduler of this cluster "
    "was found to choose them. Of demand that exceeds a tier, that decides how much is unmet.",
    "A node is away for half an hour while its layout changes, once its pods have ended.",
)
_LEFT: Mapping[LeftAsIs, str] = {
    LeftAsIs.CLAIMS: "their GPUs are given out by claims",
    LeftAsIs.CLOSED: "they take no pods now",
    LeftAsIs.CHANGED: "they had fewer GPUs, or another layout, in these days",
    LeftAsIs.TAINTED: "they are reserved by a taint",
    LeftAsIs.NO_CHOICE: "no tier offers another layout of them",
}


def left_text(reason: str, nodes: int) -> str:
    """Return why some nodes are not changed: `2 nodes are left as they are: …`."""
    is_one = nodes == 1
    why = _LEFT[LeftAsIs(reason)]
    if is_one:
        why = why.replace("they are", "it is").replace("they had", "it had")
        why = why.replace("they take", "it takes").replace("their", "its").replace("of them", "")
    return f"{nodes} node{' is' if is_one else 's are'} left unchanged: {why.strip()}."
