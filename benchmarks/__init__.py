"""Measurements of varvite beside its peers; see `benchmarks.smoke`."""
