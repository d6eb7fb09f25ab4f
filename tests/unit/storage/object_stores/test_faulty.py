"""The store that fails on purpose."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.stores.faulty import Faults, FaultyStore
from tests.stores.manual_clock import ManualClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError, VarviteError
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores.faulty import Operation, Phase


def faulty(inner: MemoryStore, faults: Faults, seed: int = 1, clock: ManualClock | None = None) -> FaultyStore:
    return FaultyStore(inner, random.Random(seed), faults, clock=clock or ManualClock())


def test_before_has_no_effect_and_says_so() -> None:
    inner = MemoryStore()
    with pytest.raises(DidNotHappenError):
        faulty(inner, Faults(before=1)).put_if_absent("a", b"x")
    assert inner.list("") == []


def test_after_has_its_effect_and_loses_the_reply() -> None:
    inner = MemoryStore()
    with pytest.raises(MayHaveHappenedError):
        faulty(inner, Faults(after=1)).put_if_absent("a", b"x")
    assert inner.get("a") == b"x"


def test_torn_has_no_effect_and_does_not_say_so() -> None:
    inner = MemoryStore()
    with pytest.raises(MayHaveHappenedError):
        faulty(inner, Faults(torn=1)).put_if_absent("a", b"x")
    assert inner.list("") == []


@pytest.mark.parametrize("faults", [Faults(before=1), Faults(after=1), Faults(torn=1)])
def test_a_failed_read_never_says_may_have_happened(faults: Faults, tmp_path: Path) -> None:
    inner = MemoryStore()
    inner.put("a", b"xyz")
    store = faulty(inner, faults)
    for read in (
        lambda: store.get("a"),
        lambda: store.get_range("a", 0, 1),
        lambda: store.list(""),
        lambda: store.get_file("a", tmp_path / "a"),
    ):
        with pytest.raises(DidNotHappenError):
            read()


def test_a_delay_goes_through_the_clock() -> None:
    clock = ManualClock()
    store = faulty(MemoryStore(), Faults(delay=1, delay_max_s=3), clock=clock)
    for number in range(20):
        store.put(f"{number}", b"")
    assert len(clock.sleeps) == 20
    assert 0 < min(clock.sleeps) < max(clock.sleeps) <= 3


def outcomes(seed: int, faults: Faults) -> list[str]:
    store, seen = faulty(MemoryStore(), faults, seed), list[str]()
    for number in range(100):
        try:
            store.put_if_absent(f"{number}", b"")
            seen.append("done")
        except VarviteError as error:
            seen.append(type(error).__name__)
    return seen


def test_a_seed_decides_everything() -> None:
    faults = Faults(before=0.2, after=0.2, torn=0.2, delay=0.5)
    assert outcomes(7, faults) == outcomes(7, faults)
    assert outcomes(7, faults) != outcomes(8, faults)
    assert set(outcomes(7, faults)) == {"done", "DidNotHappenError", "MayHaveHappenedError"}


def test_a_delay_does_not_change_which_calls_fail() -> None:
    assert outcomes(7, Faults(before=0.3)) == outcomes(7, Faults(before=0.3, delay=0.5))


def test_the_crash_hook_sees_each_effect_before_and_after() -> None:
    inner, seen = MemoryStore(), list[tuple[str, str, str, list[str]]]()

    def hook(operation: Operation, name: str, phase: Phase) -> None:
        seen.append((operation, name, phase, [meta.name for meta in inner.list("")]))

    store = FaultyStore(inner, random.Random(1), Faults(), clock=ManualClock(), crash_hook=hook)
    store.put_if_absent("a", b"")
    store.put("b", b"")
    store.delete(["a", "b"])
    assert seen == [
        ("put_if_absent", "a", "before", []),
        ("put_if_absent", "a", "after", ["a"]),
        ("put", "b", "before", ["a"]),
        ("put", "b", "after", ["a", "b"]),
        ("delete", "a", "before", ["a", "b"]),
        ("delete", "a", "after", ["b"]),
        ("delete", "b", "before", ["b"]),
        ("delete", "b", "after", []),
    ]


def test_a_hook_that_raises_stops_at_the_exact_effect() -> None:
    class CrashError(Exception):
        pass

    inner = MemoryStore()

    def hook(operation: Operation, name: str, phase: Phase) -> None:
        if (name, phase) == ("b", "before"):
            raise CrashError

    store = FaultyStore(inner, random.Random(1), Faults(), clock=ManualClock(), crash_hook=hook)
    store.put("a", b"")
    with pytest.raises(CrashError):
        store.put("b", b"")
    assert [meta.name for meta in inner.list("")] == ["a"]


def test_the_hook_is_not_called_for_an_effect_that_does_not_take_place() -> None:
    seen = list[str]()
    store = FaultyStore(
        MemoryStore(),
        random.Random(1),
        Faults(before=0.5, torn=0.5),
        clock=ManualClock(),
        crash_hook=lambda operation, name, phase: seen.append(phase),
    )
    for number in range(20):
        with pytest.raises(VarviteError):
            store.put(f"{number}", b"")
    assert seen == []


@pytest.mark.parametrize(
    "wrong", [{"before": -0.1}, {"after": 1.1}, {"before": 0.5, "after": 0.4, "torn": 0.2}, {"delay_max_s": -1}]
)
def test_faults_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequestError):
        Faults(**wrong)


def test_claims_through_faults_have_one_owner_per_name_or_an_unclear_end() -> None:
    """Many claims of few names: whoever is told "won" is the one whose body is stored."""
    for seed in range(30):
        inner = MemoryStore()
        store = faulty(inner, Faults(before=0.2, after=0.25, torn=0.2), seed)
        owners: dict[str, str] = {}
        for number in range(60):
            name, token = f"chain/{number % 10}", f"{seed:016d}{number:016d}"
            try:
                if claim(store, name, b"entry " + token.encode(), token, ManualClock()).won:
                    assert name not in owners
                    owners[name] = token
                else:
                    assert token.encode() not in inner.get(name)
            except (DidNotHappenError, MayHaveHappenedError):
                continue
        assert owners
        assert all(token.encode() in inner.get(name) for name, token in owners.items())
