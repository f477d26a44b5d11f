#include "launcher/control/remaining_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strait::control {
namespace {

constexpr std::size_t kLatest = 32;

}  // namespace

void RemainingTime::add(store::Step step, double seconds) {
  step_ = step;
  if (latest_.size() < kLatest) {
    latest_.push_back(seconds);
  } else {
    latest_[next_] = seconds;
  }
  next_ = (next_ + 1) % kLatest;
}

std::optional<double> RemainingTime::seconds() const {
  if (latest_.empty()) return std::nullopt;
  // The median: one step with a checkpoint or an evaluation in it says nothing of the others.
  std::vector<double> sorted = latest_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const auto left = std::max<std::int64_t>(0, store::number(to_) - store::number(step_));
  return static_cast<double>(left) * *middle;
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  constexpr double kMost = 1e9;
  const auto whole = std::int64_t{std::lround(std::min(seconds, kMost))};
  const std::int64_t hours = whole / 3600;
  const std::int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace strait::control
