"""One alert of a rules file of Prometheus."""

from typing import Any


def alert(
    name: str, expression: str, pending: str, severity: str, summary: str, description: str
) -> dict[str, Any]:
    """Return a rule; it goes off when the expression has been true for `pending`."""
    return {
        "alert": name,
        "expr": expression,
        "for": pending,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }
