#pragma once

#include <future>

#include "framework/net/inbox.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/membership.h"
#include "launcher/run/watchdog.h"
#include "launcher/run/workers.h"

namespace strait::run {

// Brings an absent replica into a running run, one at a time:
//   starting   options.start_replica runs on its own thread
//   binding    its processes load weights and bind their links (Ready)
//   admitting  the present workers bind their links to it (Admit, answered by Ready)
//   waiting    all have the endpoints; it becomes a member at the next checkpoint
// A failure on the way, or cancel(), evicts its processes again; the run is not disturbed.
//
// One thread (the coordinator's). The destructor makes start_replica give up, and waits for it.
class Rejoin {
 public:
  Rejoin(Workers& workers, net::Inbox& inbox, Watchdog& watchdog, const Membership& membership,
         const RunObservers& observers, const CoordinatorOptions& options)
      : workers_(workers),
        inbox_(inbox),
        watchdog_(watchdog),
        membership_(membership),
        observers_(observers),
        options_(options) {}
  ~Rejoin() { given_up_ = true; }
  Rejoin(const Rejoin&) = delete;
  Rejoin& operator=(const Rejoin&) = delete;

  // Reads new requests, and starts the oldest one if none is in progress. `stopping`: requests
  // fail, because the run is about to stop.
  void poll_requests(bool stopping);
  // Takes over the processes that start_replica has started meanwhile. `training`: the run has not
  // ended.
  void poll_started(bool training);
  // A Ready that arrived while training.
  void on_ready(Worker& from, const Ready& ready);
  // Replicas that have left need not answer any more.
  void on_membership_changed() { advance(); }
  // The checkpoint at which the replica was to join failed: requests another one.
  void on_checkpoint_dropped();

  // The replica that can join at the current checkpoint; its rejoin is then finished.
  std::optional<std::uint32_t> take_waiting();
  void cancel(const std::string& why);

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { starting, binding, admitting, waiting };
  struct Current {
    std::uint32_t replica = 0;
    State state = State::starting;
    // See StartedReplica::binds.
    std::map<net::ProcessName, std::map<std::string, std::string>> binds = {};
    // The number of its Admit.
    std::uint32_t number = 0;
    // Present workers that have not answered the Admit.
    std::set<net::ProcessName> unanswered = {};
    // The deadline for these answers.
    Time deadline = {};
  };

  void begin(std::uint32_t replica, bool stopping);
  void add_workers(StartedReplica started);
  void advance();
  void send_admits();
  void request_checkpoint();

  Workers& workers_;
  net::Inbox& inbox_;
  Watchdog& watchdog_;
  const Membership& membership_;
  const RunObservers& observers_;
  const CoordinatorOptions& options_;
  // Requested replicas, oldest first.
  std::vector<std::uint32_t> requests_;
  std::optional<Current> current_;
  // Every Admit and every request to save has its own number, so that late answers to a cancelled
  // rejoin are recognised.
  std::uint32_t admits_ = 0;
  std::uint32_t checkpoint_requests_ = 0;
  std::atomic<bool> given_up_ = false;  // read by start_replica
  // Outlives a cancelled `current_`: start_replica ends a little later.
  std::future<StartedReplica> started_;
};

}  // namespace strait::run
