#include "launcher/reach/relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "launcher/reach/relay_waiting.h"
#include "launcher/reach/splice_set.h"

namespace strait::reach {
namespace {

constexpr int kLookEveryMilliseconds = 1000;  // for those who have waited too long

// Empties one listener into the door.
void let_in(int listener, RelayWaiting& door, Instant now) {
  while (true) {
    store::FileDescriptor caller = take_caller(listener);
    if (!caller.open()) return;
    door.enter(std::move(caller), now);
  }
}

void join_ends(std::vector<RelayWaiting::Pair> pairs, SpliceSet& splices) {
  for (RelayWaiting::Pair& pair : pairs) {
    // One byte always fits into a socket that has sent nothing; a dead one shows at the first move.
    const std::byte go = kRelayGo;
    static_cast<void>(::send(pair.binds.number(), &go, 1, MSG_NOSIGNAL));
    splices.add(pair.token, Splice(std::move(pair.dials), std::move(pair.binds)));
  }
}

}  // namespace

Relay::Relay(std::pair<int, int> ports) : ports_(std::move(ports)), thread_([this] { serve(); }) {}

Relay::~Relay() {
  leaving_ = true;
  wake_.raise();
  thread_.join();
}

net::Endpoint Relay::place(const std::string& address) {
  const MutexLock lock(mutex_);
  const auto known = places_.find(address);
  if (known != places_.end()) return known->second;
  BoundPort bound = listen_at(address, ports_);
  opened_.push_back(std::move(bound.socket));
  wake_.raise();
  return places_.emplace(address, bound.endpoint).first->second;
}

void Relay::admit(const std::string& token) {
  {
    const MutexLock lock(mutex_);
    admitted_.push_back(token);
  }
  wake_.raise();
}

std::uint64_t Relay::bytes(const std::string& token) const {
  const MutexLock lock(mutex_);
  const auto found = moved_.find(token);
  return found == moved_.end() ? 0 : found->second;
}

void Relay::serve() {
  RelayWaiting door;
  SpliceSet splices;
  std::vector<pollfd> polls;
  while (!leaving_) {
    polls.assign(1, {wake_.number(), POLLIN, 0});
    for (const store::FileDescriptor& listener : listeners_) {
      polls.push_back({listener.number(), POLLIN, 0});
    }
    const std::size_t first_waiting = polls.size();
    door.append_to(polls);
    const std::size_t first_splice = polls.size();
    splices.append_to(polls);
    ::poll(polls.data(), polls.size(), kLookEveryMilliseconds);
    const Instant now = std::chrono::steady_clock::now();
    const std::span<const pollfd> answers(polls);
    wake_.lower();
    splices.move(answers.subspan(first_splice));
    auto pairs = door.look(answers.subspan(first_waiting, first_splice - first_waiting), now);
    join_ends(std::move(pairs), splices);
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (answers[1 + i].revents != 0) let_in(listeners_[i].number(), door, now);
    }
    const MutexLock lock(mutex_);
    std::ranges::move(opened_, std::back_inserter(listeners_));
    opened_.clear();
    for (const std::string& token : admitted_) door.admit(token);
    admitted_.clear();
    moved_ = splices.bytes();
  }
}

}  // namespace strait::reach
