"""The recurrence of maths.thresholding, fast: in C, in Triton, on clusters and grids of CUDA blocks."""
