#include "launcher/hosts/flow.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>

#include "launcher/base/clocks.h"
#include "launcher/base/median.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBeginning = 1.0 / 3;  // of the time, in which TCP finds its speed
constexpr int kPieces = 8;              // of the rest
constexpr std::size_t kPiece = std::size_t{256} << 10;
constexpr int kMostPieces = 16;            // taken from a socket before the clock is looked at
constexpr double kSampleSeconds = 0.0005;  // between two samples
constexpr std::uint32_t kMostSamples = 200'000;
constexpr double kLongest = 60;

// The last sample before the moment: what had come by then, and when that was.
const FlowSample* last_before(std::span<const FlowSample> samples, double moment) {
  const auto behind = std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  return behind == samples.begin() ? nullptr : &*std::prev(behind);
}

double rate_between(const FlowSample& from, const FlowSample& to) {
  return static_cast<double>(to.bytes - from.bytes) / (to.seconds - from.seconds);
}

// Of the pieces that the time from `start` on is cut into. A standstill spoils one of them.
std::vector<double> piece_rates(std::span<const FlowSample> samples, double start) {
  const double end = samples.back().seconds;
  std::vector<double> rates;
  for (int piece = 0; piece < kPieces; ++piece) {
    const double length = (end - start) / kPieces;
    const FlowSample* from = last_before(samples, start + piece * length);
    const FlowSample* to = last_before(samples, start + (piece + 1) * length);
    if (piece + 1 == kPieces) to = &samples.back();
    if (from == nullptr || to == nullptr || to->seconds <= from->seconds) continue;
    rates.push_back(rate_between(*from, *to));
  }
  return rates;
}

// The sample that is furthest ahead of a steady flow of this rate: what had come was all there, and
// nothing waited for a lost packet.
const FlowSample& furthest(std::span<const FlowSample> samples, double rate) {
  return *std::ranges::max_element(samples, {}, [rate](const FlowSample& sample) {
    return static_cast<double>(sample.bytes) - rate * sample.seconds;
  });
}

// From such a sample early on to one near the end.
double gush_rate(std::span<const FlowSample> samples, double start) {
  const double third = (samples.back().seconds - start) / 3;
  const auto at = [&](double moment) {
    return std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  };
  const std::span<const FlowSample> early(at(start), at(start + third));
  const std::span<const FlowSample> late(at(start + 2 * third), samples.end());
  if (early.empty() || late.empty()) return 0;
  double rate = rate_between(early.front(), late.back());
  constexpr int kRounds = 4;  // each finds better samples by the rate of the one before
  for (int i = 0; i < kRounds; ++i) {
    rate = rate_between(furthest(early, rate), furthest(late, rate));
  }
  return rate;
}

double seconds_of(Instant moment) {
  return std::chrono::duration<double>(moment.time_since_epoch()).count();
}

// Incompressible, so that a compressing path is not measured too fast.
const std::vector<std::byte>& poured_bytes() {
  static const std::vector<std::byte> kBytes = [] {
    std::vector<std::byte> made(kPiece);
    std::mt19937_64 numbers;
    for (std::byte& one : made) one = static_cast<std::byte>(numbers() & 0xFFU);
    return made;
  }();
  return kBytes;
}

// Reads what a socket has; false once it is closed.
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

double flow_rate_of_samples(std::span<const FlowSample> samples) {
  if (samples.size() < 2) return 0;
  const double end = samples.back().seconds;
  const double start = samples.front().seconds + kBeginning * (end - samples.front().seconds);
  const std::vector<double> rates = piece_rates(samples, start);
  if (rates.empty()) return 0;
  // Where packets are lost, bytes come in gushes, and most pieces see too few.
  return std::max(base::median(rates), gush_rate(samples, start));
}

std::vector<FlowSample> merge_flows(std::span<const std::vector<FlowSample>> flows) {
  std::vector<FlowSample> growth;  // by so much at that moment
  for (const std::vector<FlowSample>& flow : flows) {
    std::uint64_t before = 0;
    for (const FlowSample& sample : flow) {
      growth.push_back({sample.seconds, sample.bytes - before});
      before = sample.bytes;
    }
  }
  std::ranges::stable_sort(growth, {}, &FlowSample::seconds);
  std::uint64_t total = 0;
  for (FlowSample& sample : growth) sample.bytes = total += sample.bytes;
  return growth;
}

void pour(int socket, Instant deadline) {
  const std::vector<std::byte>& bytes = poured_bytes();
  while (true) {
    pollfd waited{socket, POLLIN | POLLOUT, 0};
    const int ready = ::poll(&waited, 1, base::milliseconds_until(deadline));
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
    if (::poll(polls.data(), polls.size(), base::milliseconds_until(deadline)) < 0) continue;
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

void sample_and_report(int socket, Instant deadline) {
  const auto seconds = receive_value<double>(socket, deadline);
  if (!(seconds > 0 && seconds <= kLongest)) throw PathError("asked to count for no time");
  const std::vector<FlowSample> samples = count({socket}, seconds, deadline);
  const auto size = static_cast<std::uint32_t>(samples.size());
  std::vector<std::byte> words(sizeof size + samples.size() * sizeof(FlowSample));
  std::memcpy(words.data(), &size, sizeof size);
  std::memcpy(words.data() + sizeof size, samples.data(), samples.size() * sizeof(FlowSample));
  send_all(socket, words, deadline);
  // The caller closes first: closing with unread bytes sends RST, which would discard the samples.
  std::vector<std::byte> room(kPiece);
  std::uint64_t ignored = 0;
  while (drain_socket(socket, room, ignored) && await(socket, POLLIN, deadline)) {
  }
}

std::vector<FlowSample> send_and_sample(int socket, double seconds, Instant deadline) {
  std::array<std::byte, sizeof seconds> words{};
  std::memcpy(words.data(), &seconds, sizeof seconds);
  send_all(socket, words, deadline);
  pour(socket, deadline);
  const auto size = receive_value<std::uint32_t>(socket, deadline);
  if (size > kMostSamples) throw PathError("the peer sent too many samples");
  std::vector<std::byte> received(size * sizeof(FlowSample));
  receive_all(socket, received, deadline);
  std::vector<FlowSample> samples(size);
  std::memcpy(samples.data(), received.data(), received.size());
  // By seconds, so that they can be searched.
  const auto in_order = [](const FlowSample& one, const FlowSample& next) {
    return one.seconds <= next.seconds && one.bytes <= next.bytes;
  };
  if (!std::ranges::all_of(
          samples, [](double t) { return std::isfinite(t); }, &FlowSample::seconds) ||
      std::ranges::adjacent_find(samples, std::not_fn(in_order)) != samples.end()) {
    throw PathError("the peer sent samples that are in no order");
  }
  return samples;
}

}  // namespace strait::hosts
