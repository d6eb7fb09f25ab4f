"""The way of measurements: Spark sessions, servers, processes, statistics and reports."""
