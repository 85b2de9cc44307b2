"""Delivery: the outbox on its way to the platforms, one chat at a time, in order, each row decided once."""
