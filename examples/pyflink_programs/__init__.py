"""Programs in PyFlink's style. Each runs on PyFlink too, with `varvite` replaced by `pyflink` in its imports."""
