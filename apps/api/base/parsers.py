"""Bodies: JSON as RFC 8259 has it, and nothing that only some readers would take for it."""

import codecs
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser


class StrictJSONParser(BaseParser):
    """Read JSON; what one reader would understand otherwise than another is an error.

    DRF's parser reads a body however long it is, keeps the last of two members of one name, fails
    where a body is nested a thousand deep, and lets through halves of surrogate pairs, which no
    UTF-8 can hold.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what the body says. Raises ParseError, and RequestDataTooBig."""
        most: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raw: bytes = stream.read(most + 1)
        if len(raw) > most:
            raise RequestDataTooBig
        try:
            text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8")
            found = json.loads(text, parse_constant=_no_number, object_pairs_hook=_once)
            json.dumps(found, ensure_ascii=False).encode("utf-8")
        except RecursionError as error:
            raise ParseError("The body is nested too deep.") from error
        except UnicodeDecodeError as error:
            raise ParseError(f"The body is not UTF-8: see byte {error.start}.") from error
        except UnicodeEncodeError as error:
            raise ParseError("The body has half of a surrogate pair, as \\ud800.") from error
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from error
        return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        twice, _ = Counter(name for name, _ in members).most_common(1)[0]
        raise ValueError(f"{twice[:80]!r} is given more than once")
    return found
