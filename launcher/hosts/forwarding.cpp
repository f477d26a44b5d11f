#include "launcher/hosts/forwarding.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace strait::hosts {
namespace {

// Per direction. More would only add latency: TCP's own buffers hold what the path can.
constexpr std::size_t kMostBuffered = std::size_t{256} << 10;
// Most relayed connections are idle most of the time, so a buffer starts small and grows.
constexpr std::size_t kFirstBuffered = std::size_t{4} << 10;

// A socket without wanted events is left out (-1): poll(2) would report its POLLHUP in a busy loop.
pollfd poll_for(const FileDescriptor& socket, bool reads, bool writes) {
  const auto events = static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
  return {events == 0 ? -1 : socket.number(), events, 0};
}

bool would_block(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

Forwarding::Forwarding(FileDescriptor near, FileDescriptor far, std::span<const std::byte> ahead)
    : near_socket_(std::move(near)), far_socket_(std::move(far)) {
  near_.memory.assign(ahead.begin(), ahead.end());
  near_.last = ahead.size();
}

bool Forwarding::Buffer::has_room() const { return !ended && last < kMostBuffered; }

std::array<pollfd, 2> Forwarding::waits_for() const {
  return {poll_for(near_socket_, near_.has_room(), !far_.empty()),
          poll_for(far_socket_, far_.has_room(), !near_.empty())};
}

bool Forwarding::fill(int from, Buffer& held) {
  if (!held.has_room()) return true;
  if (held.last == held.memory.size()) {
    held.memory.resize(std::clamp(2 * held.memory.size(), kFirstBuffered, kMostBuffered));
  }
  const std::span<std::byte> room(held.memory.data() + held.last, held.memory.size() - held.last);
  const ssize_t got = ::recv(from, room.data(), room.size(), 0);
  if (got < 0) return would_block(errno);
  held.ended = got == 0;
  held.last += static_cast<std::size_t>(got);
  return true;
}

bool Forwarding::drain(int to, Buffer& held) {
  while (!held.empty()) {
    const ssize_t sent =
        ::send(to, held.memory.data() + held.first, held.last - held.first, MSG_NOSIGNAL);
    if (sent < 0) return would_block(errno);
    held.first += static_cast<std::size_t>(sent);
    held.bytes += static_cast<std::uint64_t>(sent);
  }
  held.first = held.last = 0;
  return !held.ended;
}

bool Forwarding::move() {
  const bool filled = fill(near_socket_.number(), near_) && fill(far_socket_.number(), far_);
  // Bytes that were read before one end was lost are still sent to the other.
  const bool near_goes_on = drain(far_socket_.number(), near_);
  const bool far_goes_on = drain(near_socket_.number(), far_);
  return filled && near_goes_on && far_goes_on;
}

void ForwardingSet::drop(const std::string& name) {
  std::erase_if(open_, [&](const Named& one) { return one.name == name; });
}

void ForwardingSet::append_to(std::vector<pollfd>& polls) const {
  for (const Named& one : open_) {
    const auto waits = one.forwarding.waits_for();
    polls.insert(polls.end(), waits.begin(), waits.end());
  }
}

void ForwardingSet::move(std::span<const pollfd> polls) {
  std::vector<Named> kept;
  kept.reserve(open_.size());
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Named& one = open_[i];
    const bool ready = polls[2 * i].revents != 0 || polls[2 * i + 1].revents != 0;
    const bool goes_on = !ready || one.forwarding.move();
    bytes_[one.name] += one.forwarding.bytes() - std::exchange(one.counted, one.forwarding.bytes());
    if (goes_on) kept.push_back(std::move(one));
  }
  open_ = std::move(kept);
}

}  // namespace strait::hosts
