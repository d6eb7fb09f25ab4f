"""Keyed state and its log: descriptors, state types, TTL, timers, working stores, segments and their replay.

Imports `varvite.storage` only. Keeps I3 (never merged), I4 (pending until confirmed) and I5 (base plus log).
"""
