#include "launcher/app/verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

#include "framework/store/checkpoint.h"
#include "framework/store/file_descriptor.h"
#include "launcher/base/errors.h"
#include "launcher/control/run_directory.h"
#include "launcher/hosts/slurm_job.h"

#include <chrono>
#include <filesystem>

namespace strait::app {
namespace {

namespace fs = std::filesystem;

constexpr int kLockLook = 100;    // milliseconds
constexpr int kAskEvery = 1'000;  // Slurm serves many

// Where the kernel gives no pidfd, we look at the lock several times a second.
bool wait_for_end(const fs::path& run, const control::LiveRun& live, int pidfd,
                  std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (live.alive() && control::RunDirectory::live(run)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    pollfd ended{pidfd, POLLIN, 0};
    ::poll(&ended, pidfd >= 0 ? 1 : 0, kLockLook);
  }
  return true;
}

[[noreturn]] void give_up(const fs::path& run, std::chrono::seconds patience) {
  throw base::UserError(
      base::ExitCode::stalled,
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
base::ExitCode stop_job(const fs::path& run, const hosts::SlurmJob& job,
                        const hosts::JobState& state, bool now, std::chrono::seconds patience) {
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
  hosts::SlurmJob::forget(run);
  print_what_is_left(run);
  return base::ExitCode::done;
}

}  // namespace

base::ExitCode stop_run(const fs::path& run, bool now, std::chrono::seconds patience) {
  if (const std::optional<hosts::SlurmJob> job = hosts::SlurmJob::of(run)) {
    const std::optional<hosts::JobState> state = job->state();
    if (state && state->lives()) return stop_job(run, *job, *state, now, patience);
  }
  const std::optional<control::LiveRun> live = control::RunDirectory::live(run);
  if (!live) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("no run is live in {}; see: strait status {}", run.string(), run.string()));
  }
  if (!live->here()) {
    throw base::UserError(base::ExitCode::bad_input, fmt::format("{} is run by {}; stop it there",
                                                                 run.string(), live->sentence()));
  }
  const auto pid = static_cast<pid_t>(live->pid);
  const store::FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // With the handle open the pid cannot pass to another process between this look and the signal.
  if (!live->alive()) {
    fmt::print("{} had just ended\n", run.string());
    return base::ExitCode::done;
  }
  // Both count as a request; two of the same kind could melt into one on their way.
  const std::vector<int> signals = now ? std::vector{SIGINT, SIGTERM} : std::vector{SIGINT};
  for (const int signal : signals) {
    const auto sent = handle.open()
                          ? ::syscall(SYS_pidfd_send_signal, handle.number(), signal, nullptr, 0)
                          : ::kill(pid, signal);
    if (sent != 0 && errno != ESRCH) {
      throw base::UserError(base::ExitCode::bad_input,
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
  return base::ExitCode::done;
}

void add_stop(CLI::App& cli, Command& command) {
  struct Options {
    std::string run;
    bool now = false;
    std::optional<std::uint32_t> replica;
    int timeout = 600;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("stop", "end a live run: finish the step, save, leave");
  verb->add_option("run", options->run, "its directory, runs/NAME")->required();
  verb->add_flag("--now", options->now, "leave at once; what is not saved is lost");
  verb->add_option("--replica", options->replica,
                   "only this replica leaves, and the others go on (sync.on_loss = \"continue\")")
      ->excludes("--now");
  verb->add_option("--patience", options->timeout, "seconds to wait for its end")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([options, &command] {
    command = [options] {
      const std::chrono::seconds timeout(options->timeout);
      if (options->replica) {
        return stop_replica(options->run, *options->replica, timeout);
      }
      return stop_run(options->run, options->now, timeout);
    };
  });
}

}  // namespace strait::app
