#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "launcher/run/step_ledger.h"

namespace strait::run {

// Names steps that take ten times the median of the latest ones, with the cores that other programs
// used meanwhile. Of several in a row only the first. Pure: no clock, no file.
class SlowSteps {
 public:
  struct Host {
    std::string name;
    std::int64_t cores = 0;  // 0: unknown
  };
  explicit SlowSteps(std::map<net::ProcessName, Host> hosts) : hosts_(std::move(hosts)) {}

  std::string add(const StepLine& line);  // empty: nothing to report

 private:
  std::string load(const StepLine& line) const;

  const std::map<net::ProcessName, Host> hosts_;  // by process
  RecentMedian seconds_{64};
  std::int64_t steps_ = 0;
  bool slow_ = false;  // of the latest step
};

}  // namespace strait::run
