"""Inputs, and the jobs that are measured."""
