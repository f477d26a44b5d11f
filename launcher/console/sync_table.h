#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "launcher/control/sync_step.h"

namespace strait::console {

// The steps of a run, summed by process.
class SyncTotals {
 public:
  void add(std::span<const control::SyncStep> step);
  std::vector<control::SyncStep> all() const;  // by process

 private:
  std::map<std::string, control::SyncStep> totals_;
};

// A line for the heads of the columns and one for every process; nothing for none. Plain text, the
// same on the console, in `strait status` and in the report.
std::vector<std::string> sync_table(std::span<const control::SyncStep> processes);

}  // namespace strait::console
