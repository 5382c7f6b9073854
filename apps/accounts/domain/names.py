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
        **dict.fromkeys("\u0435\u03b5", "e"),
        **dict.fromkeys("\u0441\u03f2", "c"),
        "\u0445": "x",
        "\u0443": "y",
        "\u0455": "s",
        "\u0458": "j",
        "\u0501": "d",
        "\u051b": "q",
        "\u051d": "w",
        **dict.fromkeys("\u04bb\u0570", "h"),
        "\u03bd": "v",
        **dict.fromkeys("\u04cf\u0456\u03b9\u0131" + "1i|", "l"),
    }
)


def looks(name: str) -> str:
    """Return what a reader sees of a name: without case, accents and likeness of alphabets."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    bare = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return bare.translate(_READ_AS).strip(".@+-_ ")


def reads_as(one: str, other: str) -> bool:
    """Say whether two user names look the same to a reader, as `ada` in Latin and in Cyrillic.

    Of two names in ASCII case alone counts: their digits and letters are told apart. Accents
    count in all, as people are called by them.
    """
    one, other = (unicodedata.normalize("NFKC", name).casefold() for name in (one, other))
    if one == other or (one.isascii() and other.isascii()):
        return one == other
    return one.translate(_READ_AS) == other.translate(_READ_AS)


def is_reserved(name: str) -> bool:
    """Say whether a name is, or looks like, one that no person may have."""
    return looks(name) in {looks(reserved) for reserved in RESERVED}
