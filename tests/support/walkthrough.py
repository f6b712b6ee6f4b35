"""Runs the steps of a page or recording in one shell, as a user would, and compares their output."""

import time
import unittest

from tests.support.namespaces import Unavailable
from tests.support.sandbox import Failed, Sandbox, Session
from tests.support.transcript import difference

# Daemons in the background print their addresses when they are ready.
OUTPUT_TIMEOUT_SECONDS = 15


def new_sandbox():
    try:
        return Sandbox()
    except Unavailable as reason:
        raise unittest.SkipTest(f"cannot create namespaces: {reason}")


def walk(name, steps, timeout, columns=None):
    """Returns the problems as text; empty if there is none. With `columns`, the shell runs on a terminal."""
    problems = []
    with new_sandbox() as sandbox:
        with Session(sandbox, timeout, columns) as session:
            for step in steps:
                try:
                    problem = _run(session, step, columns is not None)
                except Failed as error:
                    problems.append(f"{name}:{step.line}: {error}")
                    break
                if problem:
                    problems.append(f"{name}:{step.line}: {problem}")
        if not problems and (left := sandbox.leftovers()):
            problems.append(f"{name} leaves processes or files behind: {left}")
    return "\n\n".join(problems)


def _run(session, step, terminal):
    """Empty, or how the real output differs from the shown one."""
    started = time.monotonic()
    session.start(step.commands)
    for text, keys in step.keys:
        session.wait_for(text)
        if keys:
            session.type(keys)
    output = session.finish()

    def problem():
        return difference(step.output, output, terminal) if step.output is not None else ""

    deadline = time.monotonic() + OUTPUT_TIMEOUT_SECONDS
    while problem() and "&\n" in step.commands and time.monotonic() < deadline:
        time.sleep(0.05)
        output = session.output()
    print(f"line {step.line}: {time.monotonic() - started:.1f} s\n{output}", flush=True)
    return problem()
