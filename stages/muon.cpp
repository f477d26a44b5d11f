#include "stages/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace strait::stages {
namespace {

constexpr double kMomentum = 0.95;
constexpr int kIterations = 5;
// Of a quintic whose iterations bring every singular value from (0, 1] near 1.
constexpr double kLinear = 3.4445;
constexpr double kCubic = -4.7750;
constexpr double kQuintic = 2.0315;
constexpr double kLeastNorm = 1e-7;
constexpr double kRmsOfAdamW = 0.2;

// About U V^T of the singular value decomposition.
at::Tensor orthogonal(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor near = matrix.is_cpu() ? matrix : matrix.to(at::kBFloat16);
  if (tall) near = near.t();
  near = near / near.norm().clamp_min(kLeastNorm);
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = near.mm(near.t());
    near = at::addmm(near, at::addmm(gram, gram, gram, kCubic, kQuintic), near, kLinear);
  }
  return (tall ? near.t() : near).to(at::kFloat);
}

}  // namespace

std::vector<models::TensorShape> muon_matrices(const models::ModelDescription& model,
                                               const models::LayerRange& layers) {
  std::vector<models::TensorShape> matrices;
  const int head = static_cast<int>(model.layers.size()) - 1;
  for (int i = std::max(layers.first, 1); i <= std::min(layers.last, head - 1); ++i) {
    for (const models::TensorShape& tensor : model.layers[static_cast<std::size_t>(i)].tensors) {
      if (tensor.trained && tensor.shape.size() == 2) matrices.push_back(tensor);
    }
  }
  return matrices;
}

double muon_flops(const std::vector<std::int64_t>& shape) {
  const auto [least, most] =
      std::minmax({static_cast<double>(shape[0]), static_cast<double>(shape[1])});
  return kIterations * 2 * least * least * (2 * most + least);
}

void muon_update(const at::Tensor& weights, const at::Tensor& gradient, const at::Tensor& momentum,
                 double learning_rate, double weight_decay) {
  momentum.lerp_(gradient, 1 - kMomentum);
  const at::Tensor ahead = at::lerp(gradient, momentum, kMomentum);  // Nesterov's
  const auto longest = static_cast<double>(std::max(weights.size(0), weights.size(1)));
  weights.mul_(1 - learning_rate * weight_decay);
  weights.add_(orthogonal(ahead), -learning_rate * kRmsOfAdamW * std::sqrt(longest));
}

}  // namespace strait::stages
