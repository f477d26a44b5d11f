#include <algorithm>
#include <cmath>
#include <numbers>

#include "stages/adamw.h"

namespace strait::stages {

double learning_rate(const LearningRateOptions& options, std::int64_t step) {
  if (step < options.warmup) {
    // The first step already has a rate: step 0 of a warmup is not wasted.
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  }
  const auto rest = static_cast<double>(std::max<std::int64_t>(options.steps - options.warmup, 1));
  const double progress = std::min(static_cast<double>(step - options.warmup) / rest, 1.0);
  const double range = options.peak - options.least;
  // As in transformers: by the warm-up, or 10,000 steps without one.
  const double scale = options.warmup > 0 ? static_cast<double>(options.warmup) : 10'000.0;
  switch (options.decay) {
    case Decay::cosine:
      return options.least + range * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case Decay::linear:
      return options.least + range * (1.0 - progress);
    case Decay::inverse_sqrt:
      return options.peak / std::sqrt(static_cast<double>(step - options.warmup) / scale + 1.0);
    case Decay::constant:
      break;
  }
  return options.peak;
}

}  // namespace strait::stages
