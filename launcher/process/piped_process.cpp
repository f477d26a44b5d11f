#include "launcher/process/piped_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
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

#include "launcher/base/errors.h"

namespace strait::process {
namespace {

using store::FileDescriptor;

constexpr std::size_t kMostErrors = 64 << 10;
constexpr std::size_t kLongestLine = 1 << 20;

// A socket pair rather than a pipe: writing to one whose reader died raises no signal.
std::pair<FileDescriptor, FileDescriptor> stream_to_child(const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("cannot start {}: {}", program, std::strerror(errno)));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// What the child has open and how it takes signals.
class ChildSetup {
 public:
  ChildSetup(int input, int output, int errors) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    for (const auto& [from, to] : {std::pair{input, 0}, {output, 1}, {errors, 2}}) {
      ::posix_spawn_file_actions_adddup2(&actions_, from, to);
    }
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    sigset_t all;
    sigset_t none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    const auto flags = static_cast<unsigned>(POSIX_SPAWN_SETSID) |
                       static_cast<unsigned>(POSIX_SPAWN_SETSIGDEF) |
                       static_cast<unsigned>(POSIX_SPAWN_SETSIGMASK);
    ::posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
  }
  ChildSetup(const ChildSetup&) = delete;
  ChildSetup& operator=(const ChildSetup&) = delete;
  ~ChildSetup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  // errno of what went wrong, or 0.
  int start(int& pid, std::vector<std::string> words) const {
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return ::posix_spawnp(&pid, argv[0], &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Descriptors 0 to 2 are replaced in the child: ours must not be among them.
FileDescriptor out_of_the_way(FileDescriptor low) {
  if (low.number() > 2) return low;
  return FileDescriptor(::fcntl(low.number(), F_DUPFD_CLOEXEC, 3));
}

int piped_milliseconds_until(PipedProcess::Time deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

}  // namespace

PipedProcess::PipedProcess(const std::vector<std::string>& argv) {
  auto [input, their_input] = stream_to_child(argv.at(0));
  auto [output, their_output] = stream_to_child(argv[0]);
  auto [errors, their_errors] = stream_to_child(argv[0]);
  their_input = out_of_the_way(std::move(their_input));
  their_output = out_of_the_way(std::move(their_output));
  their_errors = out_of_the_way(std::move(their_errors));
  const ChildSetup setup(their_input.number(), their_output.number(), their_errors.number());
  if (const int error = setup.start(pid_, argv); error != 0) {
    throw base::UserError(
        base::ExitCode::bad_input,
        error == ENOENT
            ? fmt::format("there is no program {} here; install it, or put it into PATH", argv[0])
            : fmt::format("cannot start {}: {}", argv[0], std::strerror(error)));
  }
  pidfd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  input_ = std::move(input);
  output_ = std::move(output);
  error_output_ = std::move(errors);
}

PipedProcess::~PipedProcess() {
  close_input();
  if (reap()) return;
  ::kill(-pid_, SIGKILL);  // with what it started; not reaped, so the number is still its own
  wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(5));
}

bool PipedProcess::write(std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(input_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!serve(true, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void PipedProcess::close_input() { input_ = FileDescriptor(); }

bool PipedProcess::serve(bool writing, Time deadline) {
  const int left = piped_milliseconds_until(deadline);
  if (left == 0) return false;
  std::array<pollfd, 4> waited = {
      pollfd{writing ? input_.number() : -1, POLLOUT, 0}, pollfd{output_.number(), POLLIN, 0},
      pollfd{error_output_.number(), POLLIN, 0}, pollfd{status_ ? -1 : pidfd_.number(), POLLIN, 0}};
  // Where the kernel gives no pidfd, we look again every 10 ms.
  ::poll(waited.data(), waited.size(), pidfd_.open() ? left : std::min(left, 10));
  if (waited[1].revents != 0) take(output_, said_, kLongestLine);
  if (waited[2].revents != 0) take(error_output_, errors_, kMostErrors);
  reap();
  return true;
}

bool PipedProcess::take(FileDescriptor& from, std::string& into, std::size_t most) {
  std::array<char, 16384> piece{};
  const ssize_t got = ::recv(from.number(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got > 0) {
    into.append(piece.data(), static_cast<std::size_t>(got));
    if (into.size() > most) into.erase(0, into.size() - most);
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    from = FileDescriptor();
  }
  return got > 0;
}

bool PipedProcess::take_line(std::string& line) {
  const std::size_t end = said_.find('\n');
  if (end == said_.npos && (output_.open() || said_.empty())) return false;
  line = said_.substr(0, end);
  said_.erase(0, end == said_.npos ? end : end + 1);
  return true;
}

PipedProcess::Heard PipedProcess::read_line(std::string& line, Time deadline) {
  while (!take_line(line)) {
    if (!output_.open()) return Heard::end;
    if (status_) {
      // Not until the end of the stream: a program that it left behind, such as ssh's connection
      // for later calls, may hold it open.
      if (!take(output_, said_, kLongestLine)) output_ = FileDescriptor();
    } else if (!serve(false, deadline)) {
      return Heard::nothing_yet;
    }
  }
  return Heard::line;
}

bool PipedProcess::reap() {
  if (status_) return true;
  siginfo_t info{};
  const int looked = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
  if (looked != 0 || info.si_pid == 0) return false;
  status_.emplace();
  (info.si_code == CLD_EXITED ? status_->code : status_->signal) = info.si_status;
  return true;
}

std::optional<ExitStatus> PipedProcess::wait_until(Time deadline) {
  while (!reap()) {
    if (!serve(false, deadline)) return std::nullopt;
  }
  while (error_output_.open() && take(error_output_, errors_, kMostErrors)) {
  }
  return status_;
}

}  // namespace strait::process
