#include "launcher/hosts/ask_slurm.h"

#include <fmt/format.h>

#include <chrono>

#include "launcher/base/user_error.h"

namespace strait::hosts {
namespace {

constexpr std::chrono::seconds kSlurmPatience{60};

}  // namespace

process::ProgramAnswer call_slurm(const std::vector<std::string>& argv) {
  return process::run_program(argv, kSlurmPatience);
}

std::string ask_slurm(const std::vector<std::string>& argv, const std::string& doing) {
  const process::ProgramAnswer answer = call_slurm(argv);
  if (answer.succeeded()) return answer.out;
  throw base::UserError(base::ExitCode::bad_input,
                  fmt::format("Slurm refuses {}: {}", doing, answer.complaint()));
}

}  // namespace strait::hosts
