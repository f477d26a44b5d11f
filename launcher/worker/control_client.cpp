#include "launcher/worker/control_client.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

namespace strait::worker {
namespace {

// Upper limit of the destructor's wait: the thread checks closing_ between receives.
constexpr std::chrono::milliseconds kReceiveTimeout{100};
// Time for Ended to reach the coordinator.
constexpr std::chrono::seconds kReportTimeout{5};
// The same where the launcher itself has probably exited.
constexpr std::chrono::seconds kOrphanTimeout{2};

// Ends the process without unwinding: other threads may hold locks, and state is in checkpoints.
[[noreturn]] void exit_now(base::ExitCode code) {
  spdlog::shutdown();
  std::_Exit(number(code));
}

}  // namespace

ControlClient::ControlClient(std::unique_ptr<net::Link> link)
    : link_(std::move(link)), receiver_([this] { receive_loop(); }) {}

ControlClient::~ControlClient() {
  closing_ = true;
  receiver_.join();
}

void ControlClient::send(const run::StageMessage& message) {
  const MutexLock lock(send_mutex_);
  link_->send(format(message));
}

std::map<std::string, std::string> ControlClient::wait_for_peers() {
  const MutexLock lock(mutex_);
  while (!peers_) changed_.wait(mutex_);
  return *peers_;
}

run::CheckpointDecided ControlClient::wait_for_commit(store::Step step, std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  // Without a limit: an abort or the loss of the coordinator ends the process from the other
  // thread.
  while (!decided_.contains({step, epoch})) changed_.wait(mutex_);
  return decided_.at({step, epoch});
}

ControlClient::RejoinPoint ControlClient::wait_to_rejoin() {
  const MutexLock lock(mutex_);
  while (!rejoin_) changed_.wait(mutex_);
  return *rejoin_;
}

void ControlClient::on_admit(ListenForReplica listen_for_replica,
                             std::function<void(const run::Peers&)> connect) {
  std::optional<run::Admit> pending;
  {
    const MutexLock lock(mutex_);
    listen_for_replica_ = std::move(listen_for_replica);
    connect_ = std::move(connect);
    pending = std::exchange(pending_admit_, std::nullopt);
  }
  // An Admit that came before the stage was ready for it.
  if (pending) handle(*pending);
}

void ControlClient::track_membership(sync::MembershipTracker& tracker) {
  const MutexLock lock(mutex_);
  tracker_ = &tracker;
}

void ControlClient::on_decided(DecisionHandler handler) {
  const MutexLock lock(mutex_);
  decision_handler_ = std::move(handler);
}

void ControlClient::receive_loop() {
  try {
    while (!closing_) {
      const auto frame = link_->receive_until(std::chrono::steady_clock::now() + kReceiveTimeout);
      if (frame) handle(run::parse_coordinator_message(*frame));
    }
  } catch (const net::LinkError& error) {
    exit_without_coordinator(error);
  } catch (const std::exception& error) {
    exit_after_failure(error);
  }
}

void ControlClient::exit_without_coordinator(const net::LinkError& error) const {
  if (closing_) return;
  spdlog::error("lost the coordinator: {}; exiting", error.what());
  exit_now(base::ExitCode::peer_lost);
}

void ControlClient::exit_without_parent() {
  spdlog::error("launcher closed stdin; exiting");
  try {
    send(run::Ended{base::ExitCode::peer_lost, "its launcher has ended", /*orphaned=*/true});
    flush(std::chrono::steady_clock::now() + kOrphanTimeout);
  } catch (const net::LinkError& error) {
    spdlog::info("the coordinator has ended, too: {}", error.what());
  }
  exit_now(base::ExitCode::peer_lost);
}

// Not reported as a lost peer, which a run may survive: the coordinator would evict this replica,
// and the cause would be lost.
void ControlClient::exit_after_failure(const std::exception& error) {
  if (closing_) return;
  // If memory is exhausted, the report may fail as well. The exit code still tells the cause.
  base::ExitCode code = dynamic_cast<const std::bad_alloc*>(&error) != nullptr
                            ? base::ExitCode::out_of_memory
                            : base::ExitCode::internal;
  try {
    const base::Failure failure = base::describe_failure(error);
    code = failure.code;
    spdlog::error("{}; exiting", failure.text);
    send(run::Ended{failure.code, failure.text});
    flush(std::chrono::steady_clock::now() + kReportTimeout);
  } catch (const std::exception& second) {
    spdlog::error("could not report it to the coordinator: {}", second.what());
  }
  exit_now(code);
}

void ControlClient::handle(const run::CoordinatorMessage& message) {
  if (const auto* abort = std::get_if<run::Abort>(&message)) {
    spdlog::warn("abort by the coordinator, because of {}: {}; exiting", abort->origin,
                 abort->text);
    exit_now(abort->code);
  }
  if (const auto* after = std::get_if<run::AfterStep>(&message)) {
    if (after->save != 0) save_requested_ = after->save;
    if (!after->stop) return;
    stop_requested_ = true;
    const MutexLock lock(mutex_);
    if (end_) end_();
    return;
  }
  if (const auto* peers = std::get_if<run::Peers>(&message)) return handle(*peers);
  if (const auto* admit = std::get_if<run::Admit>(&message)) return handle(*admit);
  if (const auto* more = std::get_if<run::ExtendBatch>(&message)) return submit(*more);
  if (const auto* rows = std::get_if<run::ScoreRows>(&message)) return submit(*rows);
  {
    const MutexLock lock(mutex_);
    if (const auto* decided = std::get_if<run::CheckpointDecided>(&message)) record(*decided);
    const auto* regroup = std::get_if<run::Regroup>(&message);
    if (regroup != nullptr && tracker_ != nullptr) {
      tracker_->update(regroup->epoch, regroup->replicas);
    }
  }
  changed_.notify_all();
}

void ControlClient::on_inference(std::function<void(run::InferenceRequest)> request,
                                 std::function<void()> end) {
  const MutexLock lock(mutex_);
  request_ = std::move(request);
  end_ = std::move(end);
}

void ControlClient::submit(const run::InferenceRequest& request) {
  const MutexLock lock(mutex_);
  if (!request_) throw base::MessageError("a request to a process that trains");
  request_(request);
}

void ControlClient::record(const run::CheckpointDecided& decided) {
  // First, because it removes the files of a drop: wait_for_commit() returns once decided_ is set,
  // and its caller may write them again.
  if (decision_handler_) decision_handler_(decided);
  if (decided.in_memory) return;  // no thread waits for it
  decided_.insert_or_assign({decided.step, decided.epoch}, decided);
  const auto arrived = arrival(decided);
  if (arrived && !rejoin_) rejoin_ = RejoinPoint{decided.step, *arrived};
}

std::optional<sync::Rejoin> ControlClient::arrival(const run::CheckpointDecided& decided) {
  if (!decided.arrives || !decided.next_epoch) return std::nullopt;
  return sync::Rejoin{*decided.next_epoch, *decided.arrives};
}

void ControlClient::handle(const run::Peers& peers) {
  std::function<void(const run::Peers&)> connect;
  {
    const MutexLock lock(mutex_);
    if (peers_) connect = connect_;
    peers_ = peers.endpoints;
  }
  changed_.notify_all();
  if (!connect) return;
  try {
    connect(peers);
  } catch (const net::LinkError& error) {
    // This process continues. A link that is absent when the replica joins counts as lost.
    send(run::Event{"not_connected",
                    fmt::format("cannot connect to the replica that joins: {}", error.what())});
  }
}

void ControlClient::handle(const run::Admit& admit) {
  ListenForReplica listen_for_replica;
  {
    const MutexLock lock(mutex_);
    listen_for_replica = listen_for_replica_;
    if (!listen_for_replica) pending_admit_ = admit;
  }
  if (!listen_for_replica) return;
  try {
    send(run::Ready{listen_for_replica(admit), admit.number});
  } catch (const net::LinkError& error) {
    // Without a Ready the coordinator rejects the replica, and this process continues.
    send(run::Event{"not_admitted",
                    fmt::format("cannot listen for replica {}: {}", admit.replica, error.what())});
  }
}

}  // namespace strait::worker
