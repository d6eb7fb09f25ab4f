"""Programs in PyFlink's style. Each runs on PyFlink too, with `varve` replaced by `pyflink` in its imports."""
