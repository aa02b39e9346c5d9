"""The numbers that the documentation states, next to what they are compared with: `python -m benchmarks`."""
