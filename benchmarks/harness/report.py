"""Reports of the benchmarks: the machine, the cases as JSON in `benchmarks/results/`, and a chart of them.

Nothing is asserted: a figure depends on the machine and on what else it does.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

RESULTS = Path(__file__).parents[1] / "results"

Cases = list[dict[str, Any]]


def machine() -> dict[str, Any]:
    """Conditions that figures depend on; the load average tells whether the machine was quiet when they were taken."""
    return {
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def results_option(name: str) -> Callable[[Any], Any]:
    """The option of every benchmark that says where its results go; the chart goes beside them."""
    path = click.Path(path_type=Path, dir_okay=False)
    return click.option("--results", type=path, default=RESULTS / f"{name}.json", help="Where the results go.")


def wide_console() -> Console:
    """The terminal; where there is none, tables may be wide."""
    return Console(width=None if sys.stdout.isatty() else 180)


def write_cases(path: Path, cases: Cases) -> None:
    """The machine and all cases so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "cases": cases}, indent=2) + "\n")


def read_cases(path: Path) -> Cases:
    """The cases of an earlier run; none if there was no such run."""
    return json.loads(path.read_text())["cases"] if path.exists() else []


def ratio(figure: float | None, of: float | None) -> str:
    """Ratio of the figure to `of`; empty if one of them is missing."""
    return f"{figure / of:.2f}x" if figure and of else ""


def bar_chart(path: Path, title: str, unit: str, groups: Mapping[str, Sequence[tuple[str, float]]]) -> None:
    """Write horizontal bars as an image.

    Args:
        path: Of the image; its suffix says the format.
        title: Above the bars.
        unit: Below the axis, which is logarithmic: systems differ by more than a hundredfold.
        groups: What is compared, from top to bottom, each with (label, figure).
    """
    from matplotlib.figure import Figure  # without pyplot: no display and no state that outlives this call

    bars = [(f"{label} · {group}", value) for group, members in groups.items() for label, value in members]
    figure = Figure(figsize=(9, 1.2 + 0.28 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    drawn = axes.barh([name for name, _ in bars], [value for _, value in bars])
    axes.bar_label(drawn, labels=[f"{value:,.0f}" for _, value in bars], padding=3)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(unit)
    axes.set_title(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


Points = Sequence[tuple[float, float]]


def line_chart(
    path: Path, title: str, axes_names: tuple[str, str], series: Mapping[str, Points], *, is_log: bool = True
) -> None:
    """Write lines as an image.

    Args:
        path: Of the image; its suffix says the format.
        title: Above the lines.
        axes_names: What is along x and y.
        series: Name of each line → its points, in order of x.
        is_log: Both axes are logarithmic; otherwise linear, and y begins at 0.
    """
    from matplotlib.figure import Figure  # without pyplot: no display and no state that outlives this call

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o" if len(points) < 50 else "", label=name)
    if is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(axes_names[0])
    axes.set_ylabel(axes_names[1])
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
