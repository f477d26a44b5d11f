#pragma once

#include "framework/trace/metric.h"
#include "launcher/recipe/plan.h"
#include "launcher/run/step_ledger.h"

namespace strait::run {

// Seconds of a step that the plan forecasts of a part, and that the run measures.
struct PartSeconds {
  std::string part;
  double forecast = 0;
  std::optional<double> measured;  // absent: not known
  bool operator==(const PartSeconds&) const = default;
};

// Compares the parts of a plan's step with what the latest steps measure. Values are medians of
// these steps. Waiting for rounds of replicas, which some methods do once in many steps, is a mean
// of all steps; the step and its waiting are medians without that, plus that mean. Says once when a
// step differs from its forecast by a quarter. Pure: no clock, no file.
class ForecastCheck {
 public:
  explicit ForecastCheck(const plan::Plan& plan)
      : parts_(plan.parts), epoch_steps_(plan.epoch_steps), seen_(parts_.size()) {}

  // A sentence, if this step is the one that decides; else empty.
  std::string add(const StepLine& line);
  // The whole step, then its parts, those that part most first. Empty: no step counts yet.
  std::vector<PartSeconds> table() const;

  // The latest steps that count, and the first steps of a launch, which do not.
  static constexpr std::size_t kWindow = 8;
  static constexpr std::int64_t kWarmUp = 2;

 private:
  struct Seen {
    std::deque<double> latest;  // at most kWindow
    double sum = 0;
    std::int64_t count = 0;
  };

  std::optional<double> measured(std::size_t part) const;
  double rounds() const;  // mean waiting of a step for rounds of replicas
  double forecast(std::size_t part) const {
    return first_epoch_ ? parts_[part].first_epoch_seconds : parts_[part].seconds;
  }
  // Of the parts that explain a longer (or shorter) step, the one that differs most.
  std::optional<std::size_t> cause(double missing) const;
  std::string sentence() const;

  const std::vector<plan::StepPart> parts_;
  const std::int64_t epoch_steps_;
  std::vector<Seen> seen_;  // by part
  std::int64_t steps_ = 0;
  bool first_epoch_ = true;  // of the steps in seen_
  bool said_ = false;
};

}  // namespace strait::run

namespace strait::trace {

inline double part_ratio(const run::PartSeconds& row) {
  return row.measured && row.forecast > 0 ? *row.measured / row.forecast
                                          : std::numeric_limits<double>::quiet_NaN();
}

template <>
inline constexpr std::tuple kMetrics<run::PartSeconds> = {
    metric(&run::PartSeconds::part, {.key = "part",
                                     .unit = Unit::name,
                                     .combine = Combine::key,
                                     .meaning = "of a step; the first one is the whole step",
                                     .column = "part of a step"}),
    metric(&run::PartSeconds::forecast, {.key = "forecast_seconds",
                                         .unit = Unit::seconds,
                                         .combine = Combine::latest,
                                         .meaning = "by the plan",
                                         .column = "forecast"}),
    metric(&run::PartSeconds::measured,
           {.key = "measured_seconds",
            .unit = Unit::seconds,
            .combine = Combine::latest,
            .meaning = "median of the latest steps; rounds of replicas: mean",
            .column = "measured"}),
    column<run::PartSeconds>({.unit = Unit::ratio, .column = "ratio"}, part_ratio)};

}  // namespace strait::trace
