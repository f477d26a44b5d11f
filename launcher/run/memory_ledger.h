#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/run/coordinator_options.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// Which processes have made their part of which checkpoint in memory. A checkpoint is handed to the
// holder when all parts exist, and dropped if a process skipped its part. In both cases every
// process gets a message, at a time when none is writing it. One thread (the coordinator's).
class MemoryLedger {
 public:
  MemoryLedger(Workers& workers, const RunObservers& observers, MemoryHolder* holder)
      : workers_(workers), observers_(observers), holder_(holder) {}

  // base::MessageError: the process has reported it before.
  void add(const Worker& from, const ShardsInMemory& shards);
  // Passes on what was decided, to the processes and the observers. `quiet`: the processes are
  // exiting, so a failed copy is not a problem.
  void poll(bool quiet);

 private:
  struct Open {
    // In the order of a checkpoint on disk: if several processes hold a tensor, the first counts.
    std::map<net::ProcessName, std::vector<store::ShardFile>> parts;
    bool skipped = false;
    std::string problem;
  };
  void decide(const MemoryDecision& decision, bool quiet);

  Workers& workers_;
  const RunObservers& observers_;
  MemoryHolder* holder_;
  std::map<store::Step, Open> open_;
  std::string problem_;   // the last one reported; repetitions are not
  bool failing_ = false;  // a process could not write the last one
};

}  // namespace strait::run
