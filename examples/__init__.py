"""Programs that show varve at work."""
