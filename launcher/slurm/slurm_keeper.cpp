#include "launcher/slurm/slurm_keeper.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>
#include <string>

#include "launcher/build_id.h"
#include "launcher/failure.h"
#include "launcher/host/keeper.h"
#include "launcher/host/read_all.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/packed_jobs.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

constexpr std::size_t kMostJobs = 64U << 20U;
constexpr std::chrono::seconds kJobsLimit{60};

std::size_t task_number() {
  const std::string text = own_variable("SLURM_PROCID");
  std::size_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && rest == text.data() + text.size()) return number;
  throw UserError(ExitCode::bad_input,
                  "--keep-of is for srun, which says in SLURM_PROCID which of its tasks this is");
}

}  // namespace

ExitCode run_slurm_keeper(int input) {
  try {
    const std::size_t task = task_number();
    const KeeperJob job =
        unpack_job(read_all(input, "the text with the keepers' jobs", kMostJobs, kJobsLimit), task);
    spdlog::info("node {}", own_variable("SLURMD_NODENAME"));
    return run_keeper(job);
  } catch (const UserError& error) {
    spdlog::error("{}", error.what());
    return error.code();
  }
}

}  // namespace strait::launcher
