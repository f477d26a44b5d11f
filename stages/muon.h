#pragma once

#include <ATen/core/Tensor.h>

#include "models/model_description.h"

namespace strait::stages {

// Muon updates matrices of blocks: by the momentum of their gradients, whose singular values are
// brought to about 1 (Jordan et al. 2024), and scaled as large as AdamW's updates are (Liu et al.
// 2025), so that AdamW's learning rate and weight decay fit. torch.optim.Muon with
// adjust_lr_fn = "match_rms_adamw" does the same.

// The trained matrices of these layers that Muon updates: the ones of blocks with two dimensions.
// Embeddings, LM head, vectors and experts that are stored together are AdamW's.
std::vector<models::TensorShape> muon_matrices(const models::ModelDescription& model,
                                               const models::LayerRange& layers);

// Operations of an update of a matrix of this shape.
double muon_flops(const std::vector<std::int64_t>& shape);

// All float32, of one shape and device. `momentum` changes too. The same bits whatever else the
// stage holds. Products are in float32 on a CPU and in bfloat16 elsewhere.
void muon_update(const at::Tensor& weights, const at::Tensor& gradient, const at::Tensor& momentum,
                 double learning_rate, double weight_decay);

}  // namespace strait::stages
