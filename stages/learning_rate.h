#pragma once

#include <cstdint>

namespace strait::stages {

enum class Decay { cosine, linear, constant, inverse_sqrt };

struct LearningRateOptions {
  double peak = 1e-3;
  double least = 0;         // what cosine and linear decays end at
  std::int64_t warmup = 0;  // steps of linear increase; the first step's rate is not zero
  std::int64_t steps =
      1;  // of the whole run; the decay would reach `least` one step after the last
  Decay decay = Decay::cosine;
};

// The learning rate of step `step`, counted from 0. Pure, so that a resumed run needs no state.
double learning_rate(const LearningRateOptions& options, std::int64_t step);

}  // namespace strait::stages
