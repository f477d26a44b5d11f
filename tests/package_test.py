"""What is installed is usable: a ten-line project of somebody else finds strait and links one room."""

import os
import pathlib
import shutil
import subprocess
import sys

BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])
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
  for (const auto& schedule : strait::schedules::all_schedules())
    std::printf("%.*s\\n", static_cast<int>(schedule.name.size()), schedule.name.data());
}
"""


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    prefix, project, build = SCRATCH / "prefix", SCRATCH / "project", SCRATCH / "build"
    project.mkdir(parents=True)
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
    assert str(prefix / "share/strait/recipes") in recipe.read_text() and "300 steps" in planned, planned
    print(f"installed, found and linked; schedules: {', '.join(names)}")


if __name__ == "__main__":
    main()
