"""Speed and memory of everything, as one table: `python -m benchmarks`."""
