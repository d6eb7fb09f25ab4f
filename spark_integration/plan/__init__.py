"""TODO: one paragraph, and a table of what each module owns."""
