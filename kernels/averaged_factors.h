#pragma once

#include "kernels/averaged_adamw.h"

namespace strait::kernels {

// The factors of an update that are the same for all elements, in the elements' type.
struct AveragedFactors {
  explicit AveragedFactors(const AveragedAdamW& how);

  float beta1, beta2;
  float keep;  // factor of a weight after decay
  float step;
  float epsilon;
  float first, second;  // corrections of the moments for their start
  float noise;          // fraction of v - m² by which v is reduced
  float most;           // upper limit for the reduction, as a fraction of v
};

namespace cpu {
void averaged_adamw(float* weights, const float* gradient, float* first_moment,
                    float* second_moment, std::int64_t count, const AveragedFactors& by);
}  // namespace cpu

}  // namespace strait::kernels
