"""Reading the chain: entries, the view of a commit, and the bounds of what is kept. Mostly pure.

Invariants: I5 (tiles cover each key group once; a segment counts iff it is newer than the tile), I7 (the view's
`needs_from` and the head's bounds cover all that a commit needs), I8 (entries are verified as they are read).

| word | meaning |
|---|---|
| slot | place in the chain; objects under `seg/<slot>` and `pack/<slot>` are first named by `chain/<slot>` or never |
| line | a commit, its parent, its parent's parent and so on |
| full entry | a commit that lists all of its state: every tile, every segment of the log, every image |
| path | the commits after the newest full entry, up to and with the base |
| view | the state after a commit as names: tiles, segments, images and line (`LineView`) |
| base | the commit that a view describes, on which a batch is executed; also what a tile is for its key groups |
| tile | the snapshot, or files, that are the state of key groups `[low, high)` of an operator as of commit `at` |
| cover | the tiles of all operators, looked up by key group (`TileCover`) |
| floor of key groups | the seq of their tile: only segments above it are replayed (`KeyGroupFloor`) |
| floor of snapshots | the highest snapshot number of a range that may no longer be adopted (`SnapshotFloor`) |
| blob | the bytes behind an entry's record: its inline segments and images |
| inline | in the blob of a chain entry, not in an object of its own |
| retention bounds | `keep_from` and `retained_from`: what a collector may delete |

| module | owns |
|---|---|
| `images` | the images of non-keyed state that count after a commit |
| `invariants` | executable invariants: the violations of entries and views |
| `reader` | verified entries, the head, the view of a commit |
| `retention_bounds` | the bounds of deletion, and whether a commit is complete |
| `segment_index` | the numbers of many segments as columns |
| `tiles` | tiles and the cover of all key groups |
| `view` | the view of a commit, resolved from its full entry and path |
| `view_slices` | the slices of a view that the tasks of one operator need |
"""
