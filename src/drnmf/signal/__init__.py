"""Sound and its spectra: files, pipes, the Fourier transform, the running level, scores. Knows nothing of models."""

SAMPLE_RATE = 16000  # Hz, at which all models work
WINDOW = 512  # samples of a frame
HOP = 128  # samples from one frame to the next
BINS = WINDOW // 2 + 1  # of a frame's spectrum
