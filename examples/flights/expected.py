"""Expected state of every aircraft and expected output rows, computed by pandas alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from examples.flights.job import TOP


@dataclass(frozen=True)
class Aircraft:
    """State of one aircraft after all flights."""

    flights: int
    air_minutes: int
    delay_balance: int
    last_airport: str
    visits: dict[str, int]
    top_destinations: tuple[str, ...]


def expected_state(flights: pd.DataFrame) -> dict[str | None, Aircraft]:
    """By tail number; None is the key of flights whose aircraft is unknown."""
    found: dict[str | None, Aircraft] = {}
    for tailnum, group in flights.groupby("tailnum", dropna=False, sort=False):
        visits = {str(k): int(v) for k, v in group["dest"].value_counts().items()}
        ranked = sorted(visits, key=lambda dest: (-visits[dest], dest))[:TOP]
        key = None if pd.isna(tailnum) else str(tailnum)
        found[key] = Aircraft(
            flights=len(group),
            air_minutes=int(group["air_minutes"].sum()),
            delay_balance=int(group["delay_minutes"].sum()),
            last_airport=str(group["dest"].iloc[-1]),
            visits=visits,
            top_destinations=tuple(ranked),
        )
    return found


def expected_output(flights: pd.DataFrame) -> pd.DataFrame:
    """The output rows in order of id."""
    by_aircraft = flights.groupby("tailnum", dropna=False, sort=False)
    return pd.DataFrame(
        {
            "id": flights["id"],
            "tailnum": flights["tailnum"],
            "flights": by_aircraft.cumcount() + 1,
            "air_minutes": by_aircraft["air_minutes"].cumsum(),
            "delay_balance": by_aircraft["delay_minutes"].cumsum(),
            "last_airport": flights["dest"],
        }
    )


def differences(expected: dict[Any, Any], found: dict[Any, Any]) -> list[str]:
    """One line for each aircraft that is missing, too many or different."""
    lines = [f"{key}: missing" for key in expected.keys() - found.keys()]
    lines += [f"{key}: not expected" for key in found.keys() - expected.keys()]
    lines += [f"{k}: expected {v}, found {found[k]}" for k, v in expected.items() if k in found and found[k] != v]
    return lines
