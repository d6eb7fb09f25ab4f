"""`varvite describe`, `varvite state` and `varvite diff`: the contents of a job's checkpoints."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing, contextmanager
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec
from click.core import ParameterSource

from varvite.changelog.reading.diff import diff_checkpoints, shown, states_of, untracked
from varvite.changelog.reading.key_hash import key_group_of_text
from varvite.changelog.reading.operator_state_diff import OperatorStateDifference, diff_operator_states
from varvite.changelog.reading.reader import open_state
from varvite.changelog.reading.sizes import group_sizes
from varvite.changelog.schema.ttl import record_of
from varvite.materializer.commands.output.lines import cell, show_lines, show_rows, type_name
from varvite.materializer.commands.output.parameters import open_root, storage_parameters
from varvite.materializer.commands.output.progress import shown_steps, track_items
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from varvite.changelog.reading.columns import StateColumns
    from varvite.changelog.reading.diff import Difference, Track
    from varvite.changelog.reading.operator_state_table import OperatorStateTable
    from varvite.changelog.reading.reader import StateReader

DEFAULT_ROWS: Final = 20
_Command = TypeVar("_Command", bound="Callable[..., Any]")


class StateLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite describe`: a state, and the base and log of its operator."""

    seq: int
    batch: int
    time: str
    operator: str
    state: str | None
    """None for an operator that has no state yet."""
    kind: str | None = None
    key_type: str
    map_key_type: str | None = None
    value_type: str | None = None
    ttl_ms: int | None = None
    parallelism: int
    backend: str
    changelog: bool
    bases: int
    """Snapshots that a restore of the operator reads."""
    log_segments: int
    """References to segments that a restore of the operator replays."""
    log_bytes: int
    elements: int | None = None
    """Elements of non-keyed state, in all partitions; None for keyed state."""
    size_bytes: int | None = None
    """Bytes of non-keyed state; None for keyed state."""


class CountLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite state --count`."""

    operator: str
    state: str
    keys: int | None
    rows: int
    size_bytes: int
    key_groups: int
    """Key groups that have any of the state."""
    median_group_bytes: int
    largest_group_bytes: int
    largest_group: int
    skew: float
    """Bytes of the largest key group over the mean of all counted key groups of the job."""


class GroupLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite state --groups`."""

    operator: str
    state: str
    key_group: int
    keys: int | None
    rows: int
    size_bytes: int


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite diff --count`."""

    operator: str
    state: str
    added: int
    changed: int
    removed: int


def _checkpoint_options(command: _Command) -> _Command:
    """The options of every command that reads a checkpoint."""
    command = click.option(
        "--pin/--no-pin", default=True, help="Protect the checkpoint from deletion meanwhile; --no-pin writes nothing."
    )(command)
    command = click.option("--json", "as_json", is_flag=True, help="JSON lines.")(command)
    return storage_parameters(required=True)(command)


_CHECKPOINT: Final = click.option(
    "--checkpoint", metavar="SEQ", help="A seq, batch:<number> or savepoint:<name>; without it, the newest checkpoint."
)
_OPERATOR: Final = click.option("--operator", metavar="UID", help="The operator; optional if there is only one.")


@click.command()
@click.argument("job")
@_checkpoint_options
@_CHECKPOINT
def describe(job: str, checkpoint: str | None, *, as_json: bool, **storage: Any) -> None:
    """Show the operators and states of a checkpoint of JOB, their types, and the base and log of a restore."""
    with _errors():
        reader = _open(job, checkpoint, storage)
        with reader:
            lines = [line for uid in reader.operators for line in _describe(reader, uid)]
    show_lines(lines, as_json=as_json)


@click.command()
@click.argument("job")
@click.argument("state", required=False)
@_checkpoint_options
@_CHECKPOINT
@_OPERATOR
@click.option("--key", metavar="TEXT", help="Show only rows of this key, in the table's form.")
@click.option("--key-groups", metavar="N[-M]", help="Read only these key groups, the last one included.")
@click.option("--limit", default=DEFAULT_ROWS, show_default=True, type=click.IntRange(0), help="Rows; 0 for all.")
@click.option("--count", "summary", flag_value="count", help="Show keys, rows, bytes and skew of each state.")
@click.option("--groups", "summary", flag_value="groups", help="Show keys, rows and bytes of each key group.")
def state(job: str, state: str | None, *, as_json: bool, **options: Any) -> None:
    """Show the rows of a state of JOB, their number, or their distribution over the key groups.

    STATE is optional if there is only one, and with --count and --groups, which otherwise show all states.
    """
    with _errors():
        summary = options["summary"]
        if summary is not None:
            _check_whole(summary)
        reader = _open(job, options["checkpoint"], options)
        key_groups = _key_groups(options["key_groups"])
        if summary is not None:
            lines = _sizes(reader, options["operator"], state, key_groups)
            show_lines(lines if summary == "groups" else _counts(reader, lines, key_groups), as_json=as_json)
            return
        rows = _rows(reader, options["operator"], state, key_groups, options["key"])
        show_rows(islice(rows, options["limit"] or None), as_json=as_json)


@click.command()
@click.argument("job")
@_checkpoint_options
@click.option(
    "--from",
    "before",
    metavar="SEQ",
    required=True,
    help="Older checkpoint: seq, batch:<number> or savepoint:<name>.",
)
@click.option("--to", "after", metavar="SEQ", help="Newer checkpoint; without it, the newest.")
@_OPERATOR
@click.option("--state", "state_name", metavar="NAME", help="The one state to compare; without it, all.")
@click.option("--limit", default=DEFAULT_ROWS, show_default=True, type=click.IntRange(0), help="Rows; 0 for all.")
@click.option("--count", is_flag=True, help="Show only the number of different rows of each state.")
def diff(job: str, before: str, after: str | None, *, as_json: bool, **options: Any) -> None:
    """Show the rows that were added, changed and removed between two checkpoints of JOB."""
    with _errors():
        older, newer = _open(job, before, options), _open(job, after, options)
        compared = (older, newer, options["operator"], options["state_name"])
        if options["count"]:
            show_lines(_count_differences(_differences(*compared, track_items)), as_json=as_json)
            return
        rows = _DifferenceRows(older, newer)
        # A progress bar and rows that are printed while they are read would overwrite each other.
        with closing(_differences(*compared, untracked if as_json else track_items)) as differences:
            table = (rows.row(difference) for difference in islice(differences, options["limit"] or None))
            if as_json:
                show_rows(table, as_json=True)
                return
            kept = list(table)
        show_rows(kept, as_json=False)


def _check_whole(summary: str) -> None:
    """Raise `InvalidRequestError` for an option that selects rows: a summary counts all of them."""
    context = click.get_current_context()
    for name, option in (("key", "--key"), ("limit", "--limit")):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise InvalidRequestError(
                f"{option} does not go with --{summary}, which goes over all rows; use --key-groups"
            )


def _differences(
    older: StateReader, newer: StateReader, operator: str | None, state: str | None, track: Track
) -> Generator[Difference | OperatorStateDifference]:
    """The differences of keyed and then of non-keyed state."""
    with older.pinned(), newer.pinned():
        non_keyed = list(diff_operator_states(older, newer, operator, state))
        if state is None or not non_keyed or _has_keyed((older, newer), operator, state):
            yield from diff_checkpoints(older, newer, operator, state, track)
    yield from non_keyed


def _has_keyed(readers: Sequence[StateReader], operator: str | None, state: str) -> bool:
    layouts = [layout for reader in readers for layout in reader.checkpoint.operators if operator in (None, layout.uid)]
    return any(schema.name == state for layout in layouts for schema in layout.states)


@contextmanager
def _errors() -> Generator[None]:
    try:
        yield
    except VarviteError as error:
        raise click.ClickException(str(error)) from error


def _open(job: str, checkpoint: str | None, options: dict[str, Any]) -> StateReader:
    open_root(options["storage_url"], options["storage_options"])  # raises if there is no such directory
    return open_state(
        options["storage_url"],
        job,
        checkpoint,
        storage_options=options["storage_options"],
        pin=options["pin"],
    )


def _describe(reader: StateReader, uid: str) -> Iterator[StateLine]:
    operator, view, commit = reader.layout(uid), reader.view, reader.checkpoint
    segments = [ref for ref in view.segments if ref.operator == uid]
    line = StateLine(
        seq=commit.seq,
        batch=commit.batch,
        time=utc_time(commit.time_ms),
        operator=uid,
        state=None,
        key_type=type_name(operator.key_type),
        parallelism=operator.parallelism,
        backend=operator.backend,
        changelog=operator.changelog,
        bases=sum(1 for tile in view.tiles if tile.operator == uid and (tile.files or tile.snapshot is not None)),
        log_segments=len(segments),
        log_bytes=sum(ref.data.length for ref in segments),
    )
    for schema in operator.states:
        record = record_of(schema)
        yield msgspec.structs.replace(
            line,
            state=schema.name,
            kind=schema.kind,
            map_key_type=None if schema.map_key_type is None else type_name(schema.map_key_type),
            value_type=type_name(schema.value_type),
            ttl_ms=None if record is None else record.ttl_ms,
        )
    tables = reader.operator_states(uid)
    for table in tables:
        yield msgspec.structs.replace(
            line,
            state=table.name,
            kind=table.kind,
            map_key_type=None if table.map_key_type is None else type_name(table.map_key_type),
            value_type=type_name(table.value_type) if table.value_type else "bytes",
            elements=table.elements,
            size_bytes=table.size_bytes,
        )
    if not operator.states and not tables:
        yield line


def _key_groups(text: str | None) -> range | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not low.isdecimal() or not (high or low).isdecimal():
        raise InvalidRequestError(f"--key-groups takes a number or two with '-' between them, not {text!r}")
    return range(int(low), int(high or low) + 1)


def _rows(
    reader: StateReader, operator: str | None, state: str | None, key_groups: range | None, key: str | None
) -> Iterator[dict[str, Any]]:
    table = _operator_state(reader, operator, state)
    if table is not None and key_groups is not None:
        raise InvalidRequestError(f"state {state!r} is {table.kind} state: it has partitions, not key groups")
    if table is None and key is not None and key_groups is None:
        yield from _rows_of_key(reader, operator, state, key)
        return
    for batch in reader.batches(operator, state, key_groups) if table is None else table.to_arrow().to_batches():
        rows: list[dict[str, Any]] = batch.to_pylist()
        yield from rows if key is None else (row for row in rows if cell(row.get("key")) == key)


def _rows_of_key(reader: StateReader, operator: str | None, state: str | None, key: str) -> Iterator[dict[str, Any]]:
    """The rows of the key's own key group, if that is known and has any; else of all."""
    group = key_group_of_text(type_name(reader.layout(operator).key_type), key, reader.job.max_parallelism)
    with reader:
        for key_groups in (None,) if group is None else (range(group, group + 1), None):
            is_found = False
            for batch in reader.batches(operator, state, key_groups):
                for row in batch.to_pylist():
                    if cell(row["key"]) == key:
                        is_found = True
                        yield row
            if is_found:
                return


def _operator_state(reader: StateReader, operator: str | None, state: str | None) -> OperatorStateTable | None:
    """The non-keyed state of that name; None if there is none, or a keyed one."""
    if state is None or any(schema.name == state for schema in reader.states(operator)):
        return None
    return next((table for table in reader.operator_states(operator) if table.name == state), None)


def _sizes(reader: StateReader, operator: str | None, state: str | None, key_groups: range | None) -> list[GroupLine]:
    lines: list[GroupLine] = []
    uids = _operators_with(reader, operator, state)
    with reader, shown_steps("ranges of key groups") as show_progress:
        parts = [(uid, part) for uid in uids for part in reader.split(uid, key_groups)]
        for number, (uid, part) in enumerate(parts):
            show_progress(number, len(parts))
            for restored in reader.ranges(uid, part):
                lines += [
                    GroupLine(operator=uid, **size._asdict())
                    for size in group_sizes(restored.store)
                    if state in (None, size.state)
                ]
    return sorted(lines, key=lambda line: (line.operator, line.state, line.key_group))


def _operators_with(reader: StateReader, operator: str | None, state: str | None) -> tuple[str, ...]:
    """The operators to read. Raises `InvalidRequestError` if none of them has the state."""
    uids = reader.operators if operator is None else (operator,)
    if state is None:
        return uids
    having = tuple(uid for uid in uids if any(schema.name == state for schema in reader.states(uid)))
    if not having and len(uids) == 1:
        reader.state(state, uids[0])  # raises an error that names the existing states
    if not having:
        names = sorted({schema.name for uid in uids for schema in reader.states(uid)})
        raise InvalidRequestError(
            f"no operator has a state {state!r}; their states are {', '.join(map(repr, names)) or 'none'}"
        )
    return having


def _counts(reader: StateReader, groups: Sequence[GroupLine], key_groups: range | None) -> list[CountLine]:
    by_state: defaultdict[tuple[str, str], list[GroupLine]] = defaultdict(list)
    for line in groups:
        by_state[line.operator, line.state].append(line)
    return [_count(lines, len(reader.selected(key_groups))) for lines in by_state.values()]


def _count(lines: Sequence[GroupLine], key_groups: int) -> CountLine:
    largest = max(lines, key=lambda line: line.size_bytes)
    size_bytes = sum(line.size_bytes for line in lines)
    keys = [line.keys for line in lines if line.keys is not None]
    sizes = [line.size_bytes for line in lines] + [0] * (key_groups - len(lines))
    return CountLine(
        operator=largest.operator,
        state=largest.state,
        keys=sum(keys) if keys else None,
        rows=sum(line.rows for line in lines),
        size_bytes=size_bytes,
        key_groups=len(lines),
        median_group_bytes=round(median(sizes)),
        largest_group_bytes=largest.size_bytes,
        largest_group=largest.key_group,
        skew=round(largest.size_bytes * key_groups / size_bytes, 2),
    )


def _count_differences(differences: Iterator[Difference | OperatorStateDifference]) -> list[DiffLine]:
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for difference in differences:
        counts[difference.operator, difference.state][difference.change] += 1
    return [
        DiffLine(operator=uid, state=name, added=n["added"], changed=n["changed"], removed=n["removed"])
        for (uid, name), n in counts.items()
    ]


class _DifferenceRows:
    """Differences of any states as rows with the same columns."""

    def __init__(self, before: StateReader, after: StateReader) -> None:
        self._readers = (before, after)
        self._columns: dict[tuple[str, str], StateColumns] = {}

    def row(self, diff: Difference | OperatorStateDifference) -> dict[str, Any]:
        if isinstance(diff, OperatorStateDifference):
            place = {"operator": diff.operator, "state": diff.state, "change": diff.change, "key_group": None}
            key = diff.key if diff.partition is None else f"partition {diff.partition}"
            return {**place, "key": key, "map_key": None, "before": diff.before, "after": diff.after}
        place = {"operator": diff.operator, "state": diff.state, "change": diff.change, "key_group": diff.key_group}
        return {**place, **shown(self._columns_of(diff), diff)}

    def _columns_of(self, diff: Difference) -> StateColumns:
        place = (diff.operator, diff.state)
        if place not in self._columns:
            [self._columns[place]] = states_of(*self._readers, *place)
        return self._columns[place]
