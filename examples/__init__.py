"""Programs that show varvite at work."""
