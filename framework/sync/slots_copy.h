#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "framework/sync/slots.h"

namespace strait::sync {

// What a round of gradients is about to change, for the case that the step is skipped, or agreed on
// once more among fewer replicas. Memory is kept for the next one.
class SlotsCopy {
 public:
  // What the method keeps; `with_gradient`: the gradient too, so that the round can be repeated.
  void take(const Slots& slots, bool with_gradient);
  bool there() const { return there_; }
  void give_back(Slots& slots);  // as it was; the copy is over
  void forget() { there_ = false; }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  bool there_ = false;
};

}  // namespace strait::sync
