"""Measurements of what grows with the number of partitions: the driver's work, and reads at a restart."""
