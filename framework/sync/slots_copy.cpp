#include "framework/sync/slots_copy.h"

#include <algorithm>

namespace strait::sync {

void SlotsCopy::take(const Slots& slots, bool with_gradient) {
  const auto keep = [&](const std::string& name) {
    const auto bytes = slots.bytes(name, {0, slots.layout().size()});
    std::vector<std::byte>& kept = bytes_[name];
    kept.resize(bytes.size());
    slots.spread(static_cast<std::int64_t>(bytes.size()),
                 [&](std::int64_t first, std::int64_t last) {
                   std::copy(bytes.begin() + first, bytes.begin() + last, kept.begin() + first);
                 });
  };
  if (with_gradient) keep(kGradient);
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
