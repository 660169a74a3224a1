"""Sound and its spectra: files, pipes, the Fourier transform, the running level, scores. Knows nothing of models."""
