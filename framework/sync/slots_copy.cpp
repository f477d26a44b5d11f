#include "framework/sync/slots_copy.h"

#include <algorithm>

namespace strait::sync {

void SlotsCopy::take(const Slots& slots) {
  const auto keep = [&](const std::string& name) {
    const auto bytes = slots.bytes(name, {0, slots.layout().size()});
    bytes_[name].assign(bytes.begin(), bytes.end());
  };
  keep(kGradient);
  for (const SlotNeed& need : slots.needs()) keep(need.name);
  there_ = true;
}

void SlotsCopy::give_back(Slots& slots) {
  for (const auto& [name, bytes] : bytes_) {
    std::ranges::copy(bytes, slots.bytes(name, {0, slots.layout().size()}).begin());
  }
  there_ = false;
}

}  // namespace strait::sync
