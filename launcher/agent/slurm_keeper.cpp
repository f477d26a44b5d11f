#include "launcher/agent/slurm_keeper.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>
#include <string>

#include "launcher/base/build_id.h"
#include "launcher/base/failure.h"
#include "launcher/agent/keeper.h"
#include "launcher/base/read_all.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/packed_jobs.h"
#include "launcher/base/user_error.h"

namespace strait::agent {
namespace {

constexpr std::size_t kMostJobs = 64U << 20U;
constexpr std::chrono::seconds kJobsLimit{60};

std::size_t task_number() {
  const std::string text = hosts::own_variable("SLURM_PROCID");
  std::size_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && rest == text.data() + text.size()) return number;
  throw base::UserError(base::ExitCode::bad_input,
                  "--keep-of is for srun, which says in SLURM_PROCID which of its tasks this is");
}

}  // namespace

base::ExitCode run_slurm_keeper(int input) {
  try {
    const std::size_t task = task_number();
    const hosts::KeeperJob job =
        hosts::unpack_job(base::read_all(input, "the text with the keepers' jobs", kMostJobs, kJobsLimit), task);
    spdlog::info("node {}", hosts::own_variable("SLURMD_NODENAME"));
    return run_keeper(job);
  } catch (const base::UserError& error) {
    spdlog::error("{}", error.what());
    return error.code();
  }
}

}  // namespace strait::agent
