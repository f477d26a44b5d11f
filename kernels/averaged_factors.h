#pragma once

#include <cstdint>

#include "kernels/averaged_adamw.h"

namespace strait::kernels {

// What is the same for all elements of an update, in the elements' arithmetic.
struct AveragedFactors {
  explicit AveragedFactors(const AveragedAdamW& how);

  float beta1, beta2;
  float keep;  // of a weight, decayed
  float step;
  float epsilon;
  float first, second;  // the moments' corrections for their start
  float noise;          // of v - m²: what of the noise goes
  float most;           // of v: no more than that
};

namespace cpu {
void averaged_adamw(float* weights, const float* gradient, float* first_moment,
                    float* second_moment, std::int64_t count, const AveragedFactors& by);
}  // namespace cpu

}  // namespace strait::kernels
