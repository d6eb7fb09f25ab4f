"""Every option of `varvite materialize` may come from the variable that is named like it."""

from __future__ import annotations

import click
import pytest

from varvite.materializer.commands.cli import materialize

GIVEN = {
    "duration": ("7 s", 7_000),
    "size": ("8 mb", 8 << 20),
    "integer": ("9", 9),
    "float": ("2.5", 2.5),
    "boolean": ("true", True),
    "text": ("a=b", "a=b"),
    "path": ("work", "work"),
}
"""Type of an option → the text of the variable and what becomes of it."""
OPTIONS = {
    option: parameter
    for parameter in materialize.params
    if isinstance(parameter, click.Option) and not parameter.hidden
    for option in [max(parameter.opts, key=len)]
}


def read() -> click.Context:
    return materialize.make_context("materialize", [])


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_read_from_the_variable_of_its_name(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = OPTIONS[option]
    text, value = GIVEN[parameter.type.name]
    monkeypatch.setenv("VARVITE_MATERIALIZE_" + option.removeprefix("--").replace("-", "_").upper(), text)
    found = read().params[str(parameter.name)]
    if option == "--storage-option":
        assert found == {"a": "b"}
    elif option == "--conf":
        assert found == ("a=b",)
    else:
        assert (str(found) if parameter.type.name == "path" else found) == value


def test_a_variable_that_cannot_be_right_is_an_error_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARVITE_MATERIALIZE_RETENTION", "soon")
    with pytest.raises(click.BadParameter, match="duration") as raised:
        read()
    assert raised.value.param is OPTIONS["--retention"]


def test_the_options_are_there() -> None:
    assert {"--storage", "--interval", "--retention", "--memory", "--share", "--once"} <= set(OPTIONS)
