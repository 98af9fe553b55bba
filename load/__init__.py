"""Load, faults and comparisons: what measures the pipeline from outside."""
