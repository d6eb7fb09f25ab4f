"""Windows: assigners, triggers, contents, and the operators that put them together.

Invariants: I5 (firing and its order depend on state, elements, time and watermark only).

| module | owns |
|---|---|
| `assigners` | windows, and the windows of an element |
| `trigger` | PyFlink's `Trigger`, and its context |
| `builtin_triggers` | PyFlink's triggers, and the effect of the plain ones |
| `operator` | operators for triggers with a known effect |
| `count_windows` | operators of windows of a number of elements |
| `any_trigger_operator` | operators that call a trigger, and the choice of the operator |
| `contents` | elements or accumulators of windows |
| `emission` | output of a window that fires |
"""
