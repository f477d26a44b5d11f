"""Starts the program `strait`, and turns its failures into RunError."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading


class RunError(Exception):
    """What the program said, as one text, and its exit code (docs/troubleshooting.md)."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def output_of(*words):
    """Runs a verb to its end: what it printed."""
    done = subprocess.run(_command(words), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                          errors="replace")
    notes, error = _split(done.stderr)
    sys.stderr.write(notes)
    if done.returncode != 0:
        raise _failure(error, done.returncode)
    return done.stdout


class Program:
    """A verb that prints events as it runs. It ends with the `with` block: after an exception there it is asked to stop,
    and each Ctrl-C that follows is passed on to it."""

    def __init__(self, *words):
        # A session of its own: the terminal's Ctrl-C reaches this process alone, which passes it on once.
        self._process = subprocess.Popen(
            _command(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", errors="replace", start_new_session=True)
        self._error = ""
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        stop = kind is not None
        while True:
            try:
                if stop:
                    stop = False
                    self._process.send_signal(signal.SIGINT)
                for _ in self._process.stdout:
                    pass
                self._process.wait()
                self._reader.join()
                break
            except KeyboardInterrupt:
                stop = True
        self._process.stdout.close()
        self._process.stderr.close()

    def events(self):
        for line in self._process.stdout:
            yield json.loads(line)
        self._process.wait()
        self._reader.join()

    def check(self, cause):
        """After the last event. `cause` is that of a run that has failed; what is refused says it on stderr."""
        if self._process.returncode != 0:
            raise _failure(cause or self._error, self._process.returncode)

    def _read_stderr(self):
        for line in self._process.stderr:
            note, error = ("", line) if self._error else _split(line)
            self._error += error
            sys.stderr.write(note)


def _split(text):
    """Notes, and the error that the program ended with."""
    notes, begin, error = ("\n" + text).partition("\nstrait: ")
    return notes[1:], error if begin else ""


def _failure(error, code):
    return RunError(error.strip() or f"strait ended with code {code} and did not say why", code)


def _command(words):
    return [_program(), *map(str, words)]


def _program():
    """In $STRAIT_BIN; else of this package's clone or environment; else on the PATH."""
    package = pathlib.Path(__file__).resolve().parent
    given = os.environ.get("STRAIT_BIN")
    folders = [given] if given else [package.parents[1] / "build" / "release" / "bin", sysconfig.get_path("scripts")]
    for folder in folders:
        if os.access(program := pathlib.Path(folder, "strait"), os.X_OK):
            return str(program)
    found = None if given else shutil.which("strait")
    if found is None:
        where = f"in {given}, the value of STRAIT_BIN" if given else f"at {package} and on the PATH"
        raise FileNotFoundError(f"there is no program strait {where}; install it, or set STRAIT_BIN to its folder")
    return found
