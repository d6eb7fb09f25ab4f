"""The materializer's process: the loop over jobs, and the steps of each job.

Invariants: I7 (pins of the retention), I9 (the process may die at any moment), I10 (failures are retried with backoff).

| module | owns |
|---|---|
| `announcements` | entries that the driver announces to its own materializer |
| `child_process` | a materializer as a child of the driver |
| `collect_schedule` | the time of the next garbage collection |
| `context` | the collaborators that all parts share |
| `demand` | requests for a materialization |
| `followed_job` | what belongs to the id of a job that exists |
| `job` | one job's steps: follow, materialize, collect |
| `loop` | the loop over all jobs of a storage |
| `retention` | retention by time, made of pins |
| `sharing` | heartbeats, and the ranges of each of several materializers |
| `status` | status of a job's ranges |
| `supervisor` | restarts of the child |
"""
