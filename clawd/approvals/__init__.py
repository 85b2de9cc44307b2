"""Approvals: what the owner is asked before it is done, and what is done when they say yes.

The daemon alone writes them, from typed effects (`kinds`), and it alone carries them out, once. Rights, and what an
effect rests on, are looked at again in the transaction that executes. Nobody below the owner decides.
"""
