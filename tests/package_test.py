"""What is installed is usable: a ten-line project of somebody else finds strait and links one room."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])
ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "launcher" / "package"
SCRATCH = BUILD / "package test"  # with a space, as users have them

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(strait 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE strait::schedules)
"""
SOURCE = """
#include <cstdio>
#include "schedules/schedule.h"
int main() {
  for (const auto& schedule : strait::schedules::catalogue().all())
    std::printf("%.*s\\n", static_cast<int>(schedule.name.size()), schedule.name.data());
}
"""

CHANGED_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(changed LANGUAGES NONE)
include(%s)
strait_add_torch(libtorch "")
get_target_property(linked libtorch INTERFACE_LINK_LIBRARIES)
file(WRITE ${CMAKE_BINARY_DIR}/linked.txt "${linked}")
"""


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def test_no_library_is_taken_from_the_current_directory():
    """It is what an empty entry of a list of folders means."""
    for program in ("strait", "strait-torch", "strait-stage", "strait-stage-torch"):
        for line in run("readelf", "-d", BUILD / "bin" / program).splitlines():
            if "RUNPATH" in line or "RPATH" in line:
                folders = line[line.index("[") + 1 : line.rindex("]")].split(":")
                assert all(folder.startswith(("/", "$ORIGIN")) for folder in folders), f"{program}: {line}"


def test_a_changed_torch_dir_links_that_libtorch():
    project, build = SCRATCH / "changed project", SCRATCH / "changed build"
    project.mkdir()
    for libtorch in ("first", "second"):
        (project / libtorch / "lib").mkdir(parents=True)
        for name in ("c10", "torch_cpu"):
            (project / libtorch / f"lib/lib{name}.so").write_text("")
    (project / "CMakeLists.txt").write_text(CHANGED_PROJECT % f'"{PACKAGE / "torch.cmake"}"')
    for libtorch in ("first", "second"):
        run("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DTorch_DIR={project / libtorch / 'share/cmake/Torch'}")
        linked = (build / "linked.txt").read_text()
        for name in ("c10", "torch_cpu"):
            assert str(project / libtorch / f"lib/lib{name}.so") in linked, f"of {libtorch}: {linked}"


def test_every_package_is_for_the_same_torch():
    script, wheel, commands = ((ROOT / name).read_text() for name in ("strait", "pyproject.toml", "python/strait/_commands.py"))
    minor = re.search(r"^torch_pin=torch==(\d+\.\d+)\.\d+$", script, re.MULTILINE).group(1)
    assert wheel.count(f'"torch=={minor}.*"') == 2, wheel
    assert f'\nTORCH = "{minor}"' in commands, commands
    assert f"\nneeded={minor}\n" in (BUILD / "start.sh").read_text()
    version = re.search(r"^project\(strait VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1)
    assert f'\nversion = "{version}"\n' in wheel, wheel


def test_installed_package():
    prefix, project, build = SCRATCH / "prefix", SCRATCH / "project", SCRATCH / "build"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT)
    (project / "main.cpp").write_text(SOURCE)
    run("cmake", "--install", BUILD, "--prefix", prefix)
    machine_bound = [str(path) for path in prefix.rglob("*.cmake") if str(BUILD.resolve()) in path.read_text()]
    assert not machine_bound, f"the installed package points back into the build: {machine_bound}"
    run("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    names = run(build / "consumer").split()
    assert "1f1b" in names and "gpipe" in names, names
    strait, recipe = prefix / "bin" / "strait", project / "first.toml"
    assert "qwen2-lora-chat" in run(strait, "init", "--list")
    run(strait, "init", "quickstart", recipe)
    planned = run(strait, "plan", recipe)
    assert str(project / "data/dates.jsonl") in recipe.read_text() and "300 steps" in planned, planned
    assert list(prefix.rglob("strait-convert.py"))
    assert not list(prefix.rglob("*.so*")), "libraries of this machine are for packages"
    print(f"installed, found and linked; schedules: {', '.join(names)}")


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir()
    test_no_library_is_taken_from_the_current_directory()
    test_a_changed_torch_dir_links_that_libtorch()
    test_every_package_is_for_the_same_torch()
    test_installed_package()


if __name__ == "__main__":
    main()
