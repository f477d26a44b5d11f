#include <poll.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "framework/file_descriptor.h"
#include "launcher/base/process_identity.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kLockPollMilliseconds = 100;

// False at the timeout, or when the launcher is suspended. Without a pidfd (Linux before 5.3) only
// the lock is polled.
bool wait_for_end(const fs::path& run, const base::LiveRun& live, int pidfd,
                  std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (live.alive() && run::RunDirectory::live(run)) {
    if (std::chrono::steady_clock::now() >= deadline || live.suspended()) return false;
    pollfd ended{pidfd, POLLIN, 0};
    ::poll(&ended, pidfd >= 0 ? 1 : 0, kLockPollMilliseconds);
  }
  return true;
}

// `harder`: the command that ends it in spite of that.
[[noreturn]] void give_up(const fs::path& run, std::chrono::seconds timeout,
                          const std::string& harder) {
  throw base::UserError(base::ExitCode::stalled,
                        "{} is still live after {} s; see: {}, or end it at once: {}", run.string(),
                        timeout.count(), base::strait_command("status", run), harder);
}

void print_stopped(const fs::path& run) {
  // Part of it may still be on its hosts, from where a resume fetches it.
  const std::vector<store::Step> steps = store::committed_steps(run);
  if (!steps.empty()) {
    fmt::print("stopped; the newest checkpoint is {}\nresume with: {}\n",
               store::checkpoint_directory(run, steps.front()).string(),
               base::strait_command("resume", run));
  } else {
    fmt::print("stopped; it has no checkpoint yet\n");
  }
}

}  // namespace

base::ExitCode stop_run(const fs::path& run, bool now, std::chrono::seconds timeout) {
  const std::optional<base::LiveRun> live = run::RunDirectory::live(run);
  if (!live) run::refuse_not_live(run);
  if (!live->here()) {
    throw base::UserError(base::ExitCode::bad_input, "{} is run by {}; stop it there", run.string(),
                          live->sentence());
  }
  const auto pid = static_cast<pid_t>(live->pid);
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!live->alive()) {
    fmt::print("{} has just ended\n", run.string());
    return base::ExitCode::done;
  }
  // Two different signals count as two requests; two equal pending signals would be merged.
  const std::vector<int> signals =
      now ? std::vector{SIGINT, SIGTERM} : std::vector{base::kAskSignal};
  for (const int signal : signals) {
    const int error = base::send_signal(*live, signal);
    if (error != 0 && error != ESRCH) {
      throw base::UserError(base::ExitCode::bad_input,
                            "cannot signal process {}, the launcher of {}: {}", live->pid,
                            run.string(), std::strerror(error));
    }
  }
  fmt::print("requested process {} to {}\n", live->pid,
             now ? "exit at once" : "finish its step, save and exit");
  std::fflush(stdout);
  if (!wait_for_end(run, *live, handle.number(), timeout)) {
    if (const std::string why = live->suspension(); !why.empty()) {
      throw base::UserError(base::ExitCode::stalled, "{}: {}; it stops then", run.string(), why);
    }
    give_up(
        run, timeout,
        now ? fmt::format("kill -KILL {}", live->pid) : base::strait_command("stop --now", run));
  }
  print_stopped(run);
  return base::ExitCode::done;
}

void add_stop(CLI::App& cli, Command& command) {
  struct Options {
    fs::path run;
    bool now = false;
    std::optional<std::uint32_t> replica;
    int timeout = 600;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("stop", "end a live run: finish the step, save, exit");
  add_run_argument(verb, options->run)->required();
  verb->add_flag("--now", options->now, "exit at once; steps since the last checkpoint are lost");
  verb->add_option("--replica", options->replica,
                   "only this replica leaves; the others continue (sync.on_loss = \"continue\")")
      ->excludes("--now");
  verb->add_option("--timeout", options->timeout, "seconds to wait for its end")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([options, &command] {
    command.run = [options] {
      const std::chrono::seconds timeout(options->timeout);
      if (options->replica) {
        return stop_replica(options->run, *options->replica, timeout);
      }
      return stop_run(options->run, options->now, timeout);
    };
  });
}

}  // namespace strait::cli
