#include "stages/sync_memory.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/current_stream.h"

namespace strait::stages {
namespace {

// A sync method sees float32 moments or none.
at::Tensor visible(const AdamW& optimizer, const at::Tensor& moments) {
  return optimizer.has_float_moments() ? moments : at::empty({0}, optimizer.masters().options());
}

c10::Event recorded_on(at::Device device) {
  c10::Event event(device.type());
  event.record(kernels::current_stream(device));
  return event;
}

}  // namespace

SyncMemory::SyncMemory(const AdamW& optimizer, const Gradients& gradients,
                       const std::vector<std::string>& used)
    : slots_{{{sync::kWeights, optimizer.masters(), {}},
              {sync::kGradient, gradients.values(), {}},
              {sync::kFirstMoment, visible(optimizer, optimizer.first_moments()), {}},
              {sync::kSecondMoment, visible(optimizer, optimizer.second_moments()), {}}}} {
  for (Slot& slot : slots_) {
    // There is no gradient before the first step.
    slot.changed = slot.name != sync::kGradient;
    slot.used = std::ranges::find(used, slot.name) != used.end();
    // Weights are compared with those of other replicas. Memory that is never touched takes no room
    // unless it is pinned.
    const bool pinned = slot.is_copy() && (slot.used || slot.name == sync::kWeights);
    const auto host = at::TensorOptions(at::kFloat).pinned_memory(pinned);
    slot.host = slot.is_copy() ? at::empty(slot.device.sizes(), host) : slot.device;
  }
}

at::Device SyncMemory::device() const {
  return std::ranges::find(slots_, sync::kGradient, &Slot::name)->device.device();
}

std::span<float> SyncMemory::span_of(std::string_view name) const {
  const auto found = std::ranges::find(slots_, name, &Slot::name);
  return {found->host.mutable_data_ptr<float>(), static_cast<std::size_t>(found->host.numel())};
}

sync::StageMemory SyncMemory::spans() const {
  return {span_of(sync::kWeights), span_of(sync::kGradient), span_of(sync::kFirstMoment),
          span_of(sync::kSecondMoment)};
}

std::span<float> SyncMemory::pin_gradient() {
  Slot& slot = *std::ranges::find(slots_, sync::kGradient, &Slot::name);
  if (slot.is_copy() && !slot.host.is_pinned()) {
    slot.host = at::empty(slot.device.sizes(), at::TensorOptions(at::kFloat).pinned_memory(true));
  }
  return span_of(sync::kGradient);
}

void SyncMemory::changed(std::string_view name) {
  std::ranges::find(slots_, name, &Slot::name)->changed = true;
}

void SyncMemory::state_changed() {
  changed(sync::kWeights);
  changed(sync::kFirstMoment);
  changed(sync::kSecondMoment);
}

void SyncMemory::copy_weights(const Slot& slot, const std::vector<sync::Range>& ranges) {
  for (const sync::Range& range : ranges) {
    slot.host.narrow(0, range.first, range.count())
        .copy_(slot.device.narrow(0, range.first, range.count()), /*non_blocking=*/true);
  }
}

void SyncMemory::begin_to_host(const std::vector<sync::Range>& of_weights) {
  // A copy that is up to date may be read by a round in progress, so it is not written again.
  const Slot& weights = slots_.front();
  if (!weights.is_copy() || !weights.changed) return;
  const at::NoGradGuard no_grad;
  copy_weights(weights, of_weights);
  downloaded_.emplace(recorded_on(device()));
}

void SyncMemory::wait_for_weights() const {
  if (downloaded_) downloaded_->synchronize();
}

void SyncMemory::to_host(bool all, const std::vector<sync::Range>& of_weights) {
  if (!is_copy()) return;
  const at::NoGradGuard no_grad;
  bool copied = false;
  for (Slot& slot : slots_) {
    if (!slot.changed || !slot.is_copy()) continue;
    if (slot.used || all) {
      slot.host.copy_(slot.device, /*non_blocking=*/true);
      slot.changed = false;
      copied = true;
    } else if (slot.name == sync::kWeights) {
      copy_weights(slot, of_weights);
      copied = copied || !of_weights.empty();
    }
  }
  // The caller reads and changes the host's memory, so no copy may be in progress in either
  // direction. Both directions run on one stream.
  if (copied) {
    recorded_on(device()).synchronize();
  } else if (uploaded_) {
    uploaded_->synchronize();
  }
  uploaded_.reset();
}

void SyncMemory::to_host(std::string_view name) {
  Slot& slot = *std::ranges::find(slots_, name, &Slot::name);
  if (!slot.is_copy()) return;
  const at::NoGradGuard no_grad;
  slot.host.copy_(slot.device, /*non_blocking=*/true);
  recorded_on(slot.device.device()).synchronize();
  slot.changed = false;
}

void SyncMemory::upload(Slot& slot) {
  if (!slot.is_copy()) return;
  const at::NoGradGuard no_grad;
  slot.device.copy_(slot.host, /*non_blocking=*/true);
  slot.changed = false;
  uploaded_.emplace(recorded_on(slot.device.device()));
}

void SyncMemory::to_device() {
  for (Slot& slot : slots_) {
    if (slot.used) upload(slot);
  }
}

void SyncMemory::all_to_device() {
  for (Slot& slot : slots_) upload(slot);
}

void SyncMemory::to_device(std::string_view name) {
  upload(*std::ranges::find(slots_, name, &Slot::name));
}

}  // namespace strait::stages
