"""Which jobs there are under a storage root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.storage import layout

if TYPE_CHECKING:
    from varve.storage.object_store import ObjectStore


def job_names(root: ObjectStore) -> tuple[str, ...]:
    """Names of all jobs under the root, in order.

    Stores can only list everything below a prefix, so this costs a listing of the whole root: on a big storage name the
    job, or do it seldom.
    """
    suffix = "/" + layout.JOB
    found = (meta.name.removesuffix(suffix) for meta in root.list("") if meta.name.endswith(suffix))
    return tuple(name for name in found if "/" not in name)
