#include "framework/sync/outer_step.h"

#include <cmath>

#include "framework/sync/sync_error.h"

namespace strait::sync {

void OuterStep::make(std::span<const float> gradient, std::span<float> outer,
                     std::span<float> reference) const {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    reference[i] += change(gradient[i], outer[i]);
  }
}

std::optional<double> MeanDistance::share() const {
  Squares all;
  for (const Squares& one : squares_) {
    all.apart += one.apart;
    all.mean += one.mean;
  }
  if (all.mean <= 0) return std::nullopt;
  return std::sqrt(all.apart / all.mean);
}

std::vector<float> change_from_reference(const Slots& slots, Range range) {
  const auto reference = within(slots.values(kReference), range);
  const auto weights = within(slots.values(kWeights), range);
  std::vector<float> change(reference.size());
  for (std::size_t i = 0; i < change.size(); ++i) change[i] = reference[i] - weights[i];
  return change;
}

OuterStep outer_step(const SyncSettings& settings, const OuterStep& usual) {
  OuterStep step = usual;
  if (settings.outer_learning_rate) {
    step.learning_rate = static_cast<float>(*settings.outer_learning_rate);
  }
  if (settings.outer_momentum) step.momentum = static_cast<float>(*settings.outer_momentum);
  if (!(step.learning_rate > 0) || !(step.momentum >= 0) || !(step.momentum < 1)) {
    throw SyncError(SyncError::Kind::setting,
                    "{}: outer_learning_rate is {} and outer_momentum is {}; the rate "
                    "must be above 0, the momentum from 0 to below 1",
                    settings.method, step.learning_rate, step.momentum);
  }
  return step;
}

}  // namespace strait::sync
