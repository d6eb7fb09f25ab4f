"""The sidecar: follow a job's chain, fold the log into snapshots, publish them, collect what nobody needs.

`python -m varvite.materializer` runs it. Imports `varvite.changelog` and `varvite.storage`, never Spark: it talks to a
job only through storage. Keeps I5 (base plus log), I7 (nothing needed is deleted) and I10 (bounded).
"""
