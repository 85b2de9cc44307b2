"""Usage: what model calls may cost, what they did cost, and what is left."""
