"""Schemas of text, bytes and fields: Java's rules for charsets, and errors that say what to do."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.formats.schemas import (
    ByteArraySchema,
    Encoder,
    RowFieldExtractorSchema,
    SimpleStringSchema,
)
from varvite.storage.errors import InvalidRequestError


def test_text_is_written_and_read_in_its_charset() -> None:
    assert SimpleStringSchema().serialize("é€") == "é€".encode()
    assert SimpleStringSchema("ISO-8859-1").serialize("é€") == b"\xe9?", "as String.getBytes"
    assert SimpleStringSchema("ISO-8859-1").deserialize(b"\xe9") == "é"
    assert SimpleStringSchema("utf-8").deserialize(b"a\xffb") == "a\ufffdb", "as new String(bytes)"
    copy = pickle.loads(pickle.dumps(SimpleStringSchema("UTF-16")))
    assert copy.deserialize("ab".encode("utf-16")) == "ab"
    assert SimpleStringSchema().get_produced_type() == Types.STRING()


def test_bytes_and_fields_are_as_they_are() -> None:
    assert ByteArraySchema().serialize(bytearray(b"a")) == ByteArraySchema().deserialize(b"a") == b"a"
    assert ByteArraySchema().get_produced_type() == Types.PRIMITIVE_ARRAY(Types.BYTE())
    extractor = pickle.loads(pickle.dumps(RowFieldExtractorSchema(1)))
    assert extractor.serialize(("a", b"b")) == b"b"
    assert extractor.serialize(("a", None)) == extractor.serialize(None) == b"", "as in Flink"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SimpleStringSchema("latin-99"), InvalidRequestError, "no charset"),
        (lambda: SimpleStringSchema().serialize(1), InvalidRequestError, r"map\(str"),
        (lambda: ByteArraySchema().serialize("a"), InvalidRequestError, "encode it"),
        (lambda: RowFieldExtractorSchema(-1), ValueError, "non-negative, got: -1"),
        (lambda: RowFieldExtractorSchema(2).serialize(("a", b"b")), InvalidRequestError, "no field 2"),
        (lambda: RowFieldExtractorSchema(0).serialize(("a", b"b")), InvalidRequestError, "field 0 .* bytes, not 'a'"),
        (lambda: Encoder.simple_string_encoder("UTF-16"), InvalidRequestError, "written in UTF-8"),
    ],
)
def test_what_does_not_fit_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
