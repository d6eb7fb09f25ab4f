"""Writing the chain: take over, choose a base, plan and append commits. Decisions are pure; `run` ties them together.

Invariants: I1 (an entry is durable when `append` returns), I2 (one attempt per partition), I3 and I11
(`base_decision`), I6 (`start_decision`, `ownership`), I7 (`plan`, `adoption_rules`), I10 (limits of entries, packs and
the path).

| word | meaning |
|---|---|
| fence | the entry by which a driver run takes the chain over |
| claim | put-if-absent with a known outcome |
| partition | a partition's share of a commit: its result (`PartitionResult`), in the entry `Commit.parts` |
| chunk | an early upload of an attempt: a segment before its last one |
| gathered | segments of many partitions that the driver uploads as one object |
| pack | an object with the inline segments and images of many commits, named by a full entry |
| put off | not full although it was due, because the full entry would be too large |
| adopt | to make a published snapshot a tile, or a commit that is durable already the batch's result |
| import | the full commit with which a job begins that is started from another state |

| module | owns |
|---|---|
| `adopt_decision` | the snapshots that the next commit adopts |
| `adoption_rules` | whether a snapshot may be adopted |
| `base_decision` | the commit that a batch is executed on |
| `batch_result` | the results of a batch and their checks |
| `gathered_segments` | segments of many partitions in one object |
| `import_plan` | the start from another state |
| `options` | the options of commits and their retention |
| `ownership` | the ownership of the chain: fence, base, append |
| `pack` | packs of inline segments |
| `pack_upload` | packs made in the background |
| `plan` | the next entry |
| `rules` | the protocol rules that the model check switches off |
| `run` | a driver run of a job |
| `start_decision` | taking the chain over |
| `state` | the chain in memory between two batches |
"""
