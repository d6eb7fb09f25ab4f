"""The names of all objects of a job; the only module that builds or parses one (design 7a).

Numbers in names are 20 digits, so that names sort like numbers. `seg/`, `pack/` names carry the only slot whose
chain entry may refer to them (I7).
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
"""Stands for the newest checkpoint, where a checkpoint or savepoint is chosen."""
STATE_BYTES_MAX: Final = 200
"""Of a state's name as a segment; a letter of other scripts than Latin has 6 or 9 bytes there."""
_STATE_BYTES_KEPT: Final = 160
_PART_OF_ESCAPE: Final = re.compile("%[0-9A-F]?$")
_JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_job_name(name: str) -> bool:
    """Whether it could be a job's directory: letters, digits, `.`, `_`, `-`; 1 to 128 of them."""
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
    """The name of a state as one path segment; a long one is cut, and its hash added. Manifests have the whole name."""
    whole = _segment(state)
    if len(whole) <= STATE_BYTES_MAX:
        return whole
    return f"{_PART_OF_ESCAPE.sub('', whole[:_STATE_BYTES_KEPT])}-{sha256(state.encode()).hexdigest()[:32]}"


def text_of(name: str) -> str:
    """The text that the last segment of a name stands for: of a pin its token, of a savepoint its name."""
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
    REQUESTS: _HEX,
}
_OURS: Final = {area: re.compile(form, re.ASCII) for area, form in _FORMS.items()}


def is_foreign(name: str) -> bool:
    """Whether an object lies in an area of a job but has no name that varvite gives there: somebody else's file."""
    area, slash, rest = name.partition("/")
    form = _OURS.get(area + slash)
    return form is not None and form.fullmatch(rest) is None


def shared(job: str, name: str) -> str:
    """An object of another job of the same storage, as a clone of that job names it; `name` may be such a one."""
    return name if is_shared(name) else f"{_ABOVE}{job}/{name}"


def is_shared(name: str) -> bool:
    """Whether a name is of another job's object: it can be read, and nothing else."""
    return name.startswith(_ABOVE)


def name_in_storage(name: str) -> str:
    """A shared object's name from the root of the storage on."""
    return name.removeprefix(_ABOVE)


def chain(seq: int) -> str:
    """Entry `seq` of the chain."""
    return f"{CHAIN}{_number(seq)}"


def is_chain(name: str) -> bool:
    """Whether it is the name of an entry of the job's own chain."""
    return name.startswith(CHAIN)


def chain_seq(name: str) -> int:
    """The seq of a chain entry's name."""
    return int(name.removeprefix(CHAIN))


def segment(slot: int, operator: str, partition: int, tag: str, index: int) -> str:
    """Part `index` of what attempt `tag` of one partition uploaded for `slot`; only `chain/<slot>` may name it."""
    return f"{SEGMENTS}{_number(slot)}/{_segment(operator)}/{partition:05d}-{tag}-{index:05d}"


def image(slot: int, operator: str, partition: int, tag: str) -> str:
    """The non-keyed state that attempt `tag` of one partition uploaded for `slot`; as `segment`."""
    return f"{SEGMENTS}{_number(slot)}/{_segment(operator)}/{partition:05d}-{tag}-image"


def gathered(slot: int, token: str) -> str:
    """What the driver has gathered of the segments of a batch, for `chain/<slot>`."""
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
    """One file uploaded for snapshot `number` by the uploader `uid`; later snapshots of the range may share it."""
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
    """A pin: who holds it needs everything from its `needs_from` on."""
    return f"{PINS}{_segment(pin_id)}"


def is_savepoint_name(name: str) -> bool:
    """Whether a savepoint may have this name: of the form of a job's, but neither `latest` nor a number."""
    return _JOB_NAME.fullmatch(name) is not None and name.lower() != LATEST and not name.isdecimal()


def check_savepoint_name(name: str) -> str:
    """The name, if it is one of a savepoint. Raises `InvalidRequestError`."""
    if not is_savepoint_name(name):
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a savepoint; use 1 to 128 letters, digits, '.', '_' or '-', beginning "
            f"with a letter or digit, but neither {LATEST!r} nor a number"
        )
    return name


def hold_name(token: str) -> str:
    """Name of a savepoint that a copy in progress holds; no user's name is like it, and all users' sort after it."""
    return f"{_HOLD}{token}"


def clone_hold_name(job_id: str, token: str) -> str:
    """Name of a hold in the source of a clone with this id; "" as token gives what all of them begin with."""
    return hold_name(f"clone-{job_id}-{token}")


def is_hold(name: str) -> bool:
    """Whether a savepoint's name is of `hold_name`."""
    return name.startswith(_HOLD)


def savepoint(name: str) -> str:
    """A savepoint's manifest."""
    return f"{SAVEPOINTS}{_segment(name)}"


def savepoint_file(token: str, operator: str, state: str, low: int, high: int) -> str:
    """Rows of one state of key groups `[low, high)` in the savepoint `token`."""
    return f"{SAVEPOINT_FILES}{token}/{_segment(operator)}/{_state_segment(state)}/{_range(low, high)}.parquet"


def savepoint_table(token: str, operator: str, state: str, kind: str) -> str:
    """Rows of one non-keyed state in the savepoint `token`; the dot tells it from the directory of a keyed one."""
    return f"{SAVEPOINT_FILES}{token}/{_segment(operator)}/{_state_segment(state)}.{kind}.parquet"


def savepoint_image(token: str, index: int) -> str:
    """An image of non-keyed state in the savepoint `token`; the dot tells it from an operator's directory."""
    return f"{SAVEPOINT_FILES}{token}/image.{index}"


def savepoint_token(name: str) -> str:
    """Which savepoint a name under `savepointdata/` belongs to."""
    return name.split("/", 2)[1]


def member(member_id: str) -> str:
    """A materializer's heartbeat counter."""
    return f"{MEMBERS}{_segment(member_id)}"


def standby(host: str) -> str:
    """What the standby of a host has copies of."""
    return f"{STANDBYS}{_segment(host)}"


def request(token: str) -> str:
    """Somebody asks the materializers for a materialization."""
    return f"{REQUESTS}{_segment(token)}"
