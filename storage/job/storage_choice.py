"""How a job's objects are stored, as `job.json` says: what a new job's says, and whether it is what a driver was told.

`job.json` itself is plain, and holds for the life of the job. So nobody who opens the job can mistake an encrypted one
for one that is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.storage.errors import IncompatibleError
from varvite.storage.format import layout
from varvite.storage.format.records import JobEncryption, JobStorage
from varvite.storage.object_stores.encrypted.keys import open_keyring

if TYPE_CHECKING:
    from varvite.storage.format.records import JobRecord, LogLocation
    from varvite.storage.object_stores.encrypted.keys import Keyring


def new_job_storage(key_provider: str | None = None, log: LogLocation | None = None) -> JobStorage | None:
    """What a new job's record says.

    Args:
        key_provider: Encrypt the job, with the keys of this provider; None: do not.
        log: Where its log data is to be; None: beside the chain.

    Raises `MissingKeyError` if there is no key, `InvalidRequestError` if a key or the provider is wrong.
    """
    encryption = None
    if key_provider is not None:
        key = open_keyring(key_provider).current
        encryption = JobEncryption(key_id=key.key_id, check=key.check.hex())
    return None if encryption is None and log is None else JobStorage(encryption=encryption, log=log)


def check_job_storage(record: JobRecord, *, encrypted: bool, log: LogLocation | None = None) -> None:
    """Raise `IncompatibleError` if the job was made in another way than is wanted.

    Args:
        record: The job's.
        encrypted: Whether encryption is wanted; a job may have it all the same.
        log: Where its log data is wanted; None: wherever it is.
    """
    storage = record.storage or JobStorage()
    if log is not None and log != storage.log:
        raise IncompatibleError(
            f"the job keeps its log data {_place(storage.log)} for ever, not {_place(log)}; start a new job from its "
            "state with execution.state-recovery.path, or set state.changelog.storage and "
            "state.changelog.dstl.dfs.base-path as they were",
            job=record.name,
            object_name=layout.JOB,
        )
    if encrypted and storage.encryption is None:
        raise IncompatibleError(
            "the job was made without encryption, and its objects are not encrypted; start a new job from its state "
            "with execution.state-recovery.path, or leave storage.encryption.key-provider unset",
            job=record.name,
            object_name=layout.JOB,
        )


def _place(log: LogLocation | None) -> str:
    return "beside its snapshots" if log is None else f"at {log.base_path or log.type}"


def check_keys(encryption: JobEncryption, keyring: Keyring) -> None:
    """Raise `MissingKeyError` unless the keyring can encrypt, and has the right key under the id that the job names.

    That key may have been retired since. Objects name their own.
    """
    _ = keyring.current
    if keyring.find(encryption.key_id) is not None:
        keyring.key(encryption.key_id, bytes.fromhex(encryption.check), layout.JOB)
