#include "launcher/run/rejoin.h"

namespace strait::run {
namespace {

using Clock = std::chrono::steady_clock;

bool is_ready(const std::future<StartedReplica>& started) {
  return started.wait_for(Clock::duration::zero()) == std::future_status::ready;
}

}  // namespace

void Rejoin::poll_requests(bool stopping) {
  if (!options_.rejoin_requests) return;
  for (const std::uint32_t replica : options_.rejoin_requests()) requests_.push_back(replica);
  if (current_ && current_->state == State::admitting && Clock::now() >= current_->deadline) {
    cancel("timed out while the other processes bound links to it");
  }
  // A cancelled start still runs, and would use the same names and ports.
  const bool still_starting = started_.valid() && !is_ready(started_);
  if (current_ || still_starting || requests_.empty()) return;
  const std::uint32_t replica = requests_.front();
  requests_.erase(requests_.begin());
  begin(replica, stopping);
}

void Rejoin::begin(std::uint32_t replica, bool stopping) {
  const auto belongs = [&](const Worker& one) { return one.handle.name.replica == replica; };
  if (membership_.has(replica) || std::ranges::none_of(workers_.all(), belongs)) return;
  observers_.notify(&RunObserver::rejoin_attempted, RejoinAttempt{replica, ""});
  if (stopping) {
    return observers_.notify(&RunObserver::rejoin_attempted,
                             RejoinAttempt{replica, "the run is stopping"});
  }
  // The former links and processes go first, because the new ones have the same names.
  auto& workers = workers_.all();
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (!belongs(workers[i])) continue;
    inbox_.remove(i);
    if (const auto link = std::move(workers[i].handle.link)) {
      link->abort(net::LinkError(net::LinkError::Kind::aborted, "the worker was evicted"));
    }
    workers[i].handle.process.reset();
  }
  current_ = Current{.replica = replica};
  given_up_ = false;
  // A start takes seconds to minutes, and the coordinator must answer its workers meanwhile.
  started_ = std::async(std::launch::async, options_.start_replica, replica, std::cref(given_up_));
}

void Rejoin::poll_started(bool training) {
  if (!current_ || current_->state != State::starting || !is_ready(started_)) return;
  try {
    StartedReplica started = started_.get();
    if (!training) return cancel("the run is over");
    add_workers(std::move(started));
  } catch (const std::exception& error) {
    cancel(base::describe_failure(error).text);
  }
}

void Rejoin::add_workers(StartedReplica started) {
  current_->state = State::binding;
  current_->binds = std::move(started.binds);
  for (const Event& note : started.notes) observers_.launcher_event(note);
  auto& workers = workers_.all();
  for (WorkerHandle& handle : started.workers) {
    const auto former = std::ranges::find_if(
        workers, [&](const Worker& one) { return one.handle.name == handle.name; });
    Worker fresh;
    fresh.handle = std::move(handle);
    fresh.heard = Clock::now();
    fresh.rejoining = true;
    *former = std::move(fresh);
    inbox_.add(static_cast<std::size_t>(former - workers.begin()), *former->handle.link);
    watchdog_.begin(former->handle.name, Clock::now());
  }
}

void Rejoin::on_ready(Worker& from, const Ready& ready) {
  if (!current_) return;  // cancelled meanwhile
  if (from.rejoining || !from.ready) {
    from.ready = ready;
  } else {
    if (ready.admission != current_->number) return;  // answers a cancelled Admit
    for (const auto& [link, endpoint] : ready.endpoints) from.ready->endpoints[link] = endpoint;
    current_->unanswered.erase(from.handle.name);
  }
  advance();
}

void Rejoin::advance() {
  if (!current_) return;
  if (current_->state == State::binding) {
    const bool ready = std::ranges::all_of(
        workers_.all(), [](const Worker& one) { return !one.rejoining || one.is_ready(); });
    if (ready) send_admits();
    return;
  }
  // A replica that left meanwhile never answers.
  std::erase_if(current_->unanswered,
                [&](const net::ProcessName& process) { return !membership_.has(process.replica); });
  if (current_->state != State::admitting || !current_->unanswered.empty()) return;
  Peers peers;
  try {
    peers = workers_.peers(options_.locate_endpoints);
  } catch (const base::UserError& error) {
    return cancel(error.what());  // a host that relays a link was lost
  } catch (const base::MessageError& error) {
    // Not an error of the worker that answered last, which may be one that trains.
    return cancel(error.what());
  }
  current_->state = State::waiting;
  workers_.broadcast(peers);
  request_checkpoint();
}

void Rejoin::send_admits() {
  current_->state = State::admitting;
  current_->deadline = Clock::now() + options_.admit_timeout;
  current_->number = ++admits_;
  Admit admit{current_->number, current_->replica, {}};
  std::set<std::string> bound;  // links that the replica itself has bound
  for (const Worker& worker : workers_.all()) {
    if (!worker.rejoining) continue;
    admit.keys[worker.handle.name.text()] = worker.handle.public_key;
    for (const auto& [link, endpoint] : worker.ready->endpoints) bound.insert(link);
  }
  for (Worker& worker : workers_.all()) {
    if (!membership_.has(worker.handle.name.replica)) continue;
    current_->unanswered.insert(worker.handle.name);
    // Another end than before may bind a link; its former endpoint must not count as a second one.
    std::erase_if(worker.ready->endpoints,
                  [&](const auto& one) { return bound.contains(one.first); });
    admit.binds = current_->binds[worker.handle.name];
    workers_.send(worker, admit);
  }
}

// Not to the replica itself, which does not take part in consensus rounds yet.
void Rejoin::request_checkpoint() {
  ++checkpoint_requests_;
  for (Worker& worker : workers_.all()) {
    if (!worker.rejoining) workers_.send(worker, AfterStep{.save = checkpoint_requests_});
  }
}

void Rejoin::on_checkpoint_dropped() {
  if (current_ && current_->state == State::waiting) request_checkpoint();
}

std::optional<std::uint32_t> Rejoin::take_waiting() {
  if (!current_ || current_->state != State::waiting) return std::nullopt;
  const std::uint32_t replica = current_->replica;
  current_.reset();
  return replica;
}

void Rejoin::cancel(const std::string& why) {
  if (!current_) return;
  const std::uint32_t replica = current_->replica;
  current_.reset();
  // The start on the other thread polls this flag.
  given_up_ = true;
  for (Worker& worker : workers_.all()) {
    if (!std::exchange(worker.rejoining, false)) continue;
    workers_.evict(worker, Abort{base::ExitCode::peer_lost, why, "the launcher"});
    watchdog_.finished(worker.handle.name);
  }
  observers_.notify(&RunObserver::rejoin_attempted, RejoinAttempt{replica, why});
}

}  // namespace strait::run
