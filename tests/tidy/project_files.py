"""Files of the project, and their texts."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = frozenset({".git", ".venv", "__pycache__", "build", "dist", ".hypothesis", ".pytest_cache", ".ruff_cache"})


@cache
def project_files() -> list[Path]:
    """Files that are tracked or would be; without git, everything that is not a tool's own."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        paths = [ROOT / name for name in listed if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())
