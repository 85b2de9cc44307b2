"""Backups: archives of the home or of one group, what is in them, and how they are put back."""
