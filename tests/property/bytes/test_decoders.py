"""No bytes of a storage make a decoder crash, hang, or raise an error that is not ours, whoever wrote them (I8).

The seeds are golden files, so every format that was ever written is attacked, see `tests/jobs/decoders.py`.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from tests.jobs.decoders import DATA, DECODERS, ERRORS, NAME, mutated
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import CorruptDataError
from varvite.storage.format.frame import MAGIC, PREFIX_BYTES, frame

SHORT, LONG = 200, 50_000
"""Inputs per decoder: in each run, and in `make test-all`, which makes a million of all decoders."""
SLOWEST_S = 20.0
"""Time after which an input counts as a hang, however loaded the machine is."""


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("inputs", [SHORT, pytest.param(LONG, marks=[pytest.mark.rare, pytest.mark.timeout(3_600)])])
def test_a_decoder_gives_a_value_or_an_error_of_ours(name: str, inputs: int) -> None:
    seeds, decode = DECODERS[name]
    assert seeds
    for seed in seeds:
        decode(seed)
    rng = Random(f"{name} {inputs}")
    for _ in range(inputs):
        data = rng.choice(seeds)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = mutated(data, rng)
        begin = time.monotonic()
        try:
            decode(data)
        except ERRORS:
            pass
        except BaseException as error:
            error.add_note(f"decoder {name!r}, input {data!r}")
            raise
        assert time.monotonic() - begin < SLOWEST_S, data


def with_header(data: bytes, header: bytes) -> bytes:
    """The frame with another header and right checksums."""
    length = int.from_bytes(data[12:16], "big")
    return frame(data[6:10], int.from_bytes(data[10:12], "big"), header, data[PREFIX_BYTES + length :])


FRAMED = [name for name, decoder in DECODERS.items() if decoder.seeds[0].startswith(MAGIC) and name[:9] != "encrypted"]
ODD_HEADERS = {
    "invalid UTF-8": b'{"job_id":"\xff","name":"\xff","x":{"a":"\xff"}}',
    "100,000 brackets": b'{"job_id":' + b"[" * 100_000,
    "100,000 objects in a field that is skipped": b'{"x":' + b'{"a":' * 100_000,
    "no JSON": b"\0",
    "nothing": b"",
    "a number": b"1",
    "a number of 10,000 digits": b'{"seq":' + b"1" * 10_000 + b"}",
}


@pytest.mark.parametrize("header", ODD_HEADERS.values(), ids=ODD_HEADERS)
@pytest.mark.parametrize("name", FRAMED)
def test_a_header_that_anybody_may_have_written_is_damage_of_that_object(name: str, header: bytes) -> None:
    """`jobs`, `verify` and `sweep` of all jobs ended with UnicodeDecodeError or RecursionError of one of them."""
    seeds, decode = DECODERS[name]
    with pytest.raises(CorruptDataError, match="parse") as caught:
        decode(with_header(seeds[0], header))
    assert caught.value.context["object_name"] == NAME


def test_the_framed_objects_are_those_of_the_golden_files() -> None:
    framed = {path for path in DATA.rglob("*") if path.is_file() and path.read_bytes().startswith(MAGIC)}
    others = {path.name for path in framed if not any(path.read_bytes() in d.seeds for d in DECODERS.values())}
    assert others == {"frame.bin"}  # a container alone


ODD_VALUES: dict[str, tuple[Any, bytes]] = {
    "text that is not UTF-8": (as_type(Types.STRING()), b"\xa1\xff"),
    "text in a tuple": (as_type(Types.TUPLE([Types.STRING()])), b"\x91\xa1\xff"),
    "text in a list": (as_type(Types.LIST(Types.STRING())), b"\x91\xa1\xff"),
    "key of 100,000 tuples": (DynamicKeyType(), b"\x91" * 100_000),
    "key that is a Row whose names are a number": (DynamicKeyType(), b"\xc7\x03\x08\x92\x01\x02"),
}


@pytest.mark.parametrize("case", ODD_VALUES)
def test_a_value_that_anybody_may_have_written_is_damage(case: str) -> None:
    """Of texts and of dynamic keys came UnicodeDecodeError, RecursionError and TypeError."""
    kind, wire = ODD_VALUES[case]
    with pytest.raises(CorruptDataError):
        kind.thaw(kind.from_wire(wire))
