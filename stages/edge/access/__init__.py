"""Who may ask: keys, tenants, limits."""
