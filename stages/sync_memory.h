#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/sync/slots.h"
#include "stages/adamw.h"
#include "stages/gradients.h"

namespace strait::stages {

// Weights, gradient and moments of a stage as the sync engine sees them, in memory of the host. On
// the CPU that is the stage's own memory, and the calls below do nothing. Of another device it is a
// copy, which follows the device's when a round begins, and which the device's follows when a round
// has changed it. Used by the compute thread; no other one reads a slot while it is copied.
class SyncMemory {
 public:
  // `used`: the slots that the sync method reads or changes.
  SyncMemory(const AdamW& optimizer, const Gradients& gradients,
             const std::vector<std::string>& used);

  sync::StageMemory spans() const;
  bool is_copy() const { return !slots_.front().device.is_cpu(); }

  // The stage has changed the gradient; the weights and the moments.
  void gradient_changed() { changed(sync::kGradient); }
  void state_changed();
  // Copies what the stage has changed to the host, and waits for it: the used slots, with these
  // ranges of weights that are not; or all.
  void to_host(const std::vector<sync::Range>& of_weights = {}) { to_host(false, of_weights); }
  void all_to_host() { to_host(true, {}); }
  void to_host(std::string_view name);  // one slot, and waits for it
  // Of a group: begins to copy these ranges of weights, which wait_for_weights() waits for, on
  // another thread.
  void begin_to_host(const std::vector<sync::Range>& of_weights);
  void wait_for_weights() const;
  // Of a group that sums on the host: the gradient's copy, from now on in pinned memory, so that
  // copying it does not block the caller. Before the first gradient.
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
  };

  void changed(std::string_view name);
  void to_host(bool all, const std::vector<sync::Range>& of_weights);
  static void copy_weights(const Slot& slot, const std::vector<sync::Range>& ranges);
  void upload(Slot& slot);
  std::span<float> span_of(std::string_view name) const;

  std::array<Slot, 4> slots_;
  std::optional<c10::Event> uploaded_;    // of the last copy to the device
  std::optional<c10::Event> downloaded_;  // of the last begin_to_host()
};

}  // namespace strait::stages
