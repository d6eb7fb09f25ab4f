"""How measurements run: Spark sessions, servers, processes, statistics and reports."""
