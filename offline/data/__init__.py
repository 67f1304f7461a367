"""Data sets: read a source, say what could not be used, split by time, write the files that the other rooms read."""
