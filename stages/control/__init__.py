"""How a running `headrace up` is asked from outside for more or fewer processes: one line of JSON each way."""
