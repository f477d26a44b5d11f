#include "launcher/verbs/verb_stop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <vector>

#include "framework/store/checkpoint.h"
#include "framework/store/file_descriptor.h"
#include "launcher/run/leave_request.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_files.h"
#include "launcher/slurm/slurm_job.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kLockLook = 100;    // milliseconds
constexpr int kAskEvery = 1'000;  // Slurm serves many

// Where the kernel gives no pidfd, we look at the lock several times a second.
bool wait_for_end(const fs::path& run, const LiveRun& live, int pidfd,
                  std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (live.alive() && RunDirectory::live(run)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    pollfd ended{pidfd, POLLIN, 0};
    ::poll(&ended, pidfd >= 0 ? 1 : 0, kLockLook);
  }
  return true;
}

[[noreturn]] void give_up(const fs::path& run, std::chrono::seconds patience) {
  throw UserError(ExitCode::stalled,
                  fmt::format("{} is still live after {} s; see: strait status {}, or end it at "
                              "once: strait stop --now {}",
                              run.string(), patience.count(), run.string(), run.string()));
}

void print_what_is_left(const fs::path& run) {
  const store::CheckpointList checkpoints = store::list_checkpoints(run);
  if (!checkpoints.complete.empty()) {
    fmt::print("stopped; the newest checkpoint is {}\ngo on with: strait resume {}\n",
               checkpoints.complete.front().path.string(), run.string());
  } else {
    fmt::print("stopped; it had made no checkpoint yet\n");
  }
}

// The job's script is the process that coordinates, wherever it runs.
ExitCode stop_job(const fs::path& run, const SlurmJob& job, const JobState& state, bool now,
                  std::chrono::seconds patience) {
  if (state.waits()) {
    job.cancel();
    fmt::print("cancelled Slurm job {}, which was {}\n", job.number(), state.sentence());
  } else {
    job.signal("INT");
    if (now) job.signal("TERM");
    fmt::print("asked Slurm job {} to {}\n", job.number(),
               now ? "leave at once" : "finish its step, save and leave");
  }
  std::fflush(stdout);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (auto left = job.state(); left && left->lives(); left = job.state()) {
    if (std::chrono::steady_clock::now() >= deadline) give_up(run, patience);
    ::poll(nullptr, 0, kAskEvery);
  }
  SlurmJob::forget(run);
  print_what_is_left(run);
  return ExitCode::done;
}

// Those that take part now, as the launcher has written it down.
std::vector<std::uint32_t> replicas_of(const fs::path& run, std::int64_t all) {
  std::ifstream in(RunDirectory::status(run));
  const nlohmann::json status = nlohmann::json::parse(in, nullptr, false);
  if (status.is_object() && status.contains("replicas")) return status["replicas"];
  std::vector<std::uint32_t> everybody(static_cast<std::size_t>(all));
  std::iota(everybody.begin(), everybody.end(), 0U);
  return everybody;
}

void check_can_leave(const fs::path& run, const Plan& plan, std::uint32_t replica,
                     const std::vector<std::uint32_t>& there) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(ExitCode::bad_input,
                    fmt::format("replica {} cannot leave {}: {}", replica, run.string(), why));
  };
  if (std::ranges::find(there, replica) == there.end()) {
    refuse(fmt::format("those that take part are {}", fmt::join(there, ", ")));
  }
  if (plan.recipe.sync.on_loss == LossRule::stop) {
    refuse(
        "its sync.on_loss is \"stop\", so it cannot go on without one; resume it with --set "
        "sync.on_loss=continue, or with fewer pipeline.replicas");
  }
  if (there.size() == 1) refuse("it is the last one; end the run with: strait stop RUN");
}

}  // namespace

ExitCode stop_replica(const fs::path& run, std::uint32_t replica, std::chrono::seconds patience) {
  const std::optional<LiveRun> live = RunDirectory::live(run);
  if (!live) {
    throw UserError(ExitCode::bad_input, fmt::format("no run is live in {}; see: strait status {}",
                                                     run.string(), run.string()));
  }
  const Plan plan = read_run_file(run / "plan.json").plan;
  const std::int64_t all = plan.recipe.pipeline.replicas;
  check_can_leave(run, plan, replica, replicas_of(run, all));
  ask_to_leave(run, replica);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const std::vector<std::uint32_t> there = replicas_of(run, all);
    if (std::ranges::find(there, replica) == there.end()) {
      fmt::print("replica {} has left; {} {} on\n", replica, fmt::join(there, ", "),
                 there.size() == 1 ? "goes" : "go");
      return ExitCode::done;
    }
    if (!RunDirectory::live(run)) {
      throw UserError(ExitCode::bad_input, fmt::format("{} ended meanwhile", run.string()));
    }
    if (std::chrono::steady_clock::now() >= deadline) give_up(run, patience);
    ::poll(nullptr, 0, kLockLook);
  }
}

ExitCode stop_run(const fs::path& run, bool now, std::chrono::seconds patience) {
  if (const std::optional<SlurmJob> job = SlurmJob::of(run)) {
    const std::optional<JobState> state = job->state();
    if (state && state->lives()) return stop_job(run, *job, *state, now, patience);
  }
  const std::optional<LiveRun> live = RunDirectory::live(run);
  if (!live) {
    throw UserError(ExitCode::bad_input, fmt::format("no run is live in {}; see: strait status {}",
                                                     run.string(), run.string()));
  }
  if (!live->here()) {
    throw UserError(ExitCode::bad_input,
                    fmt::format("{} is run by {}; stop it there", run.string(), live->sentence()));
  }
  const auto pid = static_cast<pid_t>(live->pid);
  const store::FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // With the handle open the pid cannot pass to another process between this look and the signal.
  if (!live->alive()) {
    fmt::print("{} had just ended\n", run.string());
    return ExitCode::done;
  }
  // Both count as a request; two of the same kind could melt into one on their way.
  const std::vector<int> signals = now ? std::vector{SIGINT, SIGTERM} : std::vector{SIGINT};
  for (const int signal : signals) {
    const auto sent = handle.open()
                          ? ::syscall(SYS_pidfd_send_signal, handle.number(), signal, nullptr, 0)
                          : ::kill(pid, signal);
    if (sent != 0 && errno != ESRCH) {
      throw UserError(ExitCode::bad_input,
                      fmt::format("cannot signal process {}, the launcher of "
                                  "{}: {}",
                                  live->pid, run.string(), std::strerror(errno)));
    }
  }
  fmt::print("asked process {} to {}\n", live->pid,
             now ? "leave at once" : "finish its step, save and leave");
  std::fflush(stdout);
  if (!wait_for_end(run, *live, handle.number(), patience)) give_up(run, patience);
  print_what_is_left(run);
  return ExitCode::done;
}

}  // namespace strait::launcher
