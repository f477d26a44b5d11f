#include "launcher/base/piped_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "launcher/base/machine.h"
#include "launcher/base/text.h"

namespace strait::base {
namespace {

// Bounds on what a program that goes on printing can make this process keep.
constexpr std::size_t kStderrLimit = 64 << 10;
constexpr std::size_t kLineLimit = 1 << 20;
constexpr std::size_t kPieceBytes = 16 << 10;
// Of a line that has not ended: the last piece may end it within the limit.
constexpr std::size_t kUnendedLimit = kLineLimit + kPieceBytes;
constexpr std::size_t kOutputLimit = 1 << 20;  // of run_program()
// Of stdout, kept while a caller writes: several answers that it will read afterwards.
constexpr std::size_t kUnreadLimit = 64 << 20;

}  // namespace

FileDescriptor above_standard_streams(FileDescriptor low) {
  if (low.number() > 2 || !low.open()) return low;
  return FileDescriptor(::fcntl(low.number(), F_DUPFD_CLOEXEC, 3));
}

std::pair<FileDescriptor, FileDescriptor> stream_pair(const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw UserError(ExitCode::bad_input, "cannot start {}: socketpair failed: {}", program,
                    std::strerror(errno));
  }
  return {above_standard_streams(FileDescriptor(ends[0])),
          above_standard_streams(FileDescriptor(ends[1]))};
}

int spawn_child(int& pid, std::vector<std::string> argv, int input, int output, int errors) {
  posix_spawn_file_actions_t actions{};
  ::posix_spawn_file_actions_init(&actions);
  for (const auto& [from, to] : {std::pair{input, 0}, {output, 1}, {errors, 2}}) {
    ::posix_spawn_file_actions_adddup2(&actions, from, to);
  }
  // Another thread may open a file without O_CLOEXEC between fork and exec, also inside a library.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes{};
  ::posix_spawnattr_init(&attributes);
  sigset_t all;
  sigset_t none;
  ::sigfillset(&all);
  ::sigemptyset(&none);
  // Ignored signals survive exec: a child of nohup would ignore SIGHUP, and SIGPIPE if the parent
  // does.
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  // A session of its own, so that Ctrl-C in the terminal reaches the launcher only.
  const auto flags = static_cast<unsigned>(POSIX_SPAWN_SETSID) |
                     static_cast<unsigned>(POSIX_SPAWN_SETSIGDEF) |
                     static_cast<unsigned>(POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
  std::vector<char*> words;
  words.reserve(argv.size() + 1);
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  const int error = ::posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

PipedProcess::PipedProcess(const std::vector<std::string>& argv) {
  auto [input, their_input] = stream_pair(argv.at(0));
  auto [output, their_output] = stream_pair(argv[0]);
  auto [errors, their_errors] = stream_pair(argv[0]);
  if (const int error = spawn_child(pid_, argv, their_input.number(), their_output.number(),
                                    their_errors.number());
      error != 0) {
    throw UserError(
        ExitCode::bad_input,
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
  ::kill(-pid_, SIGKILL);  // its process group; it is not reaped yet, so the id is still its own
  wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(5));
}

bool PipedProcess::write(std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(input_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!poll_streams(true, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void PipedProcess::close_input() { input_ = FileDescriptor(); }

bool PipedProcess::poll_streams(bool writing, Time deadline) {
  const bool full = writing && unread_.size() - returned_ >= kUnreadLimit;
  const int left = milliseconds_until(deadline);
  // After the deadline one look at what was there before it, of a line at most: a program that
  // writes without end would be read for ever.
  if (left == 0 && std::exchange(looked_, deadline) == deadline) return false;
  std::array<pollfd, 4> waited = {pollfd{writing ? input_.number() : -1, POLLOUT, 0},
                                  pollfd{full ? -1 : output_.number(), POLLIN, 0},
                                  pollfd{error_output_.number(), POLLIN, 0},
                                  pollfd{status_ ? -1 : pidfd_.number(), POLLIN, 0}};
  // Without a pidfd (Linux before 5.3) the status is polled every 10 ms.
  const int events =
      ::poll(waited.data(), waited.size(), pidfd_.open() ? left : std::min(left, 10));
  // Where nothing is written, unread_ is the beginning of a line, or will not be read any more.
  const std::size_t most = writing ? unread_.max_size() : kUnendedLimit;
  if (waited[1].revents != 0) {
    // A program that goes on writing adds lines while they are received: never so many that
    // receive() erases the first of them.
    while (receive_output(most) && left == 0 && unread_.size() < kLineLimit) {
    }
  }
  if (waited[2].revents != 0) receive(error_output_, errors_, kStderrLimit);
  reap();
  return left > 0 || events > 0;
}

bool PipedProcess::receive(FileDescriptor& from, std::string& into, std::size_t most) {
  std::array<char, kPieceBytes> piece{};
  const ssize_t got = ::recv(from.number(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got > 0) {
    into.append(piece.data(), static_cast<std::size_t>(got));
    if (into.size() > most) into.erase(0, into.size() - most);
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    from = FileDescriptor();
  }
  return got > 0;
}

bool PipedProcess::receive_output(std::size_t most) {
  unread_.erase(0, std::exchange(returned_, 0));
  return receive(output_, unread_, most);
}

bool PipedProcess::next_line(std::string& line) {
  const std::size_t end = unread_.find('\n', returned_);
  if (end == unread_.npos && (output_.open() || unread_.size() == returned_)) return false;
  line = unread_.substr(returned_, end == unread_.npos ? end : end - returned_);
  returned_ = end == unread_.npos ? unread_.size() : end + 1;
  if (line.size() > kLineLimit) line.erase(0, line.size() - kLineLimit);
  return true;
}

PipedProcess::ReadResult PipedProcess::read_line(std::string& line, Time deadline) {
  while (!next_line(line)) {
    if (!output_.open()) return ReadResult::end;
    if (status_) {
      // The process has ended. End of file may never come: a process that it left behind, such as a
      // shared ssh connection, may hold the stream open.
      if (!receive_output(kUnendedLimit)) output_ = FileDescriptor();
    } else if (!poll_streams(false, deadline)) {
      return ReadResult::timeout;
    }
  }
  return ReadResult::line;
}

PipedProcess::ReadResult PipedProcess::read_bytes(std::string& into, std::size_t size,
                                                  Time deadline) {
  while (size > 0) {
    if (unread_.size() == returned_) {
      if (!output_.open()) return ReadResult::end;
      if (!poll_streams(false, deadline)) return ReadResult::timeout;
    }
    const std::size_t taken = std::min(size, unread_.size() - returned_);
    into.append(unread_, returned_, taken);
    returned_ += taken;
    size -= taken;
  }
  return ReadResult::line;
}

bool PipedProcess::reap() {
  if (status_) return true;
  siginfo_t info{};
  const int result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
  if (result != 0 || info.si_pid == 0) return false;
  status_.emplace();
  (info.si_code == CLD_EXITED ? status_->code : status_->signal) = info.si_status;
  return true;
}

std::optional<ExitStatus> PipedProcess::wait_until(Time deadline) {
  while (!reap()) {
    if (!poll_streams(false, deadline)) return std::nullopt;
  }
  while (error_output_.open() && receive(error_output_, errors_, kStderrLimit)) {
  }
  return status_;
}

std::string ProgramResult::error_line() const {
  const std::size_t end = err.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "it " + status.sentence();
  const std::size_t before = err.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return printable(err.substr(begin, end + 1 - begin));
}

ProgramResult run_program(const std::vector<std::string>& argv, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  PipedProcess program(argv);
  program.close_input();
  ProgramResult result;
  std::string line;
  // Read past the limit: a full pipe would block the program.
  while (program.read_line(line, deadline) == PipedProcess::ReadResult::line) {
    if (result.out.size() + line.size() < kOutputLimit) result.out += line + "\n";
  }
  const std::optional<ExitStatus> ended = program.wait_until(deadline);
  if (!ended) {
    throw UserError(ExitCode::stalled, "{} timed out after {} s and was killed", argv[0],
                    limit.count());
  }
  result.status = *ended;
  result.err = program.errors();
  return result;
}

}  // namespace strait::base
