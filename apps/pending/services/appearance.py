"""How a diagnosis is kept with an episode: plain values that every database takes."""

from collections.abc import Mapping
from typing import Any

from apps.pending.domain.diagnosis import Diagnosis

SHOWN = (
    *("cause", "detail", "explanation", "message", "node_reasons", "context"),
    *("suggestions", "in_front"),
)
"""The fields of an episode that a diagnosis gives."""


def shown(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the fields of an episode that a diagnosis gives, as the database keeps them."""
    return {
        "cause": diagnosis.cause.value,
        "detail": named(diagnosis.detail, 120),
        "explanation": clean(diagnosis.explanation),
        "message": clean(diagnosis.message),
        "node_reasons": {clean(k): n for k, n in diagnosis.node_reasons.items()},
        "context": [clean(text) for text in diagnosis.context],
        "suggestions": [
            {"action": s.action.value, "text": clean(s.text), "change": _plain(s.change)}
            for s in diagnosis.suggestions
        ],
        "in_front": [clean(text) for text in diagnosis.in_front],
    }


def _plain(value: Any) -> Any:
    """Return what JSON makes of a value, so that it equals what is read back."""
    if isinstance(value, Mapping):
        return {clean(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """Return a text as PostgreSQL takes it: it keeps no NUL."""
    return text.replace("\0", "") if "\0" in text else text


def named(text: str, most: int = 253) -> str:
    return clean(text)[:most]
