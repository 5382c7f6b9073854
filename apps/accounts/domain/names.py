"""User names that are nobody's: with one of them a person would be taken for the portal itself."""

import unicodedata

PORTAL = "portal"
"""What the audit and the history of a request call the portal where it acts by itself."""

RESERVED = frozenset({PORTAL})

# Signs of other alphabets, and digits, that are read as the letters of a reserved name.
_READ_AS = str.maketrans(
    {
        **dict.fromkeys("\u0440\u03c1", "p"),
        **dict.fromkeys("\u043e\u03bf\u0585" + "0", "o"),
        **dict.fromkeys("\u0433\u1d26", "r"),
        **dict.fromkeys("\u0442\u03c4", "t"),
        **dict.fromkeys("\u0430\u03b1", "a"),
        **dict.fromkeys("\u04cf\u0456\u03b9\u0131" + "1i|", "l"),
    }
)


def looks(name: str) -> str:
    """Return what a reader sees of a name: without case, accents and likeness of alphabets."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    bare = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return bare.translate(_READ_AS).strip(".@+-_ ")


def is_reserved(name: str) -> bool:
    """Say whether a name is, or looks like, one that no person may have."""
    return looks(name) in {looks(reserved) for reserved in RESERVED}
