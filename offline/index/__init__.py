"""The semantic index: vectors, codes, trie and neighbour lists."""
