"""`python -m varvite.materializer`: the same as `varvite materialize`."""

from __future__ import annotations

from varvite.materializer.commands.cli import materialize

if __name__ == "__main__":
    materialize(prog_name="python -m varvite.materializer")
