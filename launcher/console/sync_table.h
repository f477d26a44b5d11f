#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "launcher/control/sync_step.h"

namespace strait::launcher {

// The steps of a run, summed by process.
class SyncTotals {
 public:
  void add(std::span<const SyncStep> step);
  std::vector<SyncStep> all() const;  // by process

 private:
  std::map<std::string, SyncStep> totals_;
};

// A line for the heads of the columns and one for every process; nothing for none. Plain text, the
// same on the console, in `strait status` and in the report.
std::vector<std::string> sync_table(std::span<const SyncStep> processes);

}  // namespace strait::launcher
