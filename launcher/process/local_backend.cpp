#include "launcher/process/local_backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <thread>

#include "framework/store/file_descriptor.h"
#include "launcher/base/errors.h"
#include "launcher/process/log_tail.h"

namespace strait::process {
namespace {

using store::FileDescriptor;
using Clock = std::chrono::steady_clock;

constexpr auto kInputLimit = std::chrono::seconds(10);

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

class LocalProcess : public Process {
 public:
  LocalProcess(const Launch& launch, int pid, FileDescriptor input)
      : name_(launch.process.describe()), log_(launch.log), pid_(pid), input_(std::move(input)) {
    pidfd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }
  ~LocalProcess() override {
    if (status_) return;
    LocalProcess::kill();
    LocalProcess::wait_until(Clock::now() + std::chrono::seconds(5));
  }

  int pid() const override { return pid_; }
  std::string host() const override {
    std::array<char, HOST_NAME_MAX + 1> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
  }
  std::optional<ExitStatus> ended() override;
  std::optional<ExitStatus> wait_until(Clock::time_point deadline) override;
  void ask_to_end() override {
    // A child that was not reaped keeps its pid: these signals cannot hit anybody else.
    if (!ended()) ::kill(pid_, SIGTERM);
  }
  void kill() override {
    if (!ended()) ::kill(-pid_, SIGKILL);
  }
  std::vector<std::string> log_tail(std::size_t count) const override {
    return process::log_tail(log_, count);
  }

  void send_input(const std::string& json);

 private:
  std::string name_;
  std::filesystem::path log_;
  int pid_;
  FileDescriptor input_;
  FileDescriptor pidfd_;
  std::optional<ExitStatus> status_;
};

std::optional<ExitStatus> LocalProcess::ended() {
  if (status_) return status_;
  siginfo_t info{};
  // Looked at first and reaped last: until then the dead leader keeps its group's number, so that
  // what it left running can be killed without hitting a stranger.
  const int looked = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (looked != 0 || info.si_pid == 0) return std::nullopt;
  ::kill(-pid_, SIGKILL);
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
  status_ = info.si_code == CLD_EXITED ? ExitStatus{info.si_status, std::nullopt, ""}
                                       : ExitStatus{std::nullopt, info.si_status, ""};
  return status_;
}

std::optional<ExitStatus> LocalProcess::wait_until(Clock::time_point deadline) {
  // Where the kernel gives no pidfd, we look again every 10 ms.
  const bool blind = !pidfd_.open();
  while (!ended()) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return std::nullopt;
    pollfd waited{pidfd_.number(), POLLIN, 0};
    ::poll(&waited, blind ? 0 : 1, blind ? std::min(left, 10) : left);
  }
  return status_;
}

void LocalProcess::send_input(const std::string& json) {
  const auto size = static_cast<std::uint32_t>(json.size());
  std::string bytes;
  for (const unsigned shift : {0U, 8U, 16U, 24U}) {
    bytes.push_back(static_cast<char>((size >> shift) & 0xFFU));
  }
  bytes += json;
  const auto deadline = Clock::now() + kInputLimit;
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t sent =
        ::send(input_.number(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      const int left = milliseconds_until(deadline);
      if (left == 0) {
        throw base::UserError(
            base::ExitCode::stalled,
            fmt::format("{} (pid {}) was started, but has not read its plan within "
                        "{} s; see {}",
                        name_, pid_, kInputLimit.count(), log_.string()));
      }
      pollfd room{input_.number(), POLLOUT, 0};
      ::poll(&room, 1, left);
    } else if (errno != EINTR) {
      return;  // it is gone already: its exit status says more than this error could
    }
  }
}

// Between fork and exec in a process with threads only async-signal-safe calls are allowed: all
// memory is made before, and nothing is thrown.
[[noreturn]] void become(char* const* argv, int input, int log, int report) {
  ::setsid();
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &plain, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  constexpr unsigned kCloseOnExec = 1U << 2U;
  const bool wired = ::dup2(input, 0) == 0 && ::dup2(log, 1) == 1 && ::dup2(log, 2) == 2;
  if (wired) {
    if (::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec) != 0) {
      for (int other = 3; other < 4096; ++other) ::fcntl(other, F_SETFD, FD_CLOEXEC);
    }
    ::execv(argv[0], argv);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(report, &error, sizeof error);
  ::_exit(127);
}

[[noreturn]] void refuse(const Launch& launch, std::string_view doing, int error) {
  throw base::UserError(base::ExitCode::bad_input,
                        fmt::format("cannot start {}: {} failed: {}", launch.process.describe(),
                                    doing, std::strerror(error)));
}

// Descriptors 0 to 2 are about to be replaced in the child: ours must not be among them.
FileDescriptor above_standard(FileDescriptor low) {
  if (low.number() > 2 || !low.open()) return low;
  return FileDescriptor(::fcntl(low.number(), F_DUPFD_CLOEXEC, 3));
}

std::pair<FileDescriptor, FileDescriptor> channel(const Launch& launch) {
  std::array<int, 2> ends{};
  // A socket pair rather than a pipe: writing to one whose reader died raises no signal.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    refuse(launch, "making its input", errno);
  }
  return {above_standard(FileDescriptor(ends[0])), above_standard(FileDescriptor(ends[1]))};
}

}  // namespace

std::unique_ptr<Process> LocalBackend::start(const Launch& launch) {
  if (launch.argv.empty()) refuse(launch, "finding its program", EINVAL);
  FileDescriptor log = above_standard(
      FileDescriptor(::open(launch.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)));
  if (!log.open()) refuse(launch, "opening " + launch.log.string(), errno);
  auto [input, theirs] = channel(launch);
  auto [report, report_end] = channel(launch);

  std::vector<std::string> words = launch.argv;
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const int pid = ::fork();
  if (pid < 0) refuse(launch, "fork", errno);
  if (pid == 0) become(argv.data(), theirs.number(), log.number(), report_end.number());
  auto process = std::make_unique<LocalProcess>(launch, pid, std::move(input));
  theirs = FileDescriptor();
  report_end = FileDescriptor();

  int error = 0;
  ssize_t got = 0;
  // End of file: exec took the descriptor away, the program runs.
  while ((got = ::read(report.number(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got > 0) refuse(launch, "running " + launch.argv[0], error);
  process->send_input(launch.input);
  return process;
}

}  // namespace strait::process
