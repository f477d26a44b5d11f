#pragma once

#include <ATen/core/Tensor.h>

#include "framework/codec/traffic.h"

namespace strait::codec {

// Measures how much a step's gradient depends on which rows the step happened to have. `auto`
// compares the error of encoded gradients with this noise. It is measured on the gradient of a bias
// at the boundary, which is a sum over tokens: a row's sum is one draw, and the spread of a step's
// draws is the noise of their sum. One thread.
class GradientNoise {
 public:
  // Ends a step; a step with fewer than two rows is not counted. Called before the first row of the
  // next step.
  void begin_step();
  // A row [tokens, width] of any floating type, before it is encoded.
  void add(const at::Tensor& row);
  // Whether a row of this step is still needed for compare(): one per step is enough.
  bool wants_comparison() const { return !compared_; }
  // That row and what its bytes decode to, float32.
  void compare(const at::Tensor& row, const at::Tensor& decoded);

  // Adds the measurements of all finished steps.
  void add_to(Traffic& traffic) const;

 private:
  at::Tensor sum_;          // of the step's rows, [width]
  std::int64_t rows_ = 0;   // of the step
  double row_squares_ = 0;  // of the sums of the rows
  double squares_ = 0;      // of all values of the step
  bool compared_ = false;   // in the step
  Traffic measured_;
};

}  // namespace strait::codec
