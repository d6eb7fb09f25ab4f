"""The demo: a year of flights through a job with keyed state, checked against pandas."""
