"""State as DataFrames: Spark data sources over the readers of `changelog.reading`.

Invariants: I5, I7, I8 (as the readers keep them).

| module | owns |
|---|---|
| `data_sources` | the sources `varvite-state` and `varvite-changelog` |
| `pushed_filters` | the effect of filters on numbers and names |
"""
