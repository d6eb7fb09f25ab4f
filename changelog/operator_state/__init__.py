"""Non-keyed state of a function's instance: broadcast state, lists and raw streams, as images in the checkpoints.

Invariants: I3, I4 (a batch that is never confirmed is undone by a new backend), I5 (after a rescale the partitions
together get every element once), I8 (images are verified), I10 (the size of an image is limited).

| module | owns |
|---|---|
| `backend` | the non-keyed state of one (operator, partition) during a batch |
| `broadcast` | cells and handles of broadcast state |
| `list` | cells and handle of list state |
| `section` | one state of one partition as bytes |
| `image` | all sections of one partition as bytes |
| `image_source` | reading of images at a restore |
| `redistribution` | the sections of a partition after a rescale |
"""
