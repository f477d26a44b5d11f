#include "framework/codec/gradient_noise.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace strait::codec {
namespace {

double product(const at::Tensor& a, const at::Tensor& b) {
  return at::dot(a.flatten(), b.flatten()).item<double>();
}

}  // namespace

void GradientNoise::begin_step() {
  compared_ = false;
  if (rows_ >= 2) {
    const auto rows = static_cast<double>(rows_);
    const double square = product(sum_, sum_);
    // The unbiased variance of a row's sum, times the rows of the step.
    const double noise = std::max(0.0, (row_squares_ - square / rows) * rows / (rows - 1));
    measured_.noise_squares += noise;
    // The expected square of a sum contains its noise, so it is subtracted.
    measured_.signal_squares += std::max(0.0, square - noise);
    measured_.gradient_squares += squares_;
  }
  rows_ = 0;
  row_squares_ = 0;
  squares_ = 0;
}

void GradientNoise::add(const at::Tensor& row) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = row.to(at::kFloat);
  const at::Tensor sum = values.sum(0);
  // A row that is not finite is refused by the codec and skipped by the step, so it is not counted.
  const double squares = product(values, values);
  if (!std::isfinite(squares)) return;
  sum_ = rows_ == 0 ? sum : sum_ + sum;
  row_squares_ += product(sum, sum);
  squares_ += squares;
  ++rows_;
}

void GradientNoise::compare(const at::Tensor& row, const at::Tensor& decoded) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = row.to(at::kFloat);
  const double square = product(values, values);
  const double kept = product(values, decoded);
  if (!std::isfinite(square) || !std::isfinite(kept)) return;
  compared_ = true;
  measured_.compared_squares += square;
  measured_.kept_squares += kept;
}

void GradientNoise::add_to(Traffic& traffic) const {
  traffic.noise_squares += measured_.noise_squares;
  traffic.signal_squares += measured_.signal_squares;
  traffic.gradient_squares += measured_.gradient_squares;
  traffic.compared_squares += measured_.compared_squares;
  traffic.kept_squares += measured_.kept_squares;
}

}  // namespace strait::codec
