"""Journal entries to results: text, stops, tool calls."""
