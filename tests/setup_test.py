"""The ./strait script, on a project of three lines in a folder whose name has spaces."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from source_files import ROOT

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(fake LANGUAGES CXX)
set(Torch_DIR "" CACHE PATH "")
add_executable(strait launcher/main.cpp)
add_executable(strait-stage launcher/main.cpp)
set_target_properties(strait strait-stage PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
"""
PROGRAM = """
#include <cstdio>
int main(int count, char** words) {
  for (int i = 1; i < count; ++i) std::printf("<%s>\\n", words[i]);
  return 7;
}
"""


class Tree:
    def __init__(self, folder):
        self.root = folder / "some body's tree"
        for room in ("schedules", "framework", "kernels", "models", "stages", "launcher"):
            (self.root / room).mkdir(parents=True)
        shutil.copy(ROOT / "strait", self.root)
        shutil.copy(ROOT / "CMakePresets.json", self.root)
        (self.root / "CMakeLists.txt").write_text(PROJECT)
        self.source = self.root / "launcher/main.cpp"
        self.source.write_text(PROGRAM)
        # An environment that has all: what is under test is not pip.
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        torch = folder / "torch"
        torch.mkdir()
        (torch / "TorchConfig.cmake").write_text("")
        self.environment = dict(os.environ, Torch_DIR=str(torch))

    def command(self, *words, path=None):
        environment = dict(self.environment, **({"PATH": str(path)} if path else {}))
        return dict(args=[str(self.root / "strait"), *words], cwd="/", env=environment, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def start(self, *words, path=None):
        return subprocess.run(**self.command(*words, path=path))


def tools(folder, without):
    """A folder that stands for PATH: everything of this machine but the tools named."""
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for tool in pathlib.Path(place).glob("*") if os.path.isdir(place) else []:
            link = folder / tool.name
            if tool.name not in without and not link.is_symlink():
                link.symlink_to(tool)
    return folder


def first_start_builds_and_executes(tree):
    done = tree.start("run", "a b.toml", "--set", "x=$y")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "<run>\n<a b.toml>\n<--set>\n<x=$y>\n", done.stdout
    assert "building" in done.stderr, done.stderr


def second_start_is_fast_and_needs_no_tools(tree, scratch):
    bare = tools(scratch / "bare", {"cmake", "ninja", "python3", "g++", "c++", "pkg-config", "apt-get", "git"})
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        done = tree.start("again", path=bare)
        seconds.append(time.monotonic() - begin)
        assert (done.returncode, done.stdout, done.stderr) == (7, "<again>\n", ""), done
    assert min(seconds) < 0.3, seconds


def calls_at_the_same_time_build_once(tree):
    os.utime(tree.source)
    both = [subprocess.Popen(**tree.command(word)) for word in ("one", "two")]
    outputs = [process.communicate() for process in both]
    assert [out for out, _ in outputs] == ["<one>\n", "<two>\n"], outputs
    assert sum("building" in err for _, err in outputs) == 1, outputs


def broken_source_shows_compiler_errors(tree):
    tree.source.write_text(PROGRAM + "nonsense")
    done = tree.start("never")
    assert done.returncode not in (0, 7) and done.stdout == "", done
    assert "nonsense" in done.stderr and "setup.log" in done.stderr, done.stderr
    assert tree.start("never").returncode not in (0, 7), "a failed build counts as done"
    tree.source.write_text(PROGRAM)
    assert tree.start("mended").stdout == "<mended>\n"


def missing_tools_are_named(tree, scratch):
    os.utime(tree.source)
    missing = {"ninja", "pkg-config", "apt-get"}
    done = tree.start("never", path=tools(scratch / "poor", missing))
    assert done.returncode == 1, done
    assert "ninja-build" in done.stderr and "pkg-config" in done.stderr and "cmake" not in done.stderr, done.stderr
    apt = tools(scratch / "apt", missing | {"sudo"})
    (apt / "apt-get").write_text("#!/bin/sh\necho \"asked: $*\"\nexit 100\n")
    (apt / "apt-get").chmod(0o755)
    done = tree.start("never", path=apt)
    assert done.returncode == 1, done
    wanted = "asked: update" if os.geteuid() == 0 else "sudo apt-get install -y --no-install-recommends"
    assert wanted in done.stderr, done.stderr


def main():
    if not (ROOT / ".venv/bin/python").exists():
        print("there is no .venv to lend to the test's tree")
        return 77
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        tree = Tree(scratch)
        first_start_builds_and_executes(tree)
        second_start_is_fast_and_needs_no_tools(tree, scratch)
        calls_at_the_same_time_build_once(tree)
        broken_source_shows_compiler_errors(tree)
        missing_tools_are_named(tree, scratch)
    print("./strait builds once, hands over at once, and says what is missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
