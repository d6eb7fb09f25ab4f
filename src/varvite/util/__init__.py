"""`pyflink.util`'s modules, as far as programs import them: `java_utils`."""
