"""What was brought in from another claw, and lies in `groups/<g>/import/<source>/` until the owner says yes to it.

Nothing in there is read by any other room: no session, no memory, no skill and no schedule of it is in force.
"""
