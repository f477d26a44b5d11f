#pragma once

#include <functional>

#include "launcher/base/errors.h"

// The command line of `strait-stage`. Most of what a small process costs is the loading of
// libtorch, which a keeper of a host has no use for: so the program is two. `strait-stage` itself
// keeps hosts and knows its build; for whatever computes it becomes `strait-stage-torch`, which
// lies beside it. A program of one's own may be both in one.
namespace strait::agent {

// What it takes libtorch for.
enum class TorchCommand {
  stage,    // be a stage process; its job is on stdin
  measure,  // how fast this machine computes; the question is on stdin
  check,    // that all can be loaded
};

// Does what the words ask for; `compute` does what takes libtorch. Call it before there is any
// thread. The result is the exit code.
int run_stage_command(int argc, char** argv, const std::function<base::ExitCode(TorchCommand)>& compute);

// Becomes the program beside this one that has libtorch, with the same words. Returns only where
// there is none; then what is wrong has been said.
base::ExitCode exec_torch_program(char** argv);

}  // namespace strait::agent
