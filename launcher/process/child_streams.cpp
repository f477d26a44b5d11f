#include "launcher/process/child_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/base/errors.h"

namespace strait::process {

FileDescriptor above_standard_streams(FileDescriptor low) {
  if (low.number() > 2 || !low.open()) return low;
  return FileDescriptor(::fcntl(low.number(), F_DUPFD_CLOEXEC, 3));
}

std::pair<FileDescriptor, FileDescriptor> stream_pair(const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("cannot start {}: socketpair failed: {}", program, std::strerror(errno)));
  }
  return {above_standard_streams(FileDescriptor(ends[0])),
          above_standard_streams(FileDescriptor(ends[1]))};
}

}  // namespace strait::process
