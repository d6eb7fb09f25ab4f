"""Encryption and log location of a job: chosen for a new job, and checked against the configuration of a driver.

They are in `job.json`, which is not encrypted and never changes. So nobody mistakes an encrypted job for a plain one.
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
    """The storage section of a new job's record.

    Args:
        key_provider: Encrypt the job, with the keys of this provider; None: do not.
        log: The location of its log data; None: beside the chain.

    Raises `MissingKeyError` if there is no key, `InvalidRequestError` if a key or the provider is wrong.
    """
    encryption = None
    if key_provider is not None:
        key = open_keyring(key_provider).current
        encryption = JobEncryption(key_id=key.key_id, check=key.check.hex())
    return None if encryption is None and log is None else JobStorage(encryption=encryption, log=log)


def check_job_storage(record: JobRecord, *, encrypted: bool, log: LogLocation | None = None) -> None:
    """Raise `IncompatibleError` if the job's storage differs from the configuration.

    Args:
        record: The job's record.
        encrypted: True: it must be encrypted. False: it may be.
        log: The configured location of its log data; None: any.
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
    """Raise `MissingKeyError` unless the keyring can encrypt, and has no other key under the id that the job names.

    That key may be missing, because it may have been retired. Objects name their own keys.
    """
    _ = keyring.current
    if keyring.find(encryption.key_id) is not None:
        keyring.key(encryption.key_id, bytes.fromhex(encryption.check), layout.JOB)
