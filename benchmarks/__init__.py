"""Measurements of varve beside its peers; see `benchmarks.smoke`."""
