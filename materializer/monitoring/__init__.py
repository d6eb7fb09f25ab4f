"""Events, metrics and health of a materializer, and the HTTP server that shows them.

| module | owns |
|---|---|
| `events` | the events, as records and as JSON lines |
| `health` | the answers of `/healthz` and `/readyz` |
| `metrics` | counters and histograms |
| `range_metrics` | gauges of jobs and ranges |
| `range_status` | status values, and the watchdog's decision |
| `server` | the HTTP server |
"""
