#pragma once

#include <c10/core/Event.h>

#include <array>

#include "framework/sync/slots.h"
#include "stages/adamw.h"
#include "stages/gradients.h"

namespace strait::stages {

// Weights, gradient and moments of a stage for the sync engine, in host memory. What is there in
// any case, as all of it on the CPU or an off-loaded optimizer's state, is the stage's own memory,
// and the calls below do nothing with it. What is on another device is a copy. It is updated from
// the device when a round begins, and copied to the device when a round has changed it. Used by the
// compute thread; no other thread reads a slot while it is copied.
class SyncMemory {
 public:
  // `used`: the slots that the sync method reads or changes.
  SyncMemory(const AdamW& optimizer, const Gradients& gradients,
             const std::vector<std::string>& used);

  sync::StageMemory spans() const;
  // Of the gradient, at least.
  bool is_copy() const { return !device().is_cpu(); }

  // The stage has changed the gradient; the weights and moments.
  void gradient_changed() { changed(sync::kGradient); }
  void state_changed();
  // Copies what the stage has changed to the host, and waits: the used slots, and these ranges of
  // the weights if the weights are not used; or everything.
  void to_host(const std::vector<sync::Range>& of_weights = {}) { to_host(false, of_weights); }
  void all_to_host() { to_host(true, {}); }
  void to_host(std::string_view name);  // copies one slot, and waits
  // For a group: starts to copy these ranges of weights. wait_for_weights() waits for them on
  // another thread.
  void begin_to_host(const std::vector<sync::Range>& of_weights);
  void wait_for_weights() const;
  // For a group that sums on the host: the copy of the gradient, from now on in pinned memory, so
  // that copying does not block the caller. Called before the first gradient.
  std::span<float> pin_gradient();
  // The engine has changed the used slots; all slots; one slot.
  void to_device();
  void all_to_device();
  void to_device(std::string_view name);

 private:
  struct Slot {
    std::string name;
    at::Tensor device;
    at::Tensor host;
    bool used = false;
    bool changed = true;  // on the device

    bool is_copy() const { return !device.is_cpu(); }
  };

  at::Device device() const;  // of the gradient
  void changed(std::string_view name);
  void to_host(bool all, const std::vector<sync::Range>& of_weights);
  static void copy_weights(const Slot& slot, const std::vector<sync::Range>& ranges);
  void upload(Slot& slot);
  std::span<float> span_of(std::string_view name) const;

  std::array<Slot, 4> slots_;
  std::optional<c10::Event> uploaded_;    // recorded after the last copy to the device
  std::optional<c10::Event> downloaded_;  // recorded after the last begin_to_host()
};

}  // namespace strait::stages
