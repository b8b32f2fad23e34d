"""Benchmarks that run from the command line: `sprii benchmark`."""
