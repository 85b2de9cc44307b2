"""What other agents' programs and homes are to clawd: read, written, and spoken to."""
