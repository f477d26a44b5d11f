#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/sample.h"

namespace strait::control {

// How long the rest of a run will take, judged by its latest steps. Pure.
class RemainingTime {
 public:
  explicit RemainingTime(store::Step to = {}) : to_(to) {}
  void add(store::Step step, double seconds);
  std::optional<double> seconds() const;  // nothing before the first step

 private:
  store::Step to_;
  store::Step step_{};
  std::vector<double> latest_;  // a ring
  std::size_t next_ = 0;
};

// "0:41", "12:03", "3:07:00"
std::string clock_text(double seconds);

}  // namespace strait::control
