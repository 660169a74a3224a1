"""Enhance a folder with all cores: batch.py IN OUT. Given again, it goes on where it ended."""

import os
import sys
from pathlib import Path

from drnmf.use.folders import enhance_tree, plan, summary

if __name__ == "__main__":  # each process imports this file again
    source, target = map(Path, sys.argv[1:])
    result = enhance_tree(plan([source], target), jobs=os.cpu_count() or 1, max_attenuation=18)
    print(summary(result))
    sys.exit(1 if result.failures else 0)
