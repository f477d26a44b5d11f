#pragma once

#include <functional>

#include "launcher/base/errors.h"

// The command line of `strait-stage`. Loading libtorch is most of the cost of a small process, and
// a host agent does not need it. So there are two programs: `strait-stage` runs agents and prints
// its build; for everything that computes it executes `strait-stage-torch` in the same folder. A
// custom program may contain both.
namespace strait::hosts {

// Commands that need libtorch.
enum class TorchCommand {
  stage,    // run a stage; its job is on stdin
  measure,  // measure how fast this machine computes; the request is on stdin
  check,    // check that everything can be loaded
};

// Parses and runs the command line; `compute` runs what needs libtorch. Call it before there are
// threads, because an agent forks. Returns the exit code.
int run_stage_command(int argc, char** argv,
                      const std::function<base::ExitCode(TorchCommand)>& compute);

// Executes the program with libtorch in the folder of this program, with the same arguments.
// Returns only if that fails, and logs the cause.
base::ExitCode exec_torch_program(char** argv);

}  // namespace strait::hosts
