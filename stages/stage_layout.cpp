#include "stages/stage_layout.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/tensors/disk_tensor.h"

namespace strait::stages {

sync::Layout stage_layout(const models::ModelDescription& model,
                          const std::vector<models::LayerRange>& chunks) {
  const std::string& tied = model.layers.back().tied_to;
  const bool has_head = chunks.back().last + 1 == static_cast<int>(model.layers.size());
  const bool apart = !tied.empty() && !(chunks.front().first == 0 && has_head);
  std::vector<sync::PieceSpec> pieces;
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    const bool own = std::ranges::any_of(chunks, [i](const models::LayerRange& layers) {
      return i >= layers.first && i <= layers.last;
    });
    for (const models::TensorShape& tensor : model.layers[static_cast<std::size_t>(i)].tensors) {
      if (!tensor.trained) continue;
      // If its two layers are on different stages, a tied weight is in the layout of the LM head's
      // stage.
      const bool twin = apart && tensor.name == tied;
      if (twin ? has_head : own) pieces.push_back({tensor.name, tensor.shape, twin});
    }
  }
  return sync::Layout(pieces);
}

FlatTensor::FlatTensor(const sync::Layout& layout, const at::TensorOptions& options,
                       at::ScalarType type, const std::filesystem::path& disk_file)
    : whole_(disk_file.empty()
                 ? at::zeros({layout.size()}, options.dtype(type).requires_grad(false))
                 : tensors::disk_zeros({layout.size()}, type, disk_file, "the optimizer")) {}

at::Tensor FlatTensor::of(const sync::Piece& piece) const {
  return whole_.narrow(0, piece.range.first, piece.range.count()).view(piece.spec.shape);
}

}  // namespace strait::stages
