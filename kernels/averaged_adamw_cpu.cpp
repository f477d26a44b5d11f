#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/averaged_adamw_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/averaged_factors.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

HWY_INLINE Vector all(float value) { return hn::Set(Lanes(), value); }

// A moment with a new value added.
HWY_INLINE Vector mixed(Vector moment, Vector value, float beta) {
  return hn::Add(hn::Mul(moment, all(beta)), hn::Mul(value, all(1 - beta)));
}

void averaged_update(float* weights, const float* gradient, float* first, float* second,
                     std::int64_t count, const AveragedFactors& by) {
  for (std::int64_t i = 0; i < count; i += lane_count()) {
    const std::int64_t left = count - i;
    const Vector g = load_upto(gradient + i, left);
    const Vector m = mixed(load_upto(first + i, left), g, by.beta1);
    const Vector v = mixed(load_upto(second + i, left), hn::Mul(g, g), by.beta2);
    store_upto(m, first + i, left);
    store_upto(v, second + i, left);
    const Vector mean = hn::Mul(m, all(by.first));
    const Vector square = hn::Mul(v, all(by.second));
    const Vector spread = hn::Max(hn::Sub(square, hn::Mul(mean, mean)), hn::Zero(Lanes()));
    const Vector least = hn::Mul(square, all(1 - by.most));
    const Vector clean = hn::Sub(square, hn::Mul(spread, all(by.noise)));
    // A comparison with NaN is false: if squares are infinite the step is zero, as in AdamW.
    const Vector left_over = hn::IfThenElse(hn::Gt(clean, least), clean, least);
    const Vector size = hn::Add(hn::Sqrt(left_over), all(by.epsilon));
    const Vector kept = hn::Mul(load_upto(weights + i, left), all(by.keep));
    store_upto(hn::Sub(kept, hn::Div(hn::Mul(mean, all(by.step)), size)), weights + i, left);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(averaged_update);

void cpu::averaged_adamw(float* weights, const float* gradient, float* first_moment,
                         float* second_moment, std::int64_t count, const AveragedFactors& by) {
  HWY_DYNAMIC_DISPATCH(averaged_update)
  (weights, gradient, first_moment, second_moment, count, by);
}

}  // namespace strait::kernels
#endif
