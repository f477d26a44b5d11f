#include "launcher/reach/flow.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>

namespace strait::reach {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = std::size_t{256} << 10;
constexpr int kMostPieces = 16;            // taken from a socket before the clock is looked at
constexpr double kSampleSeconds = 0.0005;  // between two samples
constexpr std::uint32_t kMostSamples = 200'000;
constexpr double kLongest = 60;

double seconds_of(Instant moment) {
  return std::chrono::duration<double>(moment.time_since_epoch()).count();
}

// What no path can make smaller.
const std::vector<std::byte>& poured_bytes() {
  static const std::vector<std::byte> kBytes = [] {
    std::vector<std::byte> made(kPiece);
    std::mt19937_64 numbers;
    for (std::byte& one : made) one = static_cast<std::byte>(numbers() & 0xFFU);
    return made;
  }();
  return kBytes;
}

// Empties a socket as far as it goes: false once it is closed.
bool drain_socket(int socket, std::vector<std::byte>& room, std::uint64_t& total) {
  for (int piece = 0; piece < kMostPieces; ++piece) {
    const ssize_t got = ::recv(socket, room.data(), room.size(), 0);
    if (got > 0) {
      total += static_cast<std::uint64_t>(got);
    } else {
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
  }
  return true;
}

template <class T>
T receive_value(int socket, Instant deadline) {
  std::array<std::byte, sizeof(T)> bytes{};
  receive_all(socket, bytes, deadline);
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

void pour(int socket, Instant deadline) {
  const std::vector<std::byte>& bytes = poured_bytes();
  while (true) {
    pollfd waited{socket, POLLIN | POLLOUT, 0};
    const int ready = ::poll(&waited, 1, milliseconds_left(deadline));
    if ((waited.revents & (POLLIN | POLLERR | POLLHUP)) != 0) return;
    if (Clock::now() >= deadline) throw PathError("sending: the other end never had enough");
    if (ready <= 0) continue;
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
  }
}

std::vector<FlowSample> count(const std::vector<int>& sockets, double seconds, Instant deadline) {
  std::vector<pollfd> polls;
  polls.reserve(sockets.size());
  for (const int socket : sockets) polls.push_back({socket, POLLIN, 0});
  std::vector<std::byte> room(kPiece);
  std::vector<FlowSample> samples;
  std::uint64_t total = 0;
  bool open = true;
  double now = 0;
  while (open) {
    if (::poll(polls.data(), polls.size(), milliseconds_left(deadline)) < 0) continue;
    for (const pollfd& one : polls) {
      if (one.revents != 0) open = drain_socket(one.fd, room, total) && open;
    }
    // Looked at when the sockets are empty: whatever held this thread up, by now it has all that
    // the path has carried.
    now = seconds_of(Clock::now());
    if (samples.empty() || now - samples.back().seconds >= kSampleSeconds) {
      samples.push_back({now, total});
    }
    if (now - samples.front().seconds >= seconds || Clock::now() >= deadline) break;
  }
  samples.push_back({now, total});
  return samples;
}

void count_and_tell(int socket, Instant deadline) {
  const auto seconds = receive_value<double>(socket, deadline);
  if (!(seconds > 0 && seconds <= kLongest)) throw PathError("asked to count for no time");
  const std::vector<FlowSample> samples = count({socket}, seconds, deadline);
  const auto size = static_cast<std::uint32_t>(samples.size());
  std::vector<std::byte> words(sizeof size + samples.size() * sizeof(FlowSample));
  std::memcpy(words.data(), &size, sizeof size);
  std::memcpy(words.data() + sizeof size, samples.data(), samples.size() * sizeof(FlowSample));
  send_all(socket, words, deadline);
  // Closed by the caller first: to close upon bytes that nobody has read would take back the words.
  std::vector<std::byte> room(kPiece);
  std::uint64_t ignored = 0;
  while (drain_socket(socket, room, ignored) && await(socket, POLLIN, deadline)) {
  }
}

std::vector<FlowSample> pour_and_hear(int socket, double seconds, Instant deadline) {
  std::array<std::byte, sizeof seconds> words{};
  std::memcpy(words.data(), &seconds, sizeof seconds);
  send_all(socket, words, deadline);
  pour(socket, deadline);
  const auto size = receive_value<std::uint32_t>(socket, deadline);
  if (size > kMostSamples) throw PathError("told of too many samples");
  std::vector<std::byte> told(size * sizeof(FlowSample));
  receive_all(socket, told, deadline);
  std::vector<FlowSample> samples(size);
  std::memcpy(samples.data(), told.data(), told.size());
  return samples;
}

}  // namespace strait::reach
