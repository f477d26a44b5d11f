#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/boundary_step.h"

namespace strait::console {

// The steps of a run, put together by boundary and direction: bytes and counts are summed; change,
// error and what is remembered are those of the latest step.
class BoundaryTotals {
 public:
  void add(std::span<const control::BoundaryStep> step);
  std::vector<control::BoundaryStep> all() const;  // by boundary, activations first

 private:
  std::map<std::pair<std::string, std::string>, control::BoundaryStep> totals_;
};

// A line for the heads of the columns and one for every element; nothing for none. Plain text, the
// same on the console, in `strait status` and in the report.
std::vector<std::string> boundary_table(std::span<const control::BoundaryStep> boundaries);

}  // namespace strait::console
