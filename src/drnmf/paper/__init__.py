"""The paper's experiment: its cells as data, their runs, their tables."""
