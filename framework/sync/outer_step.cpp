#include "framework/sync/outer_step.h"

#include <fmt/format.h>

#include "framework/sync/sync_error.h"

namespace strait::sync {

void OuterStep::make(std::span<const float> gradient, std::span<float> outer,
                     std::span<float> reference) const {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    outer[i] = momentum * outer[i] + gradient[i];
    reference[i] -= learning_rate * (gradient[i] + momentum * outer[i]);
  }
}

OuterStep outer_step(const SyncSettings& settings) {
  if (!(settings.outer_learning_rate > 0) || !(settings.outer_momentum >= 0) ||
      !(settings.outer_momentum < 1)) {
    throw SyncError(
        SyncError::Kind::setting,
        fmt::format("an outer step takes a learning rate above 0 and a momentum from 0 to below 1, "
                    "not {} and {}",
                    settings.outer_learning_rate, settings.outer_momentum));
  }
  return {static_cast<float>(settings.outer_learning_rate),
          static_cast<float>(settings.outer_momentum)};
}

}  // namespace strait::sync
