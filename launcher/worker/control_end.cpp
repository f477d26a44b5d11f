#include "launcher/worker/control_end.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

namespace strait::worker {
namespace {

constexpr std::chrono::milliseconds kListenLook{100};

// Ends the process without unwinding: other threads may be anywhere, and state is in checkpoints.
[[noreturn]] void exit_now(base::ExitCode code) {
  spdlog::shutdown();
  std::_Exit(number(code));
}

}  // namespace

ControlEnd::ControlEnd(std::unique_ptr<net::Link> link)
    : link_(std::move(link)), listener_([this] { listen(); }) {}

ControlEnd::~ControlEnd() {
  closing_ = true;
  listener_.join();
}

void ControlEnd::say(const control::StageMessage& message) {
  const MutexLock lock(send_mutex_);
  link_->send(format(message));
}

std::map<std::string, std::string> ControlEnd::wait_for_peers() {
  const MutexLock lock(mutex_);
  while (!peers_) changed_.wait(mutex_);
  return *peers_;
}

ControlEnd::Decision ControlEnd::wait_for_commit(store::Step step, std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  while (!decided_.contains({step, epoch})) changed_.wait(mutex_);
  return decided_.at({step, epoch});
}

ControlEnd::Turn ControlEnd::wait_for_turn() {
  const MutexLock lock(mutex_);
  while (!turn_) changed_.wait(mutex_);
  return *turn_;
}

void ControlEnd::on_admit(Expect expect, std::function<void(const control::Peers&)> meet) {
  std::optional<control::Admit> early;
  {
    const MutexLock lock(mutex_);
    expect_ = std::move(expect);
    meet_ = std::move(meet);
    early = std::exchange(early_, std::nullopt);
  }
  if (early) hear(*early);
}

void ControlEnd::track_membership(sync::MembershipTracker& tracker) {
  const MutexLock lock(mutex_);
  tracker_ = &tracker;
}

void ControlEnd::on_drop(Clean clean) {
  const MutexLock lock(mutex_);
  on_drop_ = std::move(clean);
}

void ControlEnd::listen() {
  try {
    while (!closing_) {
      const auto frame = link_->receive_until(std::chrono::steady_clock::now() + kListenLook);
      if (frame) hear(control::parse_coordinator_message(*frame));
    }
  } catch (const std::exception& error) {
    if (closing_) return;
    spdlog::error("lost the coordinator: {}; exiting", error.what());
    exit_now(base::ExitCode::peer_lost);
  }
}

void ControlEnd::hear(const control::CoordinatorMessage& message) {
  if (const auto* abort = std::get_if<control::Abort>(&message)) {
    spdlog::warn("abort by the coordinator, because of {}: {}; exiting", abort->origin,
                 abort->text);
    exit_now(abort->code);
  }
  if (std::holds_alternative<control::StopAfterStep>(message)) {
    stop_requested_ = true;
    return;
  }
  if (const auto* wish = std::get_if<control::SaveSoon>(&message)) {
    save_requested_ = wish->number;
    return;
  }
  if (const auto* peers = std::get_if<control::Peers>(&message)) return hear(*peers);
  if (const auto* admit = std::get_if<control::Admit>(&message)) return hear(*admit);
  {
    const MutexLock lock(mutex_);
    if (const auto* committed = std::get_if<control::Committed>(&message)) note(*committed);
    if (const auto* dropped = std::get_if<control::Dropped>(&message)) {
      if (on_drop_) on_drop_(dropped->step, dropped->epoch);
      decided_[{dropped->step, dropped->epoch}] = {dropped->text, dropped->again};
    }
    const auto* regroup = std::get_if<control::Regroup>(&message);
    if (regroup != nullptr && tracker_ != nullptr) {
      tracker_->update(regroup->epoch, regroup->replicas);
    }
  }
  changed_.notify_all();
}

void ControlEnd::note(const control::Committed& committed) {
  Decision& decision = decided_[{committed.step, committed.epoch}];
  decision = {};
  if (!committed.arrives || !committed.next_epoch) return;
  decision.arrival = sync::Rejoin{*committed.next_epoch, *committed.arrives};
  if (!turn_) turn_ = Turn{committed.step, *decision.arrival};
}

void ControlEnd::hear(const control::Peers& peers) {
  std::function<void(const control::Peers&)> meet;
  {
    const MutexLock lock(mutex_);
    if (peers_) meet = meet_;
    peers_ = peers.endpoints;
  }
  changed_.notify_all();
  if (meet) meet(peers);
}

void ControlEnd::hear(const control::Admit& admit) {
  Expect expect;
  {
    const MutexLock lock(mutex_);
    expect = expect_;
    if (!expect) early_ = admit;
  }
  if (!expect) return;
  try {
    say(control::Ready{expect(admit), admit.number});
  } catch (const net::LinkError& error) {
    // Without a Ready the coordinator rejects the replica, and this process continues.
    say(control::Event{"not_admitted", fmt::format("cannot listen for replica {}: {}",
                                                   admit.replica, error.what())});
  }
}

}  // namespace strait::worker
