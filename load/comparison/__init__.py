"""The parts of `load.compare`: arms, workloads, what their processes use, the file of results."""
