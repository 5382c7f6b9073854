"""A stand-in API server that serves ready pages of bytes, in a process of its own.

    python -m tests.bench.api_server PODS

Prints its port, then serves until its input ends.
"""

import sys
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.bench.fleet import GPUS_PER_NODE, Fleet
from tests.bench.kube_json import controller_object, node_object, pod_object

CHUNK = 500
PODS = "/api/v1/pods"
_VERSION = "4200000"
_CONTROLLERS = {
    "CronJob": "/apis/batch/v1/cronjobs",
    "Deployment": "/apis/apps/v1/deployments",
    "Job": "/apis/batch/v1/jobs",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
}

Pages = Mapping[str, Sequence[bytes]]


def pages(pods: int) -> Pages:
    """Return path → chunks of a list, each as the bytes of its answer."""
    fleet = Fleet(-(-pods // GPUS_PER_NODE) * GPUS_PER_NODE)
    pairs = [(pod, node) for node in fleet.nodes for pod in node.pods][:pods]
    if len(pairs) < pods:
        raise ValueError(f"the fleet has {len(pairs)} pods, not {pods}")
    items = [msgspec.json.encode(pod_object(p, n, 100 + i)) for i, (p, n) in enumerate(pairs)]
    nodes = [msgspec.json.encode(node_object(node, 1)) for node in fleet.nodes]
    spaces = [
        msgspec.json.encode({"metadata": {"name": name, "uid": name}})
        for name in sorted({pod.namespace for pod, _ in pairs})
    ]
    found = {
        PODS: _chunks("PodList", items),
        "/api/v1/nodes": _chunks("NodeList", nodes),
        "/api/v1/namespaces": _chunks("NamespaceList", spaces),
    }
    for kind, path in _CONTROLLERS.items():
        owners = {
            (pod.namespace, owner): pod
            for pod, _ in pairs
            for owner in (pod.controller, (pod.kind, pod.owner))
            if owner[0] == kind
        }
        objects = [
            msgspec.json.encode(controller_object(pod, owner)) for (_, owner), pod in owners.items()
        ]
        found[path] = _chunks(f"{kind}List", objects)
    return found


def _chunks(kind: str, items: Sequence[bytes]) -> list[bytes]:
    parts = [items[n : n + CHUNK] for n in range(0, len(items), CHUNK)] or [[]]
    answers = []
    for number, part in enumerate(parts, start=1):
        more = str(number) if number < len(parts) else ""
        head = msgspec.json.encode({"resourceVersion": _VERSION, "continue": more})
        answers.append(
            b'{"kind":"%s","apiVersion":"v1","metadata":%s,"items":[%s]}\n'
            % (kind.encode(), head, b",".join(part))
        )
    return answers


def serve(found: Pages) -> None:
    """Serve the pages on a free port of 127.0.0.1 until standard input ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body would wait for each other

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            token = parse_qs(parts.query).get("continue", ["0"])[0]
            answers = found.get(parts.path)
            body = b"{}" if answers is None else answers[int(token)]
            self.send_response(404 if answers is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    serve(pages(int(sys.argv[1])))
