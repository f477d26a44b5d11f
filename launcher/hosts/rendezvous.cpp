#include "launcher/hosts/rendezvous.h"

#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

// Links are polled: what a host says, and a job for it, wait for this long at most.
constexpr auto kTurn = std::chrono::milliseconds(50);
// A link sends heartbeats, so a process that lives is heard more often.
constexpr auto kAbsentAfter = std::chrono::seconds(7);
// Hosts are told how the run ended as far as possible: one that is gone must not delay the exit.
constexpr auto kFarewellLimit = std::chrono::seconds(2);

net::NodeOptions launcher_node(net::CurveKeyPair keys) {
  net::NodeOptions options;
  options.name = net::ProcessName::coordinator();
  options.keys = std::move(keys);
  options.on_event = [](const std::string&) {};
  return options;
}

net::BindAddress bind_address(const std::string& address, std::pair<int, int> ports) {
  return {address, static_cast<std::uint16_t>(ports.first),
          static_cast<std::uint16_t>(ports.second)};
}

std::set<std::string> hosts_of_this_machine(const std::vector<Rendezvous::Host>& hosts) {
  std::set<std::string> names;
  for (const Rendezvous::Host& host : hosts) {
    if (host.public_key.empty()) names.insert(host.name);
  }
  return names;
}

}  // namespace

Rendezvous::Rendezvous(const std::string& address, std::pair<int, int> ports,
                       net::CurveKeyPair keys, std::vector<Host> hosts)
    : address_(address),
      here_(hosts_of_this_machine(hosts)),
      node_(launcher_node(std::move(keys))),
      listener_(node_.listen(bind_address(address, ports))),
      ended_{base::ExitCode::peer_lost, "the launcher has failed; its own message says why"} {
  {
    const MutexLock lock(mutex_);
    for (Host& host : hosts) hosts_.emplace_back().host = std::move(host);
    // Before the thread: a host may connect as soon as the listener is bound.
    for (std::size_t i = 0; i < hosts_.size(); ++i) expect(i);
  }
  thread_ = std::thread([this] { serve(); });
}

Rendezvous::~Rendezvous() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  const MutexLock lock(mutex_);
  const auto deadline = Clock::now() + kFarewellLimit;
  const auto to_each = [this](const auto& tell) STRAIT_REQUIRES(mutex_) {
    for (Joined& joined : hosts_) {
      if (!joined.link || !is_there(joined)) continue;
      try {
        tell(*joined.link);
      } catch (const net::LinkError&) {  // it has just gone
      }
    }
  };
  to_each([this, deadline](net::Link& link) STRAIT_REQUIRES(mutex_) {
    net::Frame frame = format(ended_);
    link.send_until(frame, deadline);
  });
  // Sent to all before any is waited for, so that one dead host takes only its own share of the
  // limit.
  to_each([deadline](net::Link& link) { link.flush(deadline); });
  hosts_.clear();  // links before the listener
}

void Rendezvous::start_agent(const std::string& name, const std::string& job) {
  {
    const MutexLock lock(mutex_);
    Joined& one = joined(name);
    one.job = job;
    one.job_sent = false;
    one.refusal.clear();
  }
  changed_.notify_all();
}

std::string Rendezvous::refusal(const std::string& name) {
  const MutexLock lock(mutex_);
  return joined(name).refusal;
}

std::vector<std::string> Rendezvous::wait_for(const std::vector<std::string>& names,
                                              std::chrono::seconds limit,
                                              const std::function<bool()>& stopped) {
  const auto deadline = Clock::now() + limit;
  const MutexLock lock(mutex_);
  while (true) {
    std::vector<std::string> absent;
    absent.reserve(names.size());
    for (const std::string& name : names) {
      absent.push_back(is_there(joined(name))
                           ? ""
                           : fmt::format("it has not joined again within {} s", limit.count()));
    }
    const bool all = std::ranges::all_of(absent, &std::string::empty);
    if (all || Clock::now() >= deadline || stopped()) return absent;
    changed_.wait_until(mutex_, std::min(deadline, Clock::now() + kTurn));
  }
}

void Rendezvous::end(base::ExitCode code, const std::string& text) {
  const MutexLock lock(mutex_);
  ended_ = {code, text};
}

void Rendezvous::serve() {
  const MutexLock lock(mutex_);
  while (!closing_) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) turn(i);
    changed_.wait_until(mutex_, Clock::now() + kTurn);
  }
}

void Rendezvous::turn(std::size_t index) {
  Joined& joined = hosts_[index];
  if (!joined.link) return;
  try {
    while (const auto frame = joined.link->receive_until(Clock::now())) {
      const JoinMessage message = parse_join_message(*frame);
      if (const auto* hello = std::get_if<NodeHello>(&message)) take_hello(joined, *hello);
    }
    if (!joined.hello || joined.job.empty() || joined.job_sent) return;
    net::Frame frame = format(StartAgent{joined.job});
    // Does not wait: a host with a full window gets the job at a later turn.
    joined.job_sent = joined.link->send_until(frame, Clock::now());
  } catch (const net::LinkError& error) {
    // Both ends were told. A host that went away may come back as another process.
    if (error.kind() == net::LinkError::Kind::refused) joined.refusal = error.what();
    expect(index);
  } catch (const base::MessageError& error) {
    joined.refusal = error.what();
    expect(index);
  }
}

void Rendezvous::take_hello(Joined& joined, const NodeHello& hello) {
  if (joined.replaced.contains(hello.start)) {
    const std::string text = fmt::format(
        "two processes join as {}: one of host {}, and this one; every node needs a rank of its "
        "own",
        joined.host.name, joined.hello ? base::printable(joined.hello->host_name) : "?");
    net::Frame frame = format(RunEnded{base::ExitCode::bad_input, text});
    joined.link->send_until(frame, Clock::now());
    joined.refusal = text;
    return;
  }
  if (joined.hello && joined.hello->start != hello.start)
    // The former process of a host that came back. If that one speaks again, both are alive.
    joined.replaced.insert(joined.hello->start);
  joined.hello = hello;
  joined.job_sent = false;
  joined.refusal.clear();
}

void Rendezvous::expect(std::size_t index) {
  Joined& joined = hosts_[index];
  if (here_.contains(joined.host.name)) return;
  joined.link.reset();  // before the next: a listener has one link to a peer
  const auto number = static_cast<std::uint32_t>(index);
  joined.link =
      listener_->expect(join_link(number, static_cast<std::uint32_t>(hosts_.size()),
                                  net::ProcessName::host_agent(number), joined.host.public_key));
}

// This machine always is.
bool Rendezvous::is_there(const Joined& joined) const {
  if (!joined.link) return true;
  if (!joined.hello) return false;
  const net::LinkState state = joined.link->state();
  return state.connected && Clock::now() - state.last_heard <= kAbsentAfter;
}

Rendezvous::Joined& Rendezvous::joined(const std::string& name) {
  const auto found = std::ranges::find(
      hosts_, name, [](const Joined& one) -> const std::string& { return one.host.name; });
  if (found == hosts_.end()) throw std::logic_error("no host of this name can join: " + name);
  return *found;
}

}  // namespace strait::hosts
