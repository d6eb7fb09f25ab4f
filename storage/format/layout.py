"""The names of all objects of a job; the only module that builds or parses one.

Numbers in names have 20 digits, so that names sort like numbers. Names under `seg/` and `pack/` carry the only slot
whose chain entry may refer to them (I7). See docs/internals/commit-protocol.md.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from varvite.storage.errors import InvalidRequestError

DIGITS: Final = 20
SEQ_MAX: Final = 10**DIGITS - 1
_HOLD: Final = "+"
_ABOVE: Final = "../"
LATEST: Final = "latest"
"""The newest checkpoint, where a user names a checkpoint or savepoint."""
STATE_BYTES_MAX: Final = 200
"""The longest state name as a path segment; a letter of another script than Latin takes 6 or 9 bytes there."""
_STATE_BYTES_KEPT: Final = 160
_PART_OF_ESCAPE: Final = re.compile("%[0-9A-F]?$")
_JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_job_name(name: str) -> bool:
    """True for a possible directory of a job: 1 to 128 letters, digits, `.`, `_` and `-`."""
    return _JOB_NAME.fullmatch(name) is not None


def check_job_name(name: str) -> str:
    """The name, if `is_job_name`. Raises `InvalidRequestError`."""
    if not is_job_name(name):
        raise InvalidRequestError(
            f"job name {name!r} cannot be a directory name; use 1 to 128 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit"
        )
    return name


def _number(n: int) -> str:
    if not 0 <= n <= SEQ_MAX:
        raise InvalidRequestError(f"number {n} does not fit an object name")
    return f"{n:0{DIGITS}d}"


@lru_cache(maxsize=1024)
def _segment(text: str) -> str:
    """Any text as one path segment. Raises `InvalidRequestError` for lone surrogates, which are no text."""
    try:
        return quote(text, safe="").replace(".", "%2E")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{text!r} is not valid Unicode; correct the name") from error


def _state_segment(state: str) -> str:
    """The name of a state as one path segment; a long one is truncated, and its hash added. Manifests have it all."""
    full_name = _segment(state)
    if len(full_name) <= STATE_BYTES_MAX:
        return full_name
    return f"{_PART_OF_ESCAPE.sub('', full_name[:_STATE_BYTES_KEPT])}-{sha256(state.encode()).hexdigest()[:32]}"


def text_of(name: str) -> str:
    """The decoded last segment of a name: the token of a pin, the name of a savepoint."""
    return unquote(name.rpartition("/")[2])


class SnapshotName(NamedTuple):
    """The parts of a snapshot descriptor's name."""

    operator: str
    low: int
    """First key group, inclusive."""
    high: int
    """Last key group, exclusive."""
    number: int


class SlotName(NamedTuple):
    """The parts of a name under `seg/` or `pack/` that the collector needs."""

    area: str
    slot: int


JOB: Final = "job.json"
CHAIN: Final = "chain/"
SEGMENTS: Final = "seg/"
PACKS: Final = "pack/"
SNAPSHOTS: Final = "snap/"
SNAPSHOT_FILES: Final = "snapdata/"
PINS: Final = "pins/"
SAVEPOINTS: Final = "savepoints/"
SAVEPOINT_FILES: Final = "savepointdata/"
MEMBERS: Final = "members/"
STANDBYS: Final = "standbys/"
REQUESTS: Final = "requests/"
REQUEST: Final = f"{REQUESTS}newest"
"""The newest request to the materializers for a materialization."""
RUNNING: Final = "running/"


_HEX: Final = "[0-9a-f]{32}"
_TEXT: Final = "(?:[A-Za-z0-9_~-]|%[0-9A-F]{2})+"
_SLOT: Final = rf"\d{{{DIGITS}}}"
_FORMS: Final = {
    CHAIN: _SLOT,
    SEGMENTS: f"{_SLOT}/.+",
    PACKS: f"{_SLOT}/.+",
    SNAPSHOTS: rf"{_TEXT}/\d{{5}}-\d{{5}}/{_SLOT}",
    SNAPSHOT_FILES: rf"{_TEXT}/\d{{5}}-\d{{5}}/{_SLOT}-[^/]+/[^/]+",
    PINS: _HEX,
    SAVEPOINTS: _TEXT,
    SAVEPOINT_FILES: f"{_HEX}/.+",
    MEMBERS: _HEX,
    REQUESTS: f"newest|{_HEX}",
    RUNNING: _SLOT,
}
_OURS: Final = {area: re.compile(form, re.ASCII) for area, form in _FORMS.items()}


def is_foreign(name: str) -> bool:
    """True for an object in an area of a job with a name that varvite does not give there: somebody else's file."""
    area, slash, rest = name.partition("/")
    form = _OURS.get(area + slash)
    return form is not None and form.fullmatch(rest) is None


def shared(job: str, name: str) -> str:
    """The name by which a clone refers to an object of its source `job`, in the same storage.

    A `name` that is shared already stays as it is.
    """
    return name if is_shared(name) else f"{_ABOVE}{job}/{name}"


def is_shared(name: str) -> bool:
    """True for the name of another job's object, which can only be read."""
    return name.startswith(_ABOVE)


def name_in_storage(name: str) -> str:
    """The name of a shared object below the root of the storage."""
    return name.removeprefix(_ABOVE)


def chain(seq: int) -> str:
    """Entry `seq` of the chain."""
    return f"{CHAIN}{_number(seq)}"


def is_chain(name: str) -> bool:
    """True for the name of an entry of the job's own chain."""
    return name.startswith(CHAIN)


def chain_seq(name: str) -> int:
    """The seq of a chain entry's name."""
    return int(name.removeprefix(CHAIN))


def segment(slot: int, operator: str, partition: int, tag: str, index: int) -> str:
    """Part `index` of what attempt `tag` of one partition uploaded for `slot`; only `chain/<slot>` may name it."""
    return f"{SEGMENTS}{_number(slot)}/{_segment(operator)}/{partition:05d}-{tag}-{index:05d}"


def image(slot: int, operator: str, partition: int, tag: str) -> str:
    """The non-keyed state that attempt `tag` of one partition uploaded for `slot`; only `chain/<slot>` may name it."""
    return f"{SEGMENTS}{_number(slot)}/{_segment(operator)}/{partition:05d}-{tag}-image"


def gathered(slot: int, token: str) -> str:
    """The segments of a batch that the driver stores as one object, for `chain/<slot>`."""
    return f"{SEGMENTS}{_number(slot)}/gathered-{token}"


def pack(slot: int, tag: str) -> str:
    """Segments of earlier batches packed for the full entry at `slot`; only `chain/<slot>` may name it."""
    return f"{PACKS}{_number(slot)}/{tag}"


def slot_of(name: str) -> SlotName:
    """Area and slot of a name under `seg/` or `pack/`."""
    area, slot, _ = name.split("/", 2)
    return SlotName(area, int(slot))


def object_slot(name: str) -> int:
    """The slot that an object of `chain/`, `seg/` or `pack/` belongs to."""
    return chain_seq(name) if name.startswith(CHAIN) else slot_of(name).slot


def _range(low: int, high: int) -> str:
    return f"{low:05d}-{high:05d}"


def snapshot(operator: str, low: int, high: int, number: int) -> str:
    """Descriptor of snapshot `number` of key groups `[low, high)` of an operator."""
    return f"{SNAPSHOTS}{_segment(operator)}/{_range(low, high)}/{_number(number)}"


def snapshot_name(name: str) -> SnapshotName:
    """The parts of a snapshot descriptor's name."""
    _, operator, key_groups, number = name.split("/")
    low, high = key_groups.split("-")
    return SnapshotName(unquote(operator), int(low), int(high), int(number))


def snapshot_file(operator: str, low: int, high: int, number: int, uid: str, file: str) -> str:
    """A file that the uploader `uid` wrote for snapshot `number`; later snapshots of the range may share it."""
    return f"{SNAPSHOT_FILES}{_segment(operator)}/{_range(low, high)}/{_number(number)}-{uid}/{file}"


class SnapshotUpload(NamedTuple):
    """The parts of a snapshot file's name."""

    snapshot: SnapshotName
    uid: str
    file: str


def snapshot_upload(name: str) -> SnapshotUpload:
    """The parts of a snapshot file's name."""
    _, operator, key_groups, upload, file = name.split("/")
    low, high = key_groups.split("-")
    number, uid = upload.split("-", 1)
    return SnapshotUpload(SnapshotName(unquote(operator), int(low), int(high), int(number)), uid, file)


def pin(pin_id: str) -> str:
    """A pin, whose holder needs everything from its `needs_from` on."""
    return f"{PINS}{_segment(pin_id)}"


def is_savepoint_name(name: str) -> bool:
    """True for a possible name of a savepoint: like that of a job, but neither `latest` nor a number."""
    return _JOB_NAME.fullmatch(name) is not None and name.lower() != LATEST and not name.isdecimal()


def check_savepoint_name(name: str) -> str:
    """The name, if `is_savepoint_name`. Raises `InvalidRequestError`."""
    if not is_savepoint_name(name):
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a savepoint; use 1 to 128 letters, digits, '.', '_' or '-', beginning "
            f"with a letter or digit, but neither {LATEST!r} nor a number"
        )
    return name


def hold_name(token: str) -> str:
    """The name of a savepoint that a copy in progress holds.

    Users cannot give such a name, and it sorts before all names of users.
    """
    return f"{_HOLD}{token}"


def clone_hold_name(job_id: str, token: str) -> str:
    """The name of a hold in the source of the clone with this id; their common prefix for `token=""`."""
    return hold_name(f"clone-{job_id}-{token}")


def is_hold(name: str) -> bool:
    """True for a name that `hold_name` made."""
    return name.startswith(_HOLD)


def savepoint(name: str) -> str:
    """A savepoint's manifest."""
    return f"{SAVEPOINTS}{_segment(name)}"


def savepoint_directory(token: str) -> str:
    """The files of the savepoint `token`."""
    return f"{SAVEPOINT_FILES}{token}/"


def savepoint_file(token: str, operator: str, state: str, low: int, high: int) -> str:
    """Rows of one state of key groups `[low, high)` in the savepoint `token`."""
    return f"{savepoint_directory(token)}{_segment(operator)}/{_state_segment(state)}/{_range(low, high)}.parquet"


def savepoint_table(token: str, operator: str, state: str, kind: str) -> str:
    """Rows of one non-keyed state in the savepoint `token`; the dot sets it apart from the directory of a keyed one."""
    return f"{savepoint_directory(token)}{_segment(operator)}/{_state_segment(state)}.{kind}.parquet"


def savepoint_image(token: str, index: int) -> str:
    """An image of non-keyed state in the savepoint `token`; the dot sets it apart from an operator's directory."""
    return f"{savepoint_directory(token)}image.{index}"


def savepoint_token(name: str) -> str:
    """The token of the savepoint that a name under `savepointdata/` belongs to."""
    return name.split("/", 2)[1]


def member(member_id: str) -> str:
    """The heartbeat counter of a materializer."""
    return f"{MEMBERS}{_segment(member_id)}"


def standby(host: str) -> str:
    """The list of copies that the standby of a host has."""
    return f"{STANDBYS}{_segment(host)}"


def running(epoch: int) -> str:
    """The mark of a driver run that has not ended orderly."""
    return f"{RUNNING}{_number(epoch)}"
