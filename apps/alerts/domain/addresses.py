"""E-mail addresses: enough of a look to find typing errors and headers smuggled in."""

import re

_ADDRESS = re.compile(r"[^\s@,;<>\"()\[\]\\%!]+@[^\s@,;<>\"()\[\]\\]+\.[^\s@,;<>\"()\[\]\\.]+")
_LONGEST = 254


def e_mail_address(written: str) -> str | None:
    """Return one plain address, its domain in lower case; None where that is none.

    A name with a % or ! may be a route: some mail servers send that on to another domain.
    """
    if len(written) > _LONGEST or not written.isprintable() or not _ADDRESS.fullmatch(written):
        return None
    name, _, domain = written.rpartition("@")
    return f"{name}@{domain.lower()}"
