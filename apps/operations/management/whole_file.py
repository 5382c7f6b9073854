"""Files that commands write."""

from pathlib import Path

from django.core.management.base import CommandError, OutputWrapper


def write_whole(text: str, name: str, out: OutputWrapper) -> bool:
    """Write a text to a file, or to standard output where the name is `-`; return whether a file.

    A file is never half written: what loads or mails it finds all of it or what was there before.
    Raises CommandError.
    """
    if name == "-":
        out.write(text, ending="")
        return False
    path = Path(name)
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        # In one folder, where a rename takes the place of the old file at once.
        part.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    return True
