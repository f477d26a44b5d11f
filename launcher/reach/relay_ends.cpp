#include "launcher/reach/relay_ends.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace strait::reach {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{2000};

}  // namespace

RelayEnds::RelayEnds(std::function<void(const std::string&)> on_event)
    : on_event_(std::move(on_event)), thread_([this] { serve(); }) {}

RelayEnds::~RelayEnds() {
  leaving_ = true;
  wake_.raise();
  thread_.join();
}

void RelayEnds::bind(const net::Endpoint& relay, const std::string& token,
                     const net::Endpoint& stage) {
  {
    const MutexLock lock(mutex_);
    BindEnd end;
    end.relay = relay;
    end.token = token;
    end.stage = stage;
    new_binds_.push_back(std::move(end));
  }
  wake_.raise();
}

net::Endpoint RelayEnds::dial(const net::Endpoint& relay, const std::string& token) {
  const MutexLock lock(mutex_);
  const auto known = ports_.find(token);
  if (known != ports_.end()) return known->second;
  // Of this host's own: its stage and nobody else comes here.
  BoundPort port = listen_at("127.0.0.1", {0, 0});
  new_dials_.push_back({relay, token, std::move(port.socket)});
  wake_.raise();
  return ports_.emplace(token, port.endpoint).first->second;
}

void RelayEnds::take_orders() {
  const MutexLock lock(mutex_);
  for (BindEnd& end : new_binds_) {
    std::erase_if(binds_, [&](const BindEnd& old) { return old.token == end.token; });
    splices_.drop(end.token);
    binds_.push_back(std::move(end));
  }
  std::ranges::move(new_dials_, std::back_inserter(dials_));
  new_binds_.clear();
  new_dials_.clear();
}

void RelayEnds::serve() {
  std::vector<pollfd> polls;
  while (!leaving_) {
    take_orders();
    Instant now = std::chrono::steady_clock::now();
    polls.assign(1, {wake_.number(), POLLIN, 0});
    for (BindEnd& end : binds_) {
      prepare(end, now);
      const short events = end.greeted ? POLLIN : POLLOUT;
      polls.push_back({end.ready.open() ? end.ready.number() : -1, events, 0});
    }
    for (const DialEnd& end : dials_) polls.push_back({end.listener.number(), POLLIN, 0});
    const std::size_t first_splice = polls.size();
    splices_.append_to(polls);
    ::poll(polls.data(), polls.size(), poll_limit(now));
    now = std::chrono::steady_clock::now();
    wake_.lower();
    splices_.move(std::span<const pollfd>(polls).subspan(first_splice));
    std::size_t at = 1;
    for (BindEnd& end : binds_) proceed(end, polls[at++], now);
    for (const DialEnd& end : dials_) {
      if (polls[at++].revents != 0) answer(end);
    }
  }
}

// Until when nothing is due.
int RelayEnds::poll_limit(Instant now) const {
  Instant next = now + std::chrono::seconds(10);
  for (const BindEnd& end : binds_) {
    if (!end.ready.open()) next = std::min(next, end.try_at);
  }
  return milliseconds_left(next);
}

void RelayEnds::prepare(BindEnd& end, Instant now) {
  if (end.ready.open() || now < end.try_at) return;
  end.greeted = false;
  try {
    end.ready = begin_dial(end.relay);
  } catch (const PathError& error) {
    fail(end, error.what(), now);
  }
}

void RelayEnds::proceed(BindEnd& end, const pollfd& poll, Instant now) {
  if (!end.ready.open() || poll.revents == 0) return;
  if (!end.greeted) {
    const std::string trouble = dial_trouble(end.ready.number());
    if (!trouble.empty()) return fail(end, trouble, now);
    const TicketBytes words = to_bytes({end.token, Ticket::Wish::relay_binds});
    // A new connection takes more than this in one piece.
    if (::send(end.ready.number(), words.data(), words.size(), MSG_NOSIGNAL) < 0) {
      return fail(end, "it closed the connection", now);
    }
    end.greeted = true;
    return;
  }
  std::byte word{};
  const ssize_t got = ::recv(end.ready.number(), &word, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != 1 || word != kRelayGo) return fail(end, "it closed the connection", now);
  end.pause = milliseconds{0};
  end.told = false;
  pass_on(end);
}

void RelayEnds::fail(BindEnd& end, const std::string& why, Instant now) {
  end.ready = store::FileDescriptor();
  end.pause = std::clamp(2 * end.pause, kFirstPause, kLongestPause);
  end.try_at = now + end.pause;
  if (end.pause < kLongestPause || std::exchange(end.told, true)) return;
  on_event_(fmt::format("the relay at {} does not answer ({}); trying on", end.relay.place(), why));
}

void RelayEnds::pass_on(BindEnd& end) {
  store::FileDescriptor relayed = std::exchange(end.ready, store::FileDescriptor());
  try {
    splices_.add(end.token, Splice(std::move(relayed), begin_dial(end.stage)));
  } catch (const PathError& error) {
    on_event_(fmt::format("a relayed link finds nobody at {}", error.what()));
  }
}

void RelayEnds::answer(const DialEnd& end) {
  store::FileDescriptor caller = take_caller(end.listener.number());
  if (!caller.open()) return;
  try {
    const TicketBytes words = to_bytes({end.token, Ticket::Wish::relay_dials});
    splices_.add(end.token, Splice(std::move(caller), begin_dial(end.relay), words));
  } catch (const PathError& error) {
    on_event_(fmt::format("the relay cannot be dialled: {}", error.what()));
  }
}

}  // namespace strait::reach
