"""Skills as folders: what they say, what is wrong with them, where they lie."""
