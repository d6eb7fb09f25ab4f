"""The functions that a program implements, with PyFlink's names, and the contexts that they get.

Keeps I4 in its contracts (fields of a function are a cache; state belongs in handles) and I5 (time is the batch's).

| module | owns |
|---|---|
| `stateless` | map, filter, flat_map, process and key functions |
| `async_io` | functions that wait for services, and their retries |
| `keyed` | `KeyedProcessFunction`, its contexts, `RuntimeContext` |
| `keyed_operations` | map, flat_map, filter and reduce as keyed process functions |
| `connected` | functions on two keyed streams |
| `broadcast` | functions on a stream and a broadcast stream |
| `window` | window functions |
| `vectorized` | keyed functions of Arrow batches |
| `checkpointed` | `CheckpointedFunction` and its raw state |
| `timers` | the timer service |
| `metrics` | metrics of functions |
| `watermark_strategy` | timestamps and watermarks |
| `returned` | checks of what a function returns |
| `output_tag` | names of side outputs |
| `implicit_state` | state that built-in functions declare |
| `pickling` | functions as bytes, with the broadcast variables that they use |
"""
