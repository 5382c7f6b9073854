"""Pods of the rendered manifests as processes of this machine, without containers.

Each container gets a view of the file system of its own (`unshare`): the checkout where an image
has it, its volumes where they are mounted, everything else read-only; and a host name. Command,
variables, mounts, ports and probes are those of the manifest, with one change: see `at_address`.
"""

import functools
import http.client
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.deploy.rendering import ROOT, Manifest

WORKDIR = "/srv/gpuportal"
# Under /tmp a checkout is hidden by the pod's own.
_BIN = (
    f"{WORKDIR}/.venv/bin"
    if Path(sys.executable).is_relative_to(ROOT)
    else Path(sys.executable).parent
)
_STOP_SECONDS = 20.0
# What the Dockerfile sets; the account has no home.
_IMAGE = {
    "PATH": f"{_BIN}:/usr/local/bin:/usr/bin:/bin",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/nonexistent",
}
# Folders of this machine that get an upper layer: volumes are mounted on paths below them.
_LAYERED = ("etc", "run", "srv", "var")


def at_address(words: str, address: str) -> str:
    """Return words of a command for a pod of this address.

    All pods share the network of this machine, where each has an address and keeps its ports.
    """
    return words.replace("0.0.0.0", address)  # noqa: S104 - what is replaced


@functools.cache
def _namespaces() -> list[str]:
    """Return the words that begin a pod; with a user namespace where this is not root."""
    own = ["unshare", "--mount", "--uts"]
    return own if os.geteuid() == 0 else [*own, "--user", "--map-root-user"]


@functools.cache
def can_run() -> bool:
    """Say whether this machine lets a process have a file system and a host name of its own."""
    tried = "mount -t tmpfs tmpfs /mnt && mount -o remount,bind,ro / && hostname pod"
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [*_namespaces(), "sh", "-c", tried], check=False, capture_output=True
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


class Objects(Struct):
    """What the API server has beside workloads: ConfigMaps, Secrets, claims and tokens."""

    folder: Path
    config_maps: dict[str, dict[str, str]]
    secrets: dict[str, dict[str, str]]
    tokens: dict[str, str]
    """By service account."""
    static: Path
    variables: dict[str, str]
    """Those that the kubelet gives each container."""

    def claim(self, name: str) -> Path:
        """Return the folder behind a PersistentVolumeClaim, which all pods share."""
        return _made(self.folder / "claims" / name)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Pod(Struct):
    """A pod of a workload's template. `start` runs its containers, `terminate` ends them."""

    name: str
    address: str
    template: Manifest
    objects: Objects
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return _made(self.objects.folder / "pods" / self.name)

    @property
    def spec(self) -> Manifest:
        spec: Manifest = self.template["spec"]
        return spec

    def container(self, name: str = "portal") -> Manifest:
        """Return a container of the pod, one of its start too."""
        every = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        (found,) = (one for one in every if one["name"] == name)
        return dict(found)

    # ------------------------------------------------------------ processes

    def run(self, name: str = "portal") -> subprocess.Popen[bytes]:
        """Begin a container; its output is in `NAME.log`."""
        container = self.container(name)
        words = [at_address(word, self.address) for word in container["command"]]
        with (self.folder / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - the manifest's words
                [*_namespaces(), "sh", "-e", "-c", self._script(container), "sh", *words],
                cwd="/",
                env=self.environment(container),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def start(self) -> None:
        """Begin all containers but those of the start."""
        for container in self.spec["containers"]:
            self.run(container["name"])

    def execute(
        self, *words: str, container: str = "portal", given: str = "", seconds: float = 120.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in a container that runs, as `kubectl exec` and probes do."""
        inside = ["--target", str(self.processes[container].pid), "--mount", "--uts"]
        if os.geteuid() != 0:
            inside += ["--user", "--preserve-credentials"]
        there = f'cd {WORKDIR} && exec "$@"'
        return subprocess.run(  # noqa: S603 - our own words
            ["/usr/bin/nsenter", *inside, "sh", "-c", there, "sh", *words],
            env=self.environment(self.container(container)),
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def kill(self, name: str = "portal") -> None:
        """End a container as the OOM killer does, with all its processes."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def terminate(self) -> None:
        """Ask all containers to end."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()

    def wait(self) -> None:
        """Wait until all containers have ended."""
        for process in self.processes.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def log(self) -> str:
        return "\n".join(
            f"--- {self.name} {path.stem}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    # ------------------------------------------------------------ as the kubelet prepares them

    def environment(self, container: Manifest) -> dict[str, str]:
        """Return the variables of a container: nothing of the test's own comes along."""
        found = {**_IMAGE, **self.objects.variables, "HOSTNAME": self.name}
        for source in container.get("envFrom", ()):
            found |= self._source(source)
        for one in container.get("env", ()):
            found[one["name"]] = one["value"]
        if found.get("GPUPORTAL_METRICS_PORT"):
            found["GPUPORTAL_METRICS_ADDRESS"] = self.address
        return found

    def _source(self, source: Manifest) -> dict[str, str]:
        for kind, held in (
            ("configMapRef", self.objects.config_maps),
            ("secretRef", self.objects.secrets),
        ):
            if kind in source:
                return _of(held, source[kind]["name"], source[kind].get("optional", False))
        raise AssertionError(f"a source that is not known here: {source}")

    def renew_tokens(self) -> None:
        """Write the tokens of accounts anew, as the kubelet does before they end."""
        for volume in self.spec.get("volumes", ()):
            if "projected" in volume:
                self._volume(volume)

    def _volume(self, volume: Manifest) -> Path:
        """Return the folder behind a volume, with its files."""
        if "persistentVolumeClaim" in volume:
            return self.objects.claim(volume["persistentVolumeClaim"]["claimName"])
        folder = _made(self.folder / "volumes" / volume["name"])
        if "emptyDir" in volume:
            folder.chmod(0o777)
            return folder
        for name, text in self._files(volume):
            new = folder / f".{name}"
            new.write_text(text, encoding="utf-8")
            new.chmod(0o440)
            new.rename(folder / name)
        return folder

    def _files(self, volume: Manifest) -> Iterator[tuple[str, str]]:
        """Yield name and text of the files of a volume."""
        if "secret" in volume:
            held, of = self.objects.secrets, volume["secret"]
            yield from _chosen(_of(held, of["secretName"], of.get("optional", False)), of)
        elif "configMap" in volume:
            of = volume["configMap"]
            yield from _chosen(_of(self.objects.config_maps, of["name"], of.get("optional")), of)
        else:
            for source in volume["projected"]["sources"]:
                if "serviceAccountToken" in source:
                    token = self.objects.tokens[self.spec["serviceAccountName"]]
                    yield source["serviceAccountToken"]["path"], token
                elif "configMap" in source:
                    of = source["configMap"]
                    yield from _chosen(self.objects.config_maps[of["name"]], of)
                else:
                    for item in source["downwardAPI"]["items"]:
                        assert item["fieldRef"]["fieldPath"] == "metadata.namespace"
                        yield item["path"], "gpuportal"

    def _script(self, container: Manifest) -> str:
        """Return what a shell does before it becomes the container's command."""
        stage = _made(self.folder / "layers" / container["name"])
        lines = [f"hostname {self.name}", f"mount -t tmpfs tmpfs {stage}"]
        for name in _LAYERED:
            upper, work = f"{stage}/{name}", f"{stage}/.{name}"
            options = f"lowerdir=/{name},upperdir={upper},workdir={work}"
            lines += [f"mkdir {upper} {work}", f"mount -t overlay overlay -o {options} /{name}"]
        places = {WORKDIR: (ROOT, True), f"{WORKDIR}/var": (self.objects.static, True)}
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            folder = self._volume(volumes[mount["name"]])
            places[mount["mountPath"]] = (folder, mount.get("readOnly", False))
        # /tmp hides what lies below it on this machine, so it is last.
        for path, (folder, read_only) in sorted(places.items(), key=lambda one: one[0] == "/tmp"):  # noqa: S108
            if not path.startswith((f"{WORKDIR}/", "/tmp")):  # noqa: S108 - both are there
                lines.append(f"mkdir -p {path}")
            lines.append(f"mount --bind {shlex.quote(str(folder))} {path}")
            if read_only:
                lines.append(f"mount -o remount,bind,ro {path}")
        if ROOT.is_relative_to("/tmp"):  # noqa: S108
            # Programs of an environment name their Python by its path on this machine.
            lines += [f"mkdir -p {ROOT}", f"mount --bind {WORKDIR} {ROOT}"]
        if container["securityContext"]["readOnlyRootFilesystem"]:
            lines += [f"mount -o remount,ro /{name}" for name in _LAYERED]
            lines.append("mount -o remount,bind,ro /")
        return "\n".join([*lines, f"cd {WORKDIR}", 'exec "$@"'])

    # ------------------------------------------------------------ probes

    def port(self, port: int | str, container: str = "portal") -> int:
        """Return the number of a port of a container."""
        if isinstance(port, int):
            return port
        (found,) = (p for p in self.container(container)["ports"] if p["name"] == port)
        return int(found["containerPort"])

    def passes(self, probe: str, container: str = "portal") -> bool:
        """Ask a probe of a container, once, as the kubelet does: by address and without a host."""
        asked: Mapping[str, Any] = self.container(container)[probe]
        seconds = float(asked.get("timeoutSeconds", 1))
        if "exec" in asked:
            try:
                done = self.execute(*asked["exec"]["command"], container=container, seconds=seconds)
            except subprocess.TimeoutExpired:
                return False
            return done.returncode == 0
        get = asked["httpGet"]
        status, _ = fetched(self.address, self.port(get["port"], container), get["path"], seconds)
        return 200 <= status < 400


def _of(held: Mapping[str, dict[str, str]], name: str, optional: bool | None) -> dict[str, str]:
    if name not in held:
        assert optional, f"{name} is not there: the pod would not start"
        return {}
    return held[name]


def _chosen(held: dict[str, str], of: Manifest) -> Iterator[tuple[str, str]]:
    if "items" not in of:
        yield from held.items()
        return
    for item in of["items"]:
        yield item["path"], held[item["key"]]


def fetched(address: str, port: int, path: str, seconds: float = 10.0) -> tuple[int, str]:
    """Return status and text of an answer; status 0 where nobody answers."""
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def until(
    condition: Callable[[], bool], what: str, pods: list[Pod], *, seconds: float = 120.0
) -> None:
    """Wait until a condition holds; fails with the logs of the pods."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}\n" + "\n".join(p.log() for p in pods))
        pause.wait(0.2)
