"""Text of unknown origin, made fit for a terminal or a log.

Keys, values and names are the user's, or those of whoever writes to the storage. Their control characters would move
the cursor, set the terminal's title or begin a line that looks like one of ours.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

_ESCAPED: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of characters that have an effect instead of a shape: controls, marks of direction, lone surrogates."""
_JOINERS: Final = "\u200c\u200d"
"""Letters of some scripts and emojis are written with them."""
_LINES: Final = "\n\t"


def visible(text: str, *, keeps_lines: bool = False) -> str:
    """The text with its control characters escaped; line ends and tabs stay if it `keeps_lines`."""
    if text.isprintable():
        return text
    kept = _JOINERS + _LINES if keeps_lines else _JOINERS
    return "".join([_escape(c) if _has_effect(c) and c not in kept else c for c in text])


def visible_json(text: str) -> str:
    """JSON text of the same values, in which the control characters of strings are escaped as JSON does it.

    JSON requires it only of those below U+0020, and a terminal obeys others too.
    """
    if text.isprintable():
        return text
    return "".join([json.dumps(c)[1:-1] if _has_effect(c) and c not in _JOINERS + _LINES else c for c in text])


def _has_effect(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
