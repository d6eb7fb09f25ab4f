"""A job's objects are stored as its `job.json` says, whoever opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec
import pytest

from tests.stores.key_vault import Vault
from tests.stores.manual_clock import ManualClock
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import CorruptDataError, IncompatibleError, MissingKeyError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.records import encode_record
from varvite.storage.job.record import find_job, open_or_create_job, read_job
from varvite.storage.job.storage_choice import check_job_storage, new_job_storage
from varvite.storage.job.store import JobFacts, JobStore
from varvite.storage.object_stores.contract import is_reusable
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE, EncryptionKey
from varvite.storage.object_stores.encrypted.sealed_object import is_sealed
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from varvite.storage.format.records import JobRecord
    from varvite.storage.object_stores.contract import ObjectStore

KEY, OTHER = "ab" * 32, "cd" * 32
CHAIN = layout.chain(1)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def make(root: ObjectStore, name: str = "job", provider: str | None = "environment") -> JobRecord:
    return open_or_create_job(
        JobStore(root, name, key_provider=provider),
        name=name,
        max_parallelism=8,
        clock=ManualClock(),
        tokens=SystemTokens(),
        storage=new_job_storage(provider),
    )


def test_all_objects_but_job_json_are_encrypted() -> None:
    root = MemoryStore()
    made = make(root)
    store = JobStore(root, "job")
    assert store.put_if_absent(CHAIN, b"an entry")
    assert read_job(store) == made
    assert not is_sealed(root.get("job/job.json"))
    assert is_sealed(root.get(f"job/{CHAIN}"))
    assert store.get(CHAIN) == b"an entry"
    assert [(m.name, m.size_bytes) for m in store.list(layout.CHAIN)] == [(CHAIN, 8)]
    store.delete([CHAIN])
    assert root.list("job/chain") == []


def test_a_store_that_was_open_before_the_job_was_made_encrypts_from_then_on() -> None:
    root = MemoryStore()
    store = JobStore(root, "job")
    assert store.list(layout.CHAIN) == []
    make(root)
    store.put(CHAIN, b"an entry")
    assert is_sealed(root.get(f"job/{CHAIN}"))


@pytest.mark.parametrize("provider", [None, "environment"])
def test_the_next_job_of_a_name_is_stored_as_its_own_record_says(provider: str | None) -> None:
    """A follower of a name reads `job.json` again when the job is gone."""
    root, other = MemoryStore(), "environment" if provider is None else None
    make(root, provider=provider)
    store = JobStore(root, "job")
    read_job(store)
    store.put(CHAIN, b"of the first")
    root.delete([meta.name for meta in root.list("")])
    assert find_job(store) is None
    make(root, provider=other)
    read_job(store)
    store.put(CHAIN, b"of the second")
    assert is_sealed(root.get(f"job/{CHAIN}")) == (other is not None)
    assert store.get(CHAIN) == b"of the second"


def test_who_knows_the_record_does_not_read_it() -> None:
    root = MemoryStore()
    record = make(root)
    JobStore(root, "job").put(CHAIN, b"x")
    root.delete(["job/job.json"])
    assert JobStore(root, "job", facts=JobFacts(record.job_id, record.storage)).get(CHAIN) == b"x"


def test_without_the_key_nothing_opens_and_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    root = MemoryStore()
    make(root)
    JobStore(root, "job").put(CHAIN, b"x")
    monkeypatch.delenv(KEY_VARIABLE)
    for ask in (JobStore(root, "job").get, JobStore(root, "job").list):
        with pytest.raises(MissingKeyError, match="no encryption key in this process's environment"):
            ask(CHAIN)
    with pytest.raises(MissingKeyError):
        new_job_storage("environment")
    assert read_job(JobStore(root, "job")).storage is not None


def test_with_another_key_nothing_opens_and_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    root = MemoryStore()
    make(root)
    JobStore(root, "job").put(CHAIN, b"x")
    monkeypatch.setenv(KEY_VARIABLE, OTHER)
    with pytest.raises(MissingKeyError, match="which was not given to this process") as raised:
        JobStore(root, "job").get(CHAIN)
    assert raised.value.context["object_name"] == CHAIN


def test_keys_can_be_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    root = MemoryStore()
    make(root)
    JobStore(root, "job").put("seg/1", b"old")
    monkeypatch.setenv(KEY_VARIABLE, f"{OTHER},{KEY}")
    store = JobStore(root, "job")
    store.put("seg/2", b"new")
    assert (store.get("seg/1"), store.get("seg/2")) == (b"old", b"new")
    monkeypatch.setenv(KEY_VARIABLE, OTHER)
    retired = JobStore(root, "job")
    assert retired.get("seg/2") == b"new"
    with pytest.raises(MissingKeyError):
        retired.get("seg/1")
    for one in (store, retired):
        assert [is_reusable(one, f"seg/{n}") for n in (1, 2, 3)] == [False, True, False]
    assert is_reusable(JobStore(root, "job", key_provider="tests.stores.key_vault:Vault"), "seg/2") is False
    assert is_reusable(root, "job/seg/1"), "who does not encrypt says nothing of it"


class CountedVault(Vault):
    """A user's provider; docs/operate/security.md says how often it is made and asked."""

    made = 0
    asked: ClassVar[list[str]] = []

    def __init__(self) -> None:
        CountedVault.made += 1

    def key(self, key_id: str) -> EncryptionKey | None:
        self.asked.append(key_id)
        return super().key(key_id)


def test_a_provider_is_made_for_each_opening_of_a_job_and_asked_once_for_each_key() -> None:
    root, provider = MemoryStore(), f"{__name__}:CountedVault"
    make(root, provider="tests.stores.key_vault:OldVault")
    JobStore(root, "job", key_provider="tests.stores.key_vault:OldVault").put("seg/1", b"x")
    for opened in (1, 2):
        store = JobStore(root, "job", key_provider=provider)
        for name in ("seg/2", "seg/3"):
            store.put(name, b"y")
            assert (store.get("seg/1"), store.get(name)) == (b"x", b"y")
        assert (CountedVault.made, CountedVault.asked) == (opened, ["2025"] * opened)


def test_objects_cannot_stand_in_for_one_another() -> None:
    root = MemoryStore()
    make(root)
    make(root, "twin")
    JobStore(root, "job").put("seg/1", b"x")
    root.put("job/seg/2", root.get("job/seg/1"))
    root.put("twin/seg/1", root.get("job/seg/1"))
    for store, name in ((JobStore(root, "job"), "seg/2"), (JobStore(root, "twin"), "seg/1")):
        with pytest.raises(CorruptDataError):
            store.get(name)


def test_a_job_can_move_to_another_directory() -> None:
    root = MemoryStore()
    make(root)
    JobStore(root, "job").put("seg/1", b"x")
    for meta in root.list(""):
        root.put(meta.name.replace("job/", "moved/", 1), root.get(meta.name))
    assert JobStore(root, "moved").get("seg/1") == b"x"


def test_what_is_shared_is_read_as_its_own_job_has_it() -> None:
    root = MemoryStore()
    make(root, "secret")
    make(root, "plain", provider=None)
    for name in ("secret", "plain"):
        JobStore(root, name).put("seg/1", name.encode())
    for reader, name in (("secret", "secret"), ("plain", "secret"), ("plain", "plain")):
        store, shared = JobStore(root, reader), layout.shared(name, "seg/1")
        assert store.get(shared) == store.get_range(shared, 0, len(name)) == name.encode()


def test_a_job_without_encryption_is_refused_if_encryption_is_wanted() -> None:
    root = MemoryStore()
    make(root, provider=None)
    record = make(root)  # it keeps what it was made with
    check_job_storage(record, encrypted=False)
    with pytest.raises(IncompatibleError, match="without encryption"):
        check_job_storage(record, encrypted=True)
    check_job_storage(make(root, "other"), encrypted=True)


def test_a_plain_job_json_in_place_of_another_is_refused_by_a_start_that_is_to_encrypt() -> None:
    """docs/operate/security.md: nothing else tells it, for `job.json` is not protected."""
    root = MemoryStore()
    made = make(root)
    root.put("job/job.json", encode_record(msgspec.structs.replace(made, storage=None)))
    root.put(f"job/{CHAIN}", b"forged")
    assert JobStore(root, "job").get(CHAIN) == b"forged"
    check_job_storage(read_job(JobStore(root, "job")), encrypted=False)
    with pytest.raises(IncompatibleError, match="made without encryption"):
        check_job_storage(read_job(JobStore(root, "job")), encrypted=True)


def test_a_plain_object_in_an_encrypted_job_is_refused() -> None:
    root = MemoryStore()
    make(root)
    root.put(f"job/{CHAIN}", b"varve\0CHEN, as somebody else wrote it")
    with pytest.raises(CorruptDataError, match="somebody else wrote it"):
        JobStore(root, "job").get(CHAIN)


def test_an_encrypted_object_is_known_even_if_job_json_was_replaced() -> None:
    root = MemoryStore()
    make(root)
    JobStore(root, "job").put(CHAIN, b"x")
    root.delete(["job/job.json"])
    make(root, provider=None)
    with pytest.raises(IncompatibleError, match="the object is encrypted"):
        JobStore(root, "job").get(CHAIN)


@pytest.mark.parametrize("provider", [None, "environment"])
@pytest.mark.parametrize("name", ["job", "snapdata", "chain"])
def test_errors_name_the_object_from_the_job_on_and_the_job(provider: str | None, name: str) -> None:
    """For any name of a job: nobody could tell from the text which of both a name is."""
    root = MemoryStore()
    make(root, name, provider)
    store = JobStore(root, name)
    for gone in (CHAIN, "snapdata/op/00000-00008/x"):
        for read in (store.get, lambda own: store.get_range(own, 0, 4)):
            with pytest.raises(MissingObjectError) as raised:
                read(gone)
            assert raised.value.context == {"object_name": gone, "job": name}
    beside = layout.shared(name, CHAIN)
    with pytest.raises(MissingObjectError) as raised:
        JobStore(root, "clone").get(beside)
    assert raised.value.context == {"object_name": beside, "job": name}


TOKEN = "0f" * 16
OURS = (
    layout.chain(7),
    layout.segment(7, "op.[x]", 0, TOKEN, 0),
    layout.image(7, "op", 0, TOKEN),
    layout.gathered(7, TOKEN),
    layout.pack(7, TOKEN),
    layout.snapshot("op.[x]/ü", 0, 32768, 1),
    layout.snapshot_file("op.[x]/ü", 0, 8, 1, TOKEN, "000012.sst"),
    layout.pin(TOKEN),
    layout.savepoint("before-upgrade.2"),
    layout.savepoint(layout.clone_hold_name(TOKEN, TOKEN)),
    layout.savepoint_file(TOKEN, "op", "total", 0, 8),
    layout.savepoint_image(TOKEN, 0),
    layout.member(TOKEN),
    layout.REQUEST,
)
AREAS = sorted({name.partition("/")[0] for name in OURS})


def test_what_somebody_else_has_put_among_the_objects_is_not_listed() -> None:
    root = MemoryStore()
    make(root, provider=None)
    store = JobStore(root, "job")
    foreign = [f"{area}/{name}" for area in AREAS for name in ("README.md", "old/README.md", f"{'0' * 19}7.bak")]
    for name in (*OURS, *foreign):
        root.put(f"job/{name}", b"x")
    assert [meta.name for meta in store.list("")] == sorted([*OURS, layout.JOB])
    for area in AREAS:
        assert [meta.name for meta in store.list(f"{area}/")] == sorted(n for n in OURS if n.startswith(f"{area}/"))
    assert not any(map(layout.is_foreign, OURS))


def plain_record(record: JobRecord) -> bytes:
    """The same job, which says that it is not encrypted."""
    return encode_record(msgspec.structs.replace(record, storage=None))


def test_a_checked_record_is_the_one_that_is_used() -> None:
    """With `job.json` swapped after the driver's check, a job with a key provider wrote its chain in the open."""
    root = MemoryStore()
    store = JobStore(root, "job", key_provider="environment")
    record = make(root)
    check_job_storage(record, encrypted=True)
    store.pin(record)
    root.put("job/job.json", plain_record(record))
    store.put(CHAIN, b"an entry")
    assert is_sealed(root.get(f"job/{CHAIN}"))
    assert read_job(store) == record
    assert store.get(CHAIN) == b"an entry"
    root.delete(["job/job.json"])
    store.put(layout.chain(2), b"another")
    assert is_sealed(root.get(f"job/{layout.chain(2)}"))


@pytest.mark.parametrize("downgrade", ["replaced", "deleted", "plain from the beginning"])
@pytest.mark.parametrize("pinned", [True, False])
def test_an_encrypted_clone_believes_no_plain_source(downgrade: str, *, pinned: bool) -> None:
    """Its source's `job.json` is not protected: replaced, the clone read whatever was put beside it in the open."""
    root = MemoryStore()
    source = make(root, "source", provider=None if downgrade.startswith("plain") else "environment")
    JobStore(root, "source").put(CHAIN, b"of the source")
    record = make(root, "clone")
    clone, forged = JobStore(root, "clone"), JobStore(root, "clone")
    shared = layout.shared("source", CHAIN)
    if downgrade == "replaced":
        assert clone.get(shared) == b"of the source"
        root.put("source/job.json", plain_record(source))
    elif downgrade == "deleted":
        root.delete(["source/job.json"])
    root.put(f"source/{CHAIN}", b"forged")
    if pinned:
        forged.pin(record)
    for ask in (forged.get, lambda name: forged.get_range(name, 0, 2), forged.is_reusable):
        with pytest.raises(IncompatibleError, match="which must be encrypted, too"):
            ask(shared)


def test_a_plain_clone_reads_what_its_source_has_in_the_open() -> None:
    root = MemoryStore()
    for name in ("source", "clone"):
        make(root, name, provider=None)
    JobStore(root, "source").put(CHAIN, b"of the source")
    assert JobStore(root, "clone").get(layout.shared("source", CHAIN)) == b"of the source"
