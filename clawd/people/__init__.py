"""People: who may speak, with what role, and by which accounts; pairing; what the owner is asked."""
