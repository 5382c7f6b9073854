"""What kubectl asks to complete `kubectl gpuportal …`: the program `kubectl_complete-gpuportal`."""

import sys
from collections.abc import Sequence

from typer.main import get_command

from gpuportal_client.commands import app
from gpuportal_client.output import Output

_NO_FILES, _FILES = ":4", ":0"
"""Directives of Cobra, which kubectl reads in the last line: offer names of files too, or not."""
_OUTPUT = ("-o", "--output")


def main() -> None:
    """Write the choices for the last of the words, one a line, and what the shell may add."""
    words = sys.argv[1:] or [""]
    choices = completions(words)
    directive = _FILES if _takes_file(words) and not choices else _NO_FILES
    sys.stdout.write("\n".join([*choices, directive]) + "\n")


def completions(words: Sequence[str]) -> list[str]:
    """Return what the last word may become: a command, an option, or a format after `-o`."""
    *before, last = words
    commands = get_command(app).commands  # type: ignore[attr-defined]
    command = commands.get(before[0]) if before else None
    if not before:
        found = list(commands)
    elif before[-1] in _OUTPUT:
        found = list(Output)
    elif command is not None and last.startswith("-"):
        options = [one for param in command.params for one in (*param.opts, *param.secondary_opts)]
        found = [one for one in options if one.startswith("-")]
    else:
        # Names of pods and quotas would be a question to the portal at each press of the key.
        found = []
    return sorted(one for one in found if one.startswith(last))


def _takes_file(words: Sequence[str]) -> bool:
    return len(words) > 1 and words[0] == "preflight" and not words[-1].startswith("-")
