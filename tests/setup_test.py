"""The ./strait script, on a project of three lines in a folder whose name has spaces."""

import os
import pathlib
import re
import shlex
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
        for room in ("schedules", "placement", "framework", "kernels", "models", "stages", "launcher"):
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
    empty = scratch / "empty"
    empty.write_text("#!/usr/bin/env bash\n")
    empty.chmod(0o755)
    ours, of_empty = [], []
    for _ in range(5):
        begin = time.monotonic()
        subprocess.run(**dict(tree.command(path=bare), args=[str(empty)]), check=True)
        of_empty.append(time.monotonic() - begin)
        begin = time.monotonic()
        done = tree.start("again", path=bare)
        ours.append(time.monotonic() - begin)
        assert (done.returncode, done.stdout, done.stderr) == (7, "<again>\n", ""), done
    # Some small programs more, but nothing of the size of Python or CMake.
    assert min(ours) < 20 * min(of_empty), (ours, of_empty)


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


def moved_tree_is_built_anew(tree):
    moved = tree.root.with_name("moved tree")
    tree.root.rename(moved)
    tree.root, tree.source = moved, moved / "launcher/main.cpp"
    os.utime(tree.source)
    done = tree.start("moved")
    assert (done.returncode, done.stdout) == (7, "<moved>\n"), done.stderr
    assert "building" in done.stderr, done.stderr


def missing_tools_are_named(tree, scratch):
    os.utime(tree.source)
    missing = {"ninja", "pkg-config", "apt-get"}
    done = tree.start("never", path=tools(scratch / "poor", missing))
    assert done.returncode == 1, done
    assert "ninja-build" in done.stderr and "pkg-config" in done.stderr and "cmake" not in done.stderr, done.stderr
    assert "mold" not in done.stderr, "it is not needed"
    apt = tools(scratch / "apt", missing | {"sudo"})
    (apt / "apt-get").write_text("#!/bin/sh\necho \"asked: $*\"\nexit 100\n")
    (apt / "apt-get").chmod(0o755)
    done = tree.start("never", path=apt)
    assert done.returncode == 1, done
    wanted = "asked: update" if os.geteuid() == 0 else "sudo apt-get install -y --no-install-recommends"
    assert wanted in done.stderr, done.stderr


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


class StandInPython:
    """A .venv, and a python3 that makes one: pip and venv only say what was asked of them."""

    def __init__(self, folder):
        folder.mkdir()
        self.tree = Tree(folder)
        self.asked = folder / "asked"
        self.has_pip = folder / "has pip"
        self.packages = folder / "packages"
        (self.tree.root / ".venv").unlink()
        self.path = tools(folder / "path", {"python3", "nvidia-smi"})
        asked, has_pip = shlex.quote(str(self.asked)), shlex.quote(str(self.has_pip))
        write_program(self.path / "python3", f'test "$1" = -c || {{ echo "$*" >>{asked}; touch {has_pip}; }}\n')

    def give_venv(self, version, torch):
        """Of a version of Python, with one of torch."""
        real, packages = shlex.quote(str(ROOT / ".venv/bin/python")), shlex.quote(str(self.packages))
        asked, has_pip = shlex.quote(str(self.asked)), shlex.quote(str(self.has_pip))
        write_program(self.tree.root / ".venv/bin/python", f"""
case "$*" in
  "-m pip --version") test -f {has_pip} ;;
  "-m pip install "*) echo "$*" >>{asked}; exit 1 ;;
  -c*) exec {real} -c "import sys; sys.version_info = {version}; exec(sys.argv[1])" "$2" ;;
  *) PYTHONPATH={packages} exec {real} "$@" ;;
esac
""")
        shutil.rmtree(self.packages, ignore_errors=True)
        (self.packages / "torch").mkdir(parents=True)
        (self.packages / "torch/__init__.py").write_text("")
        information = self.packages / f"torch-{torch}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")

    def set_up(self):
        """The result, and what was asked of pip and venv."""
        self.asked.write_text("")
        done = self.tree.start("setup", path=self.path)
        return done, self.asked.read_text().splitlines()


def venv_is_mended_and_follows_the_pin(scratch):
    python = StandInPython(scratch / "python")
    own = python.tree.environment.pop("Torch_DIR")
    pin = re.search(r"^torch_pin=torch==(\S+)$", (ROOT / "strait").read_text(), re.MULTILINE).group(1)
    making = f"-m venv {python.tree.root}/.venv"
    python.give_venv((3, 12), "1.0.0+cpu")
    _, asked = python.set_up()  # its making was interrupted before pip
    assert asked[0] == making and asked[1].startswith(f"-m pip install torch=={pin}"), asked
    write_program(python.path / "nvidia-smi", "")
    done, asked = python.set_up()
    with_cuda, any_kind = asked  # which pip has not got, here
    assert with_cuda == f"-m pip install torch=={pin},!={pin}+cpu", asked
    assert f"{any_kind} ".startswith(f"-m pip install torch=={pin} "), asked
    assert "torch with CUDA (an NVIDIA driver is here)" in done.stderr, done.stderr
    python.give_venv((3, 9), "1.0.0+cpu")
    _, asked = python.set_up()  # of a Python that torch is not made for
    assert asked[0] == making.replace("venv ", "venv --clear ", 1), asked
    for version in (pin, f"{pin}+cpu"):
        python.give_venv((3, 12), version)
        done, asked = python.set_up()
        assert not asked and "no TorchConfig.cmake" in done.stderr, (asked, done.stderr)
    python.give_venv((3, 12), "1.0.0")
    python.tree.environment["Torch_DIR"] = own
    done, asked = python.set_up()  # torch is the user's own
    assert done.returncode == 0 and not asked, (asked, done.stderr)


def python_is_recent(scratch):
    function = re.search(r"^is_recent=.*?^}$", (ROOT / "strait").read_text(), re.MULTILINE | re.DOTALL).group()
    for version, found in (((3, 9), False), ((3, 10), True)):
        imitation = "import sys; sys.version_info = %s; exec(sys.argv[1].partition('; ')[2])" % (version,)
        write_program(scratch / "old/python3", f'exec {shlex.quote(sys.executable)} -c "{imitation}" "$2"\n')
        # Behind it there may be a recent one of the system, which has a path.
        name = subprocess.run(["bash", "-c", f"{function}\nfind_python"], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, PATH=f"{scratch / 'old'}:{os.environ['PATH']}")).stdout
        assert (name == "python3") == found, (version, name)


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
        moved_tree_is_built_anew(tree)
        missing_tools_are_named(tree, scratch)
        venv_is_mended_and_follows_the_pin(scratch)
        python_is_recent(scratch)
    print("./strait builds once, hands over at once, and says what is missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
