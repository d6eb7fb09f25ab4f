"""The types of values and keys: four forms of a value (the user's, stored, wire, Arrow) and their conversions.

`Types`, `as_type` and `parse_type_string` are imported from where they are, `factory`; for users they are in `varvite`.

Invariants: I5 (equal values have equal wire bytes, whatever process or store made them).

| module | owns |
|---|---|
| `contract` | the base of all types, and the four forms |
| `wire` | types by their MessagePack form |
| `wire_columns` | wire forms of whole columns |
| `key_wire` | wire form of keys, null included |
| `basic` | booleans, numbers, strings, bytes |
| `decimals` | integers of any size, decimals |
| `times` | dates, times, timestamps |
| `collections` | lists, arrays, maps, pickled objects |
| `composites` | tuples and rows |
| `composites_fast` | columns and freezing of tuples without a visit of each field |
| `dynamic_key` | keys without a declared type |
| `stamped` | values with a time stamp, for TTL |
| `columns` | canonical Arrow columns of the methods for many keys |
| `text` | type strings on disk, Spark's DDL |
| `factory` | `Types` and `as_type` |
| `evolution` | conversions between types of state |
"""
