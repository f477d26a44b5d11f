#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/token_choice_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <vector>

// clang-format off: highway.h comes first
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "kernels/lanes-inl.h"
#include "kernels/random.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Tokens whose weights are added in float32: few, so that the sum of all is as good as float64's.
constexpr std::int64_t kBlock = 256;

HWY_INLINE Vector weights_at(const float* logits, std::int64_t count, Vector most,
                             Vector temperature) {
  const Vector values = hn::Sub(load_upto(logits, count), most);
  return hn::Exp(Lanes(), hn::Div(values, temperature));
}

HWY_INLINE float largest_of(std::span<const float> logits) {
  Vector most = hn::Set(Lanes(), logits.front());
  const std::int64_t count = std::ssize(logits);
  std::int64_t i = 0;
  for (; i + lane_count() <= count; i += lane_count()) {
    most = hn::Max(most, load_lanes(logits.data() + i));
  }
  float largest = hn::GetLane(hn::MaxOfLanes(Lanes(), most));
  for (; i < count; ++i) largest = std::max(largest, logits[static_cast<std::size_t>(i)]);
  return largest;
}

// Of the tokens of a block, in `weights`, which has room for whole vectors; returns their sum.
HWY_INLINE float weigh_block(std::span<const float> logits, Vector most, Vector temperature,
                             float* weights) {
  const std::int64_t count = std::ssize(logits);
  for (std::int64_t i = 0; i < count; i += lane_count()) {
    store_lanes(weights_at(logits.data() + i, count - i, most, temperature), weights + i);
  }
  Vector sums = hn::Zero(Lanes());
  for (std::int64_t i = 0; i < count; i += lane_count()) {
    sums = hn::Add(sums, load_upto(weights + i, count - i));
  }
  return sum_of(sums);
}

std::int64_t draw_among(std::span<const float> logits, double temperature, double chance) {
  const Vector most = hn::Set(Lanes(), largest_of(logits));
  const Vector divisor = hn::Set(
      Lanes(), std::max(static_cast<float>(temperature), std::numeric_limits<float>::min()));
  HWY_ALIGN float weights[kBlock + kMostLanes];
  const std::int64_t count = std::ssize(logits);
  const auto block_at = [&](std::int64_t block) {
    const std::int64_t first = block * kBlock;
    return logits.subspan(static_cast<std::size_t>(first),
                          static_cast<std::size_t>(std::min(kBlock, count - first)));
  };
  std::vector<double> sums;
  double sum = 0;
  for (std::int64_t block = 0; block * kBlock < count; ++block) {
    sums.push_back(weigh_block(block_at(block), most, divisor, weights));
    sum += sums.back();
  }
  double left = chance * sum;
  std::size_t block = 0;
  while (block + 1 < sums.size() && left >= sums[block]) left -= sums[block++];
  const auto chosen = static_cast<std::int64_t>(block);
  const std::span<const float> own = block_at(chosen);
  weigh_block(own, most, divisor, weights);
  std::size_t token = 0;
  while (token + 1 < own.size() && left >= weights[token]) left -= weights[token++];
  return chosen * kBlock + static_cast<std::int64_t>(token);
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(draw_among);

std::int64_t cpu::draw_token(std::span<const float> logits, double temperature, double chance) {
  return HWY_DYNAMIC_DISPATCH(draw_among)(logits, temperature, chance);
}

}  // namespace strait::kernels
#endif
