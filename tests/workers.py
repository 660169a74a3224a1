"""What worker processes do in tests: functions they can import."""

import os
import signal
import time


def square(task, progress):
    """The square; the first task takes longest."""
    progress(f"square, of {task}", task, 10)
    time.sleep(0.3 if task == 0 else 0)
    return task**2, os.getpid(), os.environ.get("OMP_NUM_THREADS")


def die(task, progress):
    """As the kernel ends a process for lack of memory."""
    os._exit(9)


def blocked_signals(task, progress):
    """Those that this process does not hear."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def wait_for_the_end(task, progress):
    """Write a file, and remove it when the run is stopped."""
    task.touch()
    try:
        for _ in range(200):
            progress("waiting", 0, 1)
            time.sleep(0.05)
    except BaseException:
        task.unlink()
        raise
