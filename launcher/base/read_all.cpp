#include "launcher/base/read_all.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/base/errors.h"
#include "launcher/base/machine.h"

namespace strait::base {
namespace {

using State = PrefixedText::State;

State read_exactly(int descriptor, std::span<char> to,
                   std::chrono::steady_clock::time_point deadline) {
  while (!to.empty()) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return State::timed_out;
    // Polled, because a pipe without a writer must not hold the program beyond its deadline.
    pollfd waited{descriptor, POLLIN, 0};
    ::poll(&waited, 1, left);
    if (waited.revents == 0) continue;
    const ssize_t got = ::read(descriptor, to.data(), to.size());
    if (got == 0) return State::ended;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return State::unreadable;
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return State::whole;
}

}  // namespace

std::string read_all(int descriptor, const std::string& what, std::size_t most,
                     std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::string text;
  std::array<char, 16'384> piece{};
  while (true) {
    const int left = milliseconds_until(deadline);
    if (left == 0) {
      throw UserError(ExitCode::stalled, "{} did not arrive completely within {} s", what,
                      limit.count());
    }
    pollfd waited{descriptor, POLLIN, 0};
    ::poll(&waited, 1, left);
    if (waited.revents == 0) continue;
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got == 0) return text;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) {
      throw UserError(ExitCode::bad_input, "cannot read {}: {}", what, std::strerror(errno));
    }
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > most) {
      throw UserError(ExitCode::bad_input, "{} is longer than {} bytes: it is something else", what,
                      most);
    }
  }
}

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::write(descriptor, bytes.data(), bytes.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string length_prefixed(std::string_view text) {
  std::string bytes;
  const auto size = static_cast<std::uint32_t>(text.size());
  for (const unsigned shift : {0U, 8U, 16U, 24U}) {
    bytes.push_back(static_cast<char>((size >> shift) & 0xFFU));
  }
  return bytes.append(text);
}

PrefixedText read_length_prefixed(int descriptor, std::uint32_t most,
                                  std::chrono::steady_clock::time_point deadline) {
  PrefixedText read;
  std::array<char, 4> prefix{};
  read.state = read_exactly(descriptor, prefix, deadline);
  if (read.state == State::whole) {
    for (unsigned i = 0; i < prefix.size(); ++i) {
      read.size |= std::uint32_t{static_cast<unsigned char>(prefix.at(i))} << (8 * i);
    }
    if (read.size > most) {
      read.state = State::too_long;
      return read;
    }
    // After the limit: the size comes from another process.
    read.text.resize(read.size);
    read.state = read_exactly(descriptor, read.text, deadline);
  }
  if (read.state == State::unreadable) read.error = errno;
  return read;
}

}  // namespace strait::base
