"""The figures of a large cluster in which much waits, on both databases."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most, stated
from tests.bench.programs import on_both

MOST_PAGE_SECONDS = 0.3
MOST_REFRESH_SECONDS = 5.0
MOST_PREFLIGHT_SECONDS = 0.5
MOST_MAP_SECONDS = 0.15
_PODS_OF_NODE = 20


def waited(nodes: int, waiting: int, folder: Path) -> Iterator[Figure]:
    """Yield what looking at so many waiting pods takes, and showing them."""
    for database, found in on_both("pending", nodes, waiting, folder=folder):
        size = f"{database}: {waiting:,} pods wait on {nodes:,} nodes"
        most = MOST_REFRESH_SECONDS
        yield at_most(
            f"{size}: waiting page, p95",
            found["page_seconds"] * 1000,
            MOST_PAGE_SECONDS * 1000,
            "ms",
        )
        yield at_most(f"{size}: waiting refresh, nothing new", found["same_seconds"], most, "s")
        yield at_most(f"{size}: waiting refresh, 500 started", found["started_seconds"], most, "s")
        yield at_most(f"{size}: waiting refresh, the first", found["first_seconds"], most, "s")
        yield stated(f"{size}: waiting look", found["look_seconds"], "s")


def checked(pods: int, folder: Path) -> Iterator[Figure]:
    """Yield what the page of preflight and the map take on a cluster of so many pods."""
    nodes = max(1, pods // _PODS_OF_NODE)
    for database, found in on_both("preflight", nodes, pods, folder=folder):
        size = f"{database}: {found['pods']:,} pods on {nodes:,} nodes"
        most = MOST_PREFLIGHT_SECONDS * 1000
        yield at_most(f"{size}: preflight of a pod, p95", found["one_seconds"] * 1000, most, "ms")
        yield at_most(
            f"{size}: preflight of 200 pods, p95", found["many_seconds"] * 1000, most, "ms"
        )
        most = MOST_MAP_SECONDS * 1000
        yield at_most(f"{size}: map of all nodes, p95", found["map_seconds"] * 1000, most, "ms")
