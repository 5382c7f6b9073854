"""Versions, limits and continue tokens as requests to the Kubernetes API carry them."""

import base64
import binascii
import json

from simulator.kubernetes.objects import Object
from simulator.kubernetes.status import invalid
from simulator.responses import Parameters, one


def key_of(metadata: Object) -> str:
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    return f"{namespace}/{name}" if namespace else str(name)


def continue_token(version: int, after: str) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{after}\u0000"})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded.encode()))
        return int(found["rv"]), str(found["start"]).rstrip("\u0000")
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise invalid(f"invalid continue token: continue key is not valid: {error}") from error


def version_of(text: str) -> int:
    if text and not text.isdecimal():
        raise invalid(f'resourceVersion: Invalid value: "{text}": not a whole number')
    return int(text or 0)


def whole_number(parameters: Parameters, name: str) -> int:
    text = one(parameters, name)
    if text and not text.isdecimal():
        raise invalid(f'{name}: Invalid value: "{text}": not a whole number')
    return int(text or 0)
