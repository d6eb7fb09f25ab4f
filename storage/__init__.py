"""Durable bytes: object stores, put-if-absent, the names of a job's objects, checkpoint and snapshot objects.

The lowest layer: imports nothing else of varvite. Keeps I1 (durable before acknowledged), I6 (one writer), I7 (nothing
needed is deleted) and I8 (read means verified) as far as bytes and names can.
"""
