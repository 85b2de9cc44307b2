"""What clawd costs, measured from outside. `make bench` prints one JSON line a figure."""
