"""Random inputs of every class: none may end in anything but success or one line, whatever it is.

A class is a module here: its docstring says what it tries, and its `attempt(random, folder)` makes one input from the
random numbers and uses it. Returning means that it was accepted, an InputError that it was refused; anything else,
an AssertionError or a hang included, is a failure. The same seed and number give the same input. `SHORT` is how many of
them the suite tries. What `attempt` returns, if anything, names a kind of input, to be counted.

    make fuzz                                      # all classes for a while; figures go to docs/results/reliability
    PYTHONPATH=tests python -m fuzz sounds --at 7  # one input again
"""
