#pragma once

#include "launcher/cli/compute_request.h"
#include "launcher/recipe/recipe_keys.h"

// The command line of `strait`. Loading libtorch is most of the cost of a small command, and
// whatever only shows a run does without it. So there are two programs: `strait` reads all command
// lines and runs what needs no libtorch; for everything that computes it executes `strait-torch` in
// the same folder. A custom program contains both.
namespace strait::cli {

// Runs a verb that needs libtorch.
using Compute = std::function<base::ExitCode(const ComputeRequest&)>;

// Parses and runs a command line. `load` is called once the words are valid, before the verb runs:
// it makes names of parts known (recipe::set_part_names) and returns what computes. Errors are on
// stderr; returns the exit code.
int run_command_line(int argc, char** argv, const std::function<Compute()>& load);

// Executes the program with libtorch in the folder of this program, with the same arguments.
// UserError: it cannot.
[[noreturn]] void exec_torch_program(char** argv, const ComputeRequest& request);

// What recipes may name in a program without libtorch: the parts of this build, none of plugins.
std::vector<std::string> names_without_torch(recipe::PartKind kind);

}  // namespace strait::cli
