// The part of ReplicaSync that concerns checkpoints.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stages/replica_sync.h"

namespace strait::stages {
namespace {

// A view of one parameter in a slot.
at::Tensor tensor_over(sync::Slots& slots, const std::string& slot, const sync::Piece& piece) {
  const std::span<std::byte> bytes = slots.bytes(slot, piece.range);
  const bool narrow = bytes.size() != static_cast<std::size_t>(piece.range.count()) * sizeof(float);
  return at::from_blob(bytes.data(), piece.spec.shape, narrow ? at::kBFloat16 : at::kFloat);
}

}  // namespace

void ReplicaSync::show_model(store::Step steps) {
  if (alone()) return;
  before_checkpoint(steps);
  const std::string model = method().traits.model_slot;
  if (model == sync::kWeights) return;
  const std::span<float> weights = slots_->values(sync::kWeights);
  memory_->to_host();
  // The layers read their parameters from these weights, so the model takes their place until
  // hide_model().
  hidden_.assign(weights.begin(), weights.end());
  slots_->load(model, {0, layout_.size()}, weights);
  memory_->to_device(sync::kWeights);
  optimizer_.publish();
}

void ReplicaSync::hide_model() {
  if (alone() || hidden_.empty()) return;
  const std::span<float> weights = slots_->values(sync::kWeights);
  memory_->to_host();  // the copy of the model to a device may still read them
  std::copy(hidden_.begin(), hidden_.end(), weights.begin());
  hidden_ = {};
  memory_->to_device(sync::kWeights);
  optimizer_.publish();
}

bool ReplicaSync::differs() const {
  return !alone() && method().traits.model_slot != sync::kWeights;
}

std::string ReplicaSync::own(const std::string& slot, const std::string& name) const {
  return fmt::format("replica-{}/{}/{}", leader(), slot, name);
}

std::vector<tensors::NamedTensor> ReplicaSync::model() const {
  std::vector<tensors::NamedTensor> tensors;
  for (const AdamW::Slot& slot : optimizer_.slots()) {
    const bool own = !differs();
    tensors.push_back({slot.name, own ? slot.master
                                      : tensor_over(*slots_, method().traits.model_slot,
                                                    layout_.piece(slot.name))});
  }
  return tensors;
}

std::vector<tensors::NamedTensor> ReplicaSync::saved_tensors() const {
  std::vector<tensors::NamedTensor> tensors;
  // All members of a group have the same state.
  if (!leads()) return tensors;
  const bool first = replica_ == members_.members.front();
  const std::string model = alone() ? sync::kWeights : method().traits.model_slot;
  for (tensors::NamedTensor& tensor : stages::saved_tensors(optimizer_)) {
    const auto slot = std::find_if(optimizer_.slots().begin(), optimizer_.slots().end(),
                                   [&](const AdamW::Slot& one) { return one.name == tensor.name; });
    const bool is_weight = slot != optimizer_.slots().end();
    // The plain names belong to the agreed model. A replica's own weights, and the moments of all
    // members but the first, are saved under the replica's prefix.
    if (differs() && (is_weight || !first)) {
      tensors.push_back({own(sync::kWeights, tensor.name), tensor.tensor});
    }
    if (!first) continue;
    // In float32, as in a checkpoint of one replica.
    if (differs() && is_weight) {
      tensor.tensor = tensor_over(*slots_, model, layout_.piece(tensor.name)).to(at::kFloat);
    }
    tensors.push_back(std::move(tensor));
  }
  if (alone()) return tensors;
  for (const sync::SlotNeed& need : slots_->needs()) {
    if (!need.saved || need.name == model) continue;
    for (const AdamW::Slot& slot : optimizer_.slots()) {
      tensors.push_back(
          {own(need.name, slot.name), tensor_over(*slots_, need.name, layout_.piece(slot.name))});
    }
  }
  return tensors;
}

void ReplicaSync::restore(const ReadTensor& read, const HasTensor& has, bool exact) {
  const bool own_state = exact && differs();
  stages::restore(optimizer_, [&](const std::string& name) {
    return own_state && leader() != 0 ? read(own(sync::kWeights, name)) : read(name);
  });
  restored_ = exact;
  if (alone() || !exact) return;
  const at::NoGradGuard no_grad;
  const std::string model = method().traits.model_slot;
  for (const AdamW::Slot& slot : optimizer_.slots()) {
    const sync::Piece& piece = layout_.piece(slot.name);
    if (own_state) {
      slot.master.copy_(read(own(sync::kWeights, slot.name)));
      tensor_over(*slots_, model, piece).copy_(read(slot.name));
    }
    for (const sync::SlotNeed& need : slots_->needs()) {
      if (!need.saved || need.name == model) continue;
      const std::string name = own(need.name, slot.name);
      if (need.optional && !has(name)) continue;
      tensor_over(*slots_, need.name, piece).copy_(read(name));
    }
  }
  optimizer_.publish();
}

}  // namespace strait::stages
