"""Defaults in `--help` are the real ones."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import click
import pytest

from varvite.materializer.commands.cli import main, materialize
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.storage.options.declaration import options_of

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = re.compile(r"\[default: ([^]]*)\]")
NONE = frozenset(
    {
        *(option.unset for option in options_of(MaterializerConfig).values()),
        "no limit",
        "all",
        "the newest",
        "this user's",
        "the names and addresses of this machine",
    }
)
"""Text of a default that is no value."""
FIELDS = {
    name: field.default
    for name, field in MaterializerConfig.__dataclass_fields__.items()
    if field.default is not dataclasses.MISSING and name != "storage_options"
}


def options_of(command: click.Command) -> Iterator[click.Option]:
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from options_of(one)
    yield from (one for one in command.params if isinstance(one, click.Option))


@pytest.mark.parametrize(
    "option", [one for one in materialize.params if FIELDS.get(one.name or "") is not None], ids=lambda one: one.name
)
def test_the_materializers_options_tell_the_defaults_of_its_configuration(option: click.Option) -> None:
    default = FIELDS[option.name or ""]
    told = DEFAULT.search(option.help or "")
    if told is None or told[1] in NONE:
        assert default in ("", False), "it has a default that is not told"
    else:
        assert option.type.convert(told[1], option, None) == default


def test_no_other_command_has_a_default_written_by_hand() -> None:
    for option in options_of(main):
        told = DEFAULT.search(option.help or "")
        if told is not None and option not in materialize.params:
            assert told[1] in NONE
            assert option.to_info_dict()["default"] is None
