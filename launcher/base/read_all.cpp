#include "launcher/base/read_all.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "launcher/base/errors.h"

namespace strait::base {

std::string read_all(int descriptor, const std::string& what, std::size_t most,
                     std::chrono::seconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  std::string text;
  std::array<char, 16'384> piece{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      throw UserError(ExitCode::stalled,
                      fmt::format("{} has not come whole within {} s", what, limit.count()));
    }
    pollfd waited{descriptor, POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX)));
    if (waited.revents == 0) continue;
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got == 0) return text;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) {
      throw UserError(ExitCode::bad_input,
                      fmt::format("cannot read {}: {}", what, std::strerror(errno)));
    }
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > most) {
      throw UserError(ExitCode::bad_input,
                      fmt::format("{} is longer than {} bytes: it is something else", what, most));
    }
  }
}

}  // namespace strait::base
