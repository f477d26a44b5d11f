#pragma once

#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/broken_paths.h"
#include "launcher/control/checkpoint_ledger.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/crew.h"
#include "launcher/control/first_cause.h"
#include "launcher/control/replica_circle.h"
#include "launcher/control/station_inbox.h"
#include "launcher/control/step_ledger.h"

namespace strait::control {

// What a Coordinator has: the processes of one run from the first hello to the last exit, and all
// that is known of them. One thread.
class ControlRoom {
 public:
  ControlRoom(std::vector<Station> stations, CoordinatorOptions options,
              std::vector<RunObserver*> observers)
      : crew_(std::move(stations)),
        options_(std::move(options)),
        observers_(std::move(observers)),
        inbox_(links()),
        steps_(crew_.present()),
        checkpoints_(crew_.present().size()),
        watchdog_(crew_.names(), options_.limits, std::chrono::steady_clock::now()),
        circle_(crew_.present(), options_.outlives_replicas),
        last_step_(options_.from) {}

  Outcome run(const std::atomic<int>& stops);

 private:
  enum class Phase { connecting, training, leaving, breaking };

  std::vector<net::Link*> links() {
    std::vector<net::Link*> links;
    for (CrewMember& member : crew_.members()) links.push_back(member.station.link.get());
    return links;
  }
  template <class... Arguments, class... Given>
  void observe(void (RunObserver::*what)(Arguments...), const Given&... given) {
    for (RunObserver* observer : observers_) (observer->*what)(given...);
  }

  // Where the ends of all links are.
  Peers peers() const {
    return {options_.meet ? options_.meet(crew_.endpoints()) : crew_.endpoints()};
  }
  void open(const Letter& letter);
  void hear(CrewMember& from, const Hello& hello);
  void hear(CrewMember& from, const Ready& ready);
  void hear(CrewMember& from, const Progress& progress);
  void hear(CrewMember& from, const StepDone& done);
  void hear(CrewMember& from, const Evaluated& evaluated);
  void hear(CrewMember& from, const ShardsWritten& shards);
  void hear(CrewMember& from, const ShardFailed& failed);
  void hear(CrewMember& from, const Event& event);
  void hear(CrewMember& from, const LostReplica& lost);
  void hear(CrewMember& from, const Failed& failed);
  void hear(CrewMember& from, const Done& done);

  // Whether that was written by those who take part now; otherwise they are told to do it again.
  bool of_this_epoch(store::Step step, std::uint32_t epoch);
  void commit(store::Step step, const std::vector<store::ShardFile>& files);
  void drop(store::Step step, const Finding& why);
  void check_ends();
  void check_stops(int stops);
  void check_watchdog();
  void check_done();
  void let_leave();
  void report();
  void blame(const CrewMember& member, base::ExitCode code, const std::string& text, bool effect);
  void fail(const Finding& finding);
  // The run goes on without that process's replica.
  void part_with(const Finding& finding);

  // A replica that comes (back), step by step: its hosts are called and its processes started; when
  // all of these have bound their links, the others do so for it; when all of them have, everybody
  // connects, and the next checkpoint is the moment from which it takes part.
  struct Comeback {
    enum class Step { calling, starting, admitting, waiting };
    std::uint32_t replica = 0;
    Step step = Step::calling;
    std::map<net::ProcessName, std::map<std::string, std::string>> binds;  // of the others
    std::uint32_t number = 0;               // of the Admit, once the others are asked
    std::set<net::ProcessName> unanswered;  // of the others, while they are asked
    std::chrono::steady_clock::time_point deadline;
  };
  void look_for_returns();
  void begin_comeback(std::uint32_t replica);
  void look_for_comers();
  void take_in(Comers comers);
  void go_on_with_comeback();
  void ask_others();
  void tell_who_is_absent();
  void hear_of_comeback(CrewMember& from, const Ready& ready);
  // Where somebody comes: this checkpoint, which all of the others have made, lets it in.
  void let_in(Committed& committed);
  void turn_away(const std::string& why);
  void ask_for_checkpoint();
  bool over();
  Outcome outcome() const;

  Crew crew_;
  const CoordinatorOptions options_;
  const std::vector<RunObserver*> observers_;
  StationInbox inbox_;  // after crew_: its threads end before the links do
  StepLedger steps_;
  CheckpointLedger checkpoints_;
  Watchdog watchdog_;
  ReplicaCircle circle_;
  BrokenPaths broken_paths_;            // between those who take part
  std::vector<std::uint32_t> returns_;  // that are asked for
  std::optional<Comeback> comeback_;    // one at a time
  std::uint32_t admissions_ = 0;        // that were asked for
  std::uint32_t wishes_ = 0;            // for checkpoints
  FirstCause first_cause_;
  Phase phase_ = Phase::connecting;
  std::chrono::steady_clock::time_point deadline_;  // leaving, breaking: for the last process to go
  std::chrono::steady_clock::time_point reported_;
  store::Step last_step_;
  std::optional<store::Step> last_checkpoint_;
  std::optional<store::Step> last_evaluation_;
  std::optional<Finding> last_drop_;  // no checkpoint succeeded since
  int missed_ = 0;
  int stops_heard_ = 0;
  std::future<Comers> called_;  // last: whoever is still being called is waited for, and ended
};

}  // namespace strait::control
