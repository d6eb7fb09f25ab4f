"""`python -m varve.materializer`: the same as `varve materialize`."""

from __future__ import annotations

from varve.materializer.commands.cli import materialize

if __name__ == "__main__":
    materialize(prog_name="python -m varve.materializer")
