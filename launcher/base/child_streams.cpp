#include "launcher/base/child_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "launcher/base/errors.h"

namespace strait::base {

FileDescriptor above_standard_streams(FileDescriptor low) {
  if (low.number() > 2 || !low.open()) return low;
  return FileDescriptor(::fcntl(low.number(), F_DUPFD_CLOEXEC, 3));
}

std::pair<FileDescriptor, FileDescriptor> stream_pair(const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw UserError(ExitCode::bad_input, fmt::format("cannot start {}: socketpair failed: {}",
                                                     program, std::strerror(errno)));
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

}  // namespace strait::base
