"""The process of a state worker: forked from a warm parent, it executes one request at a time.

Invariants: I3 (a newer attempt supersedes an older one), I6 (nothing of an older run is executed), I9
(the process may end at any moment).

| module | owns |
|---|---|
| `accumulators` | the user's accumulators during an attempt |
| `admission` | which request is executed, refused or superseded; pure |
| `child` | the process of one state worker |
| `contract` | the interface between the process and the state |
| `output` | the lines that user code writes |
| `parent` | the warm parent that forks workers |
| `request_handler` | one request from its opening to the end of the answer |
| `request_queue` | admitted requests that wait for the main thread |
"""
