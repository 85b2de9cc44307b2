"""Context: what a turn is given."""
