"""Changed copies of the structs that values are declared as."""

from typing import TYPE_CHECKING

# The same function, but mypy knows the fields of the first alone.
if TYPE_CHECKING:
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["replace"]
