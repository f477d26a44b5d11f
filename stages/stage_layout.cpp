#include "stages/stage_layout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace strait::stages {
namespace {

bool is_same_storage(const at::Tensor& one, const at::Tensor& other) {
  return one.const_data_ptr() == other.const_data_ptr();
}

}  // namespace

sync::Layout stage_layout(const models::Model& model) {
  const models::TiedWeight& tied = model.tied();
  const at::Tensor twin = tied.embedding.defined() == tied.head.defined() ? at::Tensor()
                          : tied.embedding.defined()                      ? tied.embedding
                                                                          : tied.head;
  std::vector<sync::PieceSpec> specs;
  std::vector<at::Tensor> seen;
  for (const models::Parameter& parameter : model.parameters()) {
    const bool again = std::any_of(seen.begin(), seen.end(), [&](const at::Tensor& one) {
      return is_same_storage(one, parameter.value);
    });
    if (again) continue;
    seen.push_back(parameter.value);
    // Both stages know a twin by the name of the weight that is tied, whatever it is called here.
    const bool is_twin = twin.defined() && is_same_storage(twin, parameter.value);
    specs.push_back({parameter.name, parameter.value.sizes().vec(), is_twin});
  }
  return sync::Layout(specs);
}

FlatTensor::FlatTensor(const sync::Layout& layout, const at::TensorOptions& options)
    : whole_(at::zeros({layout.size()}, options.dtype(at::kFloat).requires_grad(false))) {}

at::Tensor FlatTensor::of(const sync::Piece& piece) const {
  return whole_.narrow(0, piece.range.first, piece.range.count()).view(piece.spec.shape);
}

std::span<float> FlatTensor::values() const {
  return {whole_.mutable_data_ptr<float>(), static_cast<std::size_t>(whole_.numel())};
}

}  // namespace strait::stages
