#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "framework/file_descriptor.h"
#include "launcher/base/backend.h"
#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/process_identity.h"
#include "launcher/base/read_all.h"

namespace strait::base {
namespace {

using Clock = std::chrono::steady_clock;

// The input is one message; a program that does not read it within this time hangs.
constexpr auto kInputLimit = std::chrono::seconds(10);

class LocalProcess : public Process {
 public:
  LocalProcess(std::string name, StartLog log, int pid, FileDescriptor input)
      : name_(std::move(name)), log_(std::move(log)), pid_(pid), input_(std::move(input)) {
    pidfd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }
  ~LocalProcess() override {
    if (status_) return;
    LocalProcess::kill();
    LocalProcess::wait_until(Clock::now() + std::chrono::seconds(5));
  }

  int pid() const override { return pid_; }
  std::string host() const override { return own_host(); }
  std::optional<ExitStatus> exit_status() override;
  std::optional<ExitStatus> wait_until(Clock::time_point deadline) override;
  void kill() override {
    // A child that was not reaped keeps its pid, so the signal cannot hit another process.
    if (!exit_status()) ::kill(-pid_, SIGKILL);
  }
  std::vector<std::string> log_tail(std::size_t count) const override { return log_.tail(count); }

  void send_input(const std::string& json);

 private:
  std::string name_;
  StartLog log_;
  int pid_;
  FileDescriptor input_;
  FileDescriptor pidfd_;
  std::optional<ExitStatus> status_;
};

std::optional<ExitStatus> LocalProcess::exit_status() {
  if (status_) return status_;
  siginfo_t info{};
  // Reaped only after the kill: until then the dead leader keeps the id of its process group, so
  // the kill reaches the processes that it left running and no others.
  const int result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (result != 0 || info.si_pid == 0) return std::nullopt;
  ::kill(-pid_, SIGKILL);
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
  status_ = info.si_code == CLD_EXITED ? ExitStatus{info.si_status, std::nullopt, ""}
                                       : ExitStatus{std::nullopt, info.si_status, ""};
  return status_;
}

std::optional<ExitStatus> LocalProcess::wait_until(Clock::time_point deadline) {
  // Without a pidfd (Linux before 5.3) the status is polled every 10 ms.
  const bool no_pidfd = !pidfd_.open();
  while (!exit_status()) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return std::nullopt;
    pollfd waited{pidfd_.number(), POLLIN, 0};
    ::poll(&waited, no_pidfd ? 0 : 1, no_pidfd ? std::min(left, 10) : left);
  }
  return status_;
}

void LocalProcess::send_input(const std::string& json) {
  const std::string bytes = length_prefixed(json);
  const auto deadline = Clock::now() + kInputLimit;
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t sent =
        ::send(input_.number(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      const int left = milliseconds_until(deadline);
      if (left == 0) {
        throw UserError(ExitCode::stalled,
                        "{} (pid {}) started but did not read its plan within {} s; see {}", name_,
                        pid_, kInputLimit.count(), log_.file().string());
      }
      pollfd room{input_.number(), POLLOUT, 0};
      ::poll(&room, 1, left);
    } else if (errno != EINTR) {
      return;  // it has exited: its exit status is the better message
    }
  }
}

[[noreturn]] void throw_start_error(const Launch& launch, std::string_view doing, int error) {
  throw UserError(ExitCode::bad_input, "cannot start {}: {} failed: {}", launch.process.describe(),
                  doing, std::strerror(error));
}

}  // namespace

std::unique_ptr<Process> LocalBackend::start(const Launch& launch) {
  if (launch.argv.empty()) throw_start_error(launch, "finding the program", EINVAL);
  FileDescriptor log = above_standard_streams(FileDescriptor(
      launch.log.empty()
          ? ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
          : ::open(launch.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)));
  if (!log.open()) throw_start_error(launch, "opening " + launch.log.string(), errno);
  auto [input, input_end] = stream_pair(launch.process.describe());
  StartLog written(launch.log);
  int pid = -1;
  if (const int error =
          spawn_child(pid, launch.argv, input_end.number(), log.number(), log.number());
      error != 0) {
    throw_start_error(launch, "running " + launch.argv[0], error);
  }
  auto process = std::make_unique<LocalProcess>(launch.process.describe(), std::move(written), pid,
                                                std::move(input));
  // Closed here, so that the end of the child closes the last copy.
  input_end = FileDescriptor();
  process->send_input(launch.input);
  return process;
}

}  // namespace strait::base
