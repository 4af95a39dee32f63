"""One page a file: a header and a function."""
