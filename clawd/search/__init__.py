"""Search over derived indexes, one file a group: words, n-grams and vectors. It knows texts and filters alone."""
