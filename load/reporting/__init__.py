"""From the JSON lines of `load.compare` to tables, verdicts on targets, plots and a page of documentation."""
