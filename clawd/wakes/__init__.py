"""What wakes a group beside what is said: the clock, changed files, requests from outside."""
