"""Reading and writing sound files: the only module that opens them (soundfile), and the only one that resamples (soxr)."""
