#include "framework/sync/outer_step.h"

#include <fmt/format.h>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr double kOuterRate = 0.7;

}  // namespace

void OuterStep::make(std::span<const float> gradient, std::span<float> outer,
                     std::span<float> reference) const {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    outer[i] = momentum * outer[i] + gradient[i];
    reference[i] -= learning_rate * (gradient[i] + momentum * outer[i]);
  }
}

OuterStep outer_step(const SyncSettings& settings) {
  const double rate = settings.outer_learning_rate.value_or(kOuterRate);
  if (!(rate > 0) || !(settings.outer_momentum >= 0) || !(settings.outer_momentum < 1)) {
    throw SyncError(
        SyncError::Kind::setting,
        fmt::format("an outer step takes a learning rate above 0 and a momentum from 0 to below 1, "
                    "not {} and {}",
                    rate, settings.outer_momentum));
  }
  return {static_cast<float>(rate), static_cast<float>(settings.outer_momentum)};
}

}  // namespace strait::sync
