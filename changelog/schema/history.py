"""The versions of the value schema of one state, and the reading of stored values of each; pure.

Each version is reached from the one before by a step that `varvite.changelog.types.evolution` knows. A value of an
older version becomes a current one by taking every step in between, never by a shortcut: a field that was dropped and
later added again is empty, whether a store converted the value in between (hashmap) or not (RocksDB). So the state is a
function of the log alone (I5).

When TTL is switched on the type becomes `stamped<T>`, which is a version like any other: older values get the lowest
stamp. Stamps never go away again, and conversions of other changes are between the values inside the stamps.

A step that only a user's migration function can take begins the history anew (`StateSchema.earlier` is empty): the
whole state is written again in the batch that introduces it. Values of an older version can then only be met in the
middle of a replay, and are overwritten before its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from varvite.changelog.schema.ttl import merged
from varvite.changelog.segments.changes import Op
from varvite.changelog.segments.columns import type_of
from varvite.changelog.types.evolution import Converter, Incompatible, Step, evolve, keep
from varvite.changelog.types.stamped import STAMP_MIN, is_stamped, plain_type_string, unstamped
from varvite.changelog.types.wire import encode
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvariantError, VarviteError
from varvite.storage.format.frame import UNPARSABLE
from varvite.storage.format.records import StateSchema, ValueVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.types.evolution import PlainConversion
    from varvite.changelog.types.wire import WireType

VERSION_NUMBER_MAX: Final = 0x7F

VERSIONS_MAX: Final = VERSION_NUMBER_MAX
"""Versions that may be in use at once; one of the 128 numbers that a stored value can name is left for a migration."""

WireReader: TypeAlias = "Callable[[bytes], Any]"
StoredConversion: TypeAlias = "Callable[[Any], Any]"
"""Stored form of an older value → that of a current one; a null map value is None, unless it has a stamp."""


class Change(NamedTuple):
    """The effect of a declaration on a stored state."""

    schema: StateSchema
    """The schema of values that are written from now on."""
    is_new_version: bool
    migrates: bool
    """The new version needs the migration function."""


def first_version(schema: StateSchema) -> int:
    """The oldest version that stored values may be of."""
    return schema.version - len(schema.earlier)


def same_declaration(a: StateSchema, b: StateSchema) -> bool:
    """Do two schemas declare the same state, at whatever version?"""
    return _shape(a) == _shape(b) and (a.value_type, a.ttl) == (b.value_type, b.ttl)


def change(
    stored: StateSchema, declared: StateSchema, defaults: Mapping[str, bytes], operator: str, *, migrates: bool
) -> Change:
    """The effect of declaring a state that is stored as one schema as another.

    Args:
        stored: The newest version.
        declared: The declared schema: version 0, without history.
        defaults: Path → wire form, of any fields of the declared type.
        operator: The operator's uid, for errors.
        migrates: The user has a migration function for the stored type.

    Raises:
        IncompatibleError: naming the operator, the state, both schemas and the ways out.
    """
    if _shape(stored) != _shape(declared):
        raise incompatible(stored, declared, _shape_problem(stored, declared), operator)
    if stored.value_type == declared.value_type:
        kept = stored if stored.ttl == declared.ttl else msgspec.structs.replace(stored, ttl=declared.ttl)
        return Change(kept, is_new_version=False, migrates=False)
    version = stored.version + 1
    if migrates and plain_type_string(stored.value_type) != plain_type_string(declared.value_type):
        begun = msgspec.structs.replace(declared, version=version, earlier=(), defaults=None)
        return Change(begun, is_new_version=True, migrates=True)
    decision = evolve(_plain_type(stored), _plain_type(declared), Step(defaults))
    if isinstance(decision, Incompatible):
        raise incompatible(stored, declared, decision.reason, operator)
    if len(stored.earlier) + 2 > VERSIONS_MAX:
        problem = f"the state would have more than {VERSIONS_MAX} versions, of which values may still be stored"
        raise incompatible(stored, declared, problem, operator)
    added = decision.added if isinstance(decision, Converter) else ()
    used = {path: defaults[path] for path in added if path in defaults}
    before = ValueVersion(value_type=stored.value_type, defaults=stored.defaults)
    grown = msgspec.structs.replace(declared, version=version, defaults=used or None, earlier=(*stored.earlier, before))
    return Change(grown, is_new_version=True, migrates=False)


def newer(a: StateSchema, b: StateSchema, operator: str) -> StateSchema:
    """The newer of two schemas of one state, with the TTL of both together (`varvite.changelog.schema.ttl.merged`).

    Raises `IncompatibleError` unless they are versions of one history.
    """
    if _shape(a) != _shape(b):
        raise incompatible(a, b, _shape_problem(a, b), operator)
    first = max(first_version(a), first_version(b))
    for version in range(first, min(a.version, b.version) + 1):
        in_a, in_b = _version(a, version), _version(b, version)
        if in_a.value_type != in_b.value_type or (version > first and in_a.defaults != in_b.defaults):
            raise incompatible(a, b, f"they are both called version {version}", operator)
    return merged(a, b)


def newest_of(schemas: Sequence[StateSchema], operator: str) -> StateSchema:
    """The newest of the schemas that an operator's partitions have of one state.

    Raises `IncompatibleError` if only some of them have migrated it: those that have not could not be read any more.
    """
    newest = schemas[0]
    for schema in schemas[1:]:
        newest = newer(newest, schema, operator)
    if any(schema.version < first_version(newest) for schema in schemas):
        raise IncompatibleError(
            f"state {newest.name!r} was migrated in some partitions only: ask for it in open(), in every partition",
            operator=operator,
        )
    return newest


def wire_reader(schema: StateSchema, number: int) -> WireReader:
    """A function from wire forms of an older version to stored forms of the current one, both without time stamps.

    Args:
        schema: The current version.
        number: The number of the version in stored values: the version modulo 128.

    Raises:
        CorruptDataError: the state's history has no such version.
    """
    version = schema.version - ((schema.version - number) & VERSION_NUMBER_MAX)
    if not first_version(schema) <= version <= schema.version:
        raise CorruptDataError(
            f"a value of state {schema.name!r} is of schema version {number}, but the state has versions "
            f"{first_version(schema)} to {schema.version}; see `varvite verify JOB --repair`"
        )
    from_wire = _plain_type(schema).from_wire
    rewrite = _wire_conversion(schema, version)
    return from_wire if rewrite is None else _then(rewrite, from_wire)


def migrating_reader(before: StateSchema, migrate: StoredConversion, number: int) -> WireReader:
    """The `wire_reader` across a migration: `migrate` takes the stored form of the newest version of `before`."""
    return _then(wire_reader(before, number), migrate)


def migrating_conversion(before: StateSchema, after: StateSchema, migrate: StoredConversion) -> StoredConversion:
    """Between the stored forms of two versions, where `migrate` is one between values without time stamps."""
    return _with_stamps(before, after, migrate)


def stored_conversion(schema: StateSchema, version: int) -> StoredConversion | None:
    """The conversion of values of a version from `first_version` on to current ones; None if they stay the same."""
    before, rewrite = _version(schema, version), _wire_conversion(schema, version)
    if rewrite is not None:
        convert = _then(_then(_plain_type(before).to_wire, rewrite), _plain_type(schema).from_wire)
        return _with_stamps(before, schema, convert)
    if is_stamped(before.value_type) == is_stamped(schema.value_type):
        return None  # types whose wire forms are equal have equal stored forms
    return _with_stamps(before, schema, keep)


def changes_at(newest: StateSchema, changes: StateChanges) -> StateChanges | None:
    """The changes with values of the newest version; None for those that a migration overwrites later."""
    version = changes.schema.version
    if version == newest.version:
        return changes
    if version < first_version(newest):
        return None
    convert = stored_conversion(newest, version)
    if convert is None:
        return changes
    if changes.ops is None:
        return changes.but(schema=newest, values=[convert(value) for value in changes.values])
    written = [op in (Op.PUT, Op.APPEND) for op in changes.ops]
    values = [convert(value) if write else None for value, write in zip(changes.values, written, strict=True)]
    return changes.but(schema=newest, values=values)


def incompatible(stored: StateSchema, declared: StateSchema, reason: str, operator: str) -> IncompatibleError:
    """The error for a schema that stored values cannot be read as."""
    ways = "declare it as it is stored, or give the new state another name and fill it from this one"
    if _shape(stored) == _shape(declared):
        ways = f"{ways}, or give its descriptor migrate=, a function from the old value to the new one"
    return IncompatibleError(
        f"state {declared.name!r} is stored as {words(stored)}, but the job declares it as {words(declared)}: "
        f"{reason}; {ways}; an operator with a new uid starts without state",
        operator=operator,
    )


def words(schema: StateSchema) -> str:
    """A schema for people."""
    map_key = f" by {schema.map_key_type}" if schema.map_key_type is not None else ""
    namespace = f" in namespaces of {schema.namespace_type}" if schema.namespace_type is not None else ""
    return f"{schema.kind} of {schema.value_type}{map_key}{namespace}"


def _shape(schema: StateSchema) -> tuple[str, str | None, str | None]:
    """The parts that never change."""
    return schema.kind, schema.map_key_type, schema.namespace_type


def _shape_problem(stored: StateSchema, declared: StateSchema) -> str:
    if stored.kind != declared.kind:
        return "the kind of a state cannot change"
    if stored.map_key_type != declared.map_key_type:
        return "the type of map keys cannot change, because entries are found by their bytes"
    return "the type of namespaces cannot change"


def _version(schema: StateSchema, version: int) -> ValueVersion:
    if version == schema.version:
        return ValueVersion(value_type=schema.value_type, defaults=schema.defaults)
    if not first_version(schema) <= version < schema.version:
        raise InvariantError(f"state {schema.name!r} has no version {version}")
    return schema.earlier[version - first_version(schema)]


def _plain_type(schema: StateSchema | ValueVersion) -> WireType:
    """The type of the values of a version, without time stamps."""
    return unstamped(type_of(schema.value_type))


def _with_stamps(before: StateSchema | ValueVersion, after: StateSchema, convert: StoredConversion) -> StoredConversion:
    """A conversion that handles stamps and null map values, from one that does not."""
    if not is_stamped(after.value_type):
        return lambda stored: None if stored is None else convert(stored)
    if not is_stamped(before.value_type):
        return lambda stored: (STAMP_MIN, None if stored is None else convert(stored))
    return lambda stored: (stored[0], None if stored[1] is None else convert(stored[1]))


def _then(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: second(first(value))


def _plain_conversion(schema: StateSchema, version: int) -> PlainConversion:
    """All steps from a version to the current one."""
    steps: list[PlainConversion] = []
    for number in range(version, schema.version):
        before, after = _version(schema, number), _version(schema, number + 1)
        decision = evolve(_plain_type(before), _plain_type(after), Step(after.defaults or {}))
        if isinstance(decision, Incompatible):
            problem = f"the history of state {schema.name!r} has a step that is none: {decision.reason}"
            raise CorruptDataError(f"{problem}; see `varvite verify JOB --repair`")
        if isinstance(decision, Converter) and decision.convert is not keep:
            steps.append(decision.convert)
    if not steps:
        return keep
    if len(steps) == 1:
        return steps[0]

    def convert(plain: Any) -> Any:
        for step in steps:
            plain = step(plain)
        return plain

    return convert


def _wire_conversion(schema: StateSchema, version: int) -> Callable[[bytes], bytes] | None:
    """The wire form of a version → that of the current one, without time stamps; None if they are equal."""
    convert = _plain_conversion(schema, version)
    if convert is keep:
        return None
    old = _plain_type(_version(schema, version))
    decode = msgspec.msgpack.Decoder(old.wire_schema).decode

    def rewrite(data: bytes) -> bytes:
        try:
            return encode(convert(decode(data)))
        except VarviteError:
            raise
        except UNPARSABLE as error:
            raise old.corrupt(error) from error

    return rewrite
