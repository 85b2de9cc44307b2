"""What the readers of other claws' homes have in common. A home is hostile input: see `place`."""
