"""Runs one measurement in a process of its own and prints what it found as a line of JSON.

python -m tests.bench.worker MEASUREMENT ARGUMENT…
"""

import json
import sys
from importlib import import_module

import django

WITHOUT_DJANGO = {"dataframes"}


def main(name: str, *arguments: str) -> None:
    """Run `measure` of a module, of the bench if none is named. Its imports count to its memory."""
    if name not in WITHOUT_DJANGO:
        django.setup()
    module = import_module(name if "." in name else f"tests.bench.{name}")
    sys.stdout.write(json.dumps(module.measure(*arguments)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
