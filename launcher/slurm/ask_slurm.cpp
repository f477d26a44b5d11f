#include "launcher/slurm/ask_slurm.h"

#include <fmt/format.h>

#include <chrono>

#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

constexpr std::chrono::seconds kSlurmPatience{60};

}  // namespace

ProgramAnswer call_slurm(const std::vector<std::string>& argv) {
  return run_program(argv, kSlurmPatience);
}

std::string ask_slurm(const std::vector<std::string>& argv, const std::string& doing) {
  const ProgramAnswer answer = call_slurm(argv);
  if (answer.succeeded()) return answer.out;
  throw UserError(ExitCode::bad_input,
                  fmt::format("Slurm refuses {}: {}", doing, answer.complaint()));
}

}  // namespace strait::launcher
