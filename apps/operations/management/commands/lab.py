"""`lab`: the simulator of a cluster, where it is installed. Production images leave it out."""

try:
    from simulator.command import Command
except ModuleNotFoundError as missing:
    raise SystemExit("The simulator is not installed here: it is not part of images.") from missing

__all__ = ["Command"]
