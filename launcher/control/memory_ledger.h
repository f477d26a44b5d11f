#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/coordinator_options.h"
#include "launcher/control/run_observer.h"

namespace strait::control {

// Which processes have made their part of which checkpoint in memory: one is handed to the holder
// when all have, and given up when one has skipped it. One thread (the coordinator's).
class MemoryLedger {
 public:
  MemoryLedger(Workers& workers, const RunObservers& observers, MemoryHolder* holder)
      : workers_(workers), observers_(observers), holder_(holder) {}

  // base::MessageError: the process has reported it before.
  void add(const Worker& from, const ShardsInMemory& shards);
  // Releases what is decided, and reports to the observers. `quiet`: the processes leave, so a copy
  // that failed is none.
  void poll(bool quiet);

 private:
  struct Open {
    std::vector<MemoryPart> parts;
    bool skipped = false;
  };

  Workers& workers_;
  const RunObservers& observers_;
  MemoryHolder* holder_;
  std::map<store::Step, Open> open_;
  std::string problem_;  // the last one reported; repetitions are not
};

}  // namespace strait::control
