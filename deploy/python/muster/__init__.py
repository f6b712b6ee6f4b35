"""Reports from a rank of a Muster job.

Every function does nothing outside of Muster, so that a script which uses them also runs by itself or under torchrun.
"""

import json
import os
import signal
import warnings

__all__ = ["on_checkpoint_request", "progress"]

_COUNTS = ("step", "total_steps", "samples")


def progress(**values):
    """Reports how far this rank is: `muster.progress(step=120, total_steps=1000, loss=loss)`.

    Keys are step, total_steps, samples, epoch, loss, learning_rate, images_per_second, test_accuracy and phase. Numbers
    may be tensors or arrays of one element. A report that cannot be written is a warning.
    """
    path = os.environ.get("MUSTER_PROGRESS")
    if not path:
        return
    line = json.dumps({key: _plain(key, value) for key, value in values.items()}) + "\n"
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        warnings.warn(f"cannot report progress: {error}", RuntimeWarning, stacklevel=2)


def _plain(key, value):
    if isinstance(value, str):
        return value
    return int(value) if key in _COUNTS else float(value)


def on_checkpoint_request(function):
    """Calls `function()` when Muster is about to stop this rank, which then has MUSTER_GRACE_SECONDS to save and exit.

    It runs as a signal handler of the main thread, between two statements of the program: let it note the request, and
    save after the step. Call this in the main thread. Returns `function`, so that it can be used as a decorator; of
    several functions, all are called.
    """
    name = os.environ.get("MUSTER_STOP_SIGNAL")
    if not name:
        return function
    number = signal.Signals[name]
    previous = signal.getsignal(number)

    def handle(signum, frame):
        if getattr(previous, "by_muster", False):
            previous(signum, frame)
        function()

    handle.by_muster = True
    signal.signal(number, handle)
    return function
