"""What every process of ours has in common: signals, log, health, and how one starts and watches another."""
