#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/net/link.h"
#include "launcher/control/outcome.h"
#include "launcher/control/run_observer.h"
#include "launcher/control/watchdog.h"
#include "launcher/process/backend.h"

namespace strait::control {

// One process of the run: what we hold of it.
struct Station {
  net::ProcessName name;
  // The control link to it; null: its replica takes no part when the run begins.
  std::unique_ptr<net::Link> link;
  std::unique_ptr<process::Process> process;  // it was started already; null in tests without processes
  std::string public_key;            // by which others know it
};

// A replica that comes to others which train.
struct Comers {
  std::vector<Station> stations;
  // What each process of the others has to listen on for it: links, each with the address.
  std::map<net::ProcessName, std::map<std::string, std::string>> binds = {};
  std::vector<Event> notes = {};  // what the user has to know of their hosts
};

class ControlRoom;

struct CoordinatorOptions {
  store::Step from{};  // updates already made when this launch begins
  store::Step to{};    // updates to make in all
  std::string build;   // what every process must say it is
  WatchdogLimits limits;
  std::chrono::milliseconds grace{4'000};      // from Abort to kill
  std::chrono::milliseconds farewell{30'000};  // from the last Done to the last exit
  // Replicas that somebody wants to leave, each told once; asked every second. Absent: nobody does.
  std::function<std::vector<std::uint32_t>()> asked_to_leave;
  // Likewise, and to come back.
  std::function<std::vector<std::uint32_t>()> asked_to_return;
  // Starts the processes of a replica that has left, or was never there; nothing holds their former
  // links any more. Called on a thread of its own, for it may take a while; once at a time.
  // UserError: why that cannot be.
  std::function<Comers(std::uint32_t)> bring_back;
  std::chrono::milliseconds admission{60'000};  // for all to answer that a replica may come
  bool outlives_replicas = false;               // where one is lost the others go on
  int missed_checkpoints = 3;                   // in a row; then the run ends
  // Where the other ends of links have to connect to, given where all listen; absent: just there.
  std::function<std::map<std::string, std::string>(std::map<std::string, std::string>)> meet;
  // Makes the checkpoint exist: writes the manifest over the shards of all processes. Throws
  // store::StoreError; the checkpoint is then dropped and training goes on.
  std::function<void(store::Step, const std::vector<store::ShardFile>&)> commit;
};

// The control plane's one end: brings the processes together, collects what they say, commits
// checkpoints, passes on stop requests, and when one fails finds the first cause and ends all the
// others within ten seconds.
//
// `stops` counts what the user asked for, from signal handlers: 1 means finish the step, checkpoint
// and leave; 2 means leave now.
class Coordinator {
 public:
  Coordinator(std::vector<Station> stations, CoordinatorOptions options,
              std::vector<RunObserver*> observers);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator();  // leaves no process and no thread behind

  // From the first hello to the last exit. Once. Errors of the stages are in the outcome; only
  // broken invariants and errors of the observers are thrown, after every process has been ended.
  Outcome run(const std::atomic<int>& stops);

 private:
  std::unique_ptr<ControlRoom> control_;
};

}  // namespace strait::control
