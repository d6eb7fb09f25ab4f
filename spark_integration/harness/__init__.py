"""`OperatorHarness`: one stateful operator without Spark, for tests of users' functions.

| module | owns |
|---|---|
| `elements` | elements to rows of partitions, and answers to elements |
| `harness` | the harness itself |
| `job` | the job under it: state workers, chain and materializer in one process |
| `plan` | the program, planned as a job |
"""
