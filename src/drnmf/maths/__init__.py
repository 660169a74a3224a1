"""Sparse NMF and iterative thresholding, to be read beside the paper: the oracle of everything fast."""
