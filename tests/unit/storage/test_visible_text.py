"""Control characters of names, keys and values are shown, and have no effect."""

from __future__ import annotations

import json

import pytest

from varvite.storage.errors import CorruptDataError
from varvite.storage.visible_text import visible, visible_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\rb\x00\x7f", r"a\rb\x00\x7f"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u2028\ud800", r"\u2028\ud800"),
        ("Zürich 東京\u3000 10\u00a0€", "Zürich 東京\u3000 10\u00a0€"),
        ("👨\u200d👩 \u200c", "👨\u200d👩 \u200c"),
        (r"C:\new", r"C:\new"),
    ],
)
def test_what_has_no_shape_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_an_error_shows_no_control_characters_and_keeps_its_lines() -> None:
    error = CorruptDataError("key \x1b[2J\nsecond line", operator="op\x1b\n2026 INFO forged", object_name="a\x9bb")
    assert str(error) == r"key \x1b[2J" + "\nsecond line " + r"[operator=op\x1b\n2026 INFO forged, object_name=a\x9bb]"


def test_json_of_the_same_values_has_no_control_characters() -> None:
    """JSON escapes those below U+0020 only; U+009B begins a terminal's command as ESC [ does."""
    value = {"k\x9b2J": ["\x7f\u202e\u2028", "\U000e0001", "Zürich 👨\u200d👩", 'a\\"\n']}
    text = json.dumps(value, ensure_ascii=False)
    shown = visible_json(text)
    assert json.loads(shown) == value
    assert r"k\u009b2J" in shown
    assert visible(shown) == shown
    assert "Zürich 👨" in shown
