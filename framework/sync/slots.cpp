#include "framework/sync/slots.h"

#include <algorithm>
#include <cstring>

#include "framework/sync/float_codes.h"

namespace strait::sync {
namespace {

[[noreturn]] void no_such_slot(std::string_view name) {
  throw std::out_of_range("no slot of that width is called " + std::string(name));
}

}  // namespace

std::vector<std::string> shared_slots(const std::vector<SlotNeed>& needs,
                                      const std::string& model) {
  std::vector<std::string> names = {model};
  for (const SlotNeed& need : needs) {
    if (need.shared && need.name != model) names.push_back(need.name);
  }
  return names;
}

Slots::Slots(const Layout& layout, StageMemory memory, const std::vector<SlotNeed>& needs)
    : layout_(layout), needs_(needs) {
  // The stage's own memory, under the same names: a method cannot tell whose a slot is.
  wide_ = {{kWeights, memory.weights},
           {kGradient, memory.gradient},
           {kFirstMoment, memory.first_moment},
           {kSecondMoment, memory.second_moment}};
  const auto size = static_cast<std::size_t>(layout.size());
  // own_ is a map of vectors that never grow again, so the spans in wide_ stay valid.
  for (const SlotNeed& need : needs) {
    if (need.width == SlotNeed::Width::bfloat16) {
      own_narrow_[need.name].resize(size);
    } else {
      auto& own = own_[need.name];
      own.resize(size);
      wide_[need.name] = own;
    }
  }
}

std::span<float> Slots::values(std::string_view name) {
  const auto found = wide_.find(name);
  if (found == wide_.end()) no_such_slot(name);
  return found->second;
}

std::span<const float> Slots::values(std::string_view name) const {
  const auto found = wide_.find(name);
  if (found == wide_.end()) no_such_slot(name);
  return found->second;
}

const Slots::Narrow* Slots::narrow(std::string_view name) const {
  const auto found = own_narrow_.find(name);
  return found == own_narrow_.end() ? nullptr : &found->second;
}

void Slots::load(std::string_view name, Range range, std::span<float> to) const {
  const auto first = static_cast<std::size_t>(range.first);
  const auto count = static_cast<std::size_t>(range.count());
  if (const auto* from = narrow(name)) {
    std::transform(from->begin() + range.first, from->begin() + range.last, to.begin(),
                   from_bfloat16);
  } else {
    std::memcpy(to.data(), values(name).subspan(first, count).data(), count * sizeof(float));
  }
}

void Slots::store(std::string_view name, Range range, std::span<const float> from) {
  const auto first = static_cast<std::size_t>(range.first);
  const auto count = static_cast<std::size_t>(range.count());
  const auto found = own_narrow_.find(name);
  if (found != own_narrow_.end()) {
    std::transform(from.begin(), from.begin() + range.count(), found->second.begin() + range.first,
                   to_bfloat16);
  } else {
    std::memcpy(values(name).subspan(first, count).data(), from.data(), count * sizeof(float));
  }
}

std::span<const std::byte> Slots::bytes(std::string_view name, Range range) const {
  const auto first = static_cast<std::size_t>(range.first);
  const auto count = static_cast<std::size_t>(range.count());
  if (const auto* held = narrow(name)) {
    return std::as_bytes(std::span(*held).subspan(first, count));
  }
  return std::as_bytes(values(name).subspan(first, count));
}

std::span<std::byte> Slots::bytes(std::string_view name, Range range) {
  const std::span<const std::byte> found = std::as_const(*this).bytes(name, range);
  return {const_cast<std::byte*>(found.data()), found.size()};  // NOLINT: this is not const
}

void SlotsSnapshot::take(const Slots& slots, bool with_gradient) {
  const auto copy = [&](const std::string& name) {
    const auto bytes = slots.bytes(name, {0, slots.layout().size()});
    std::vector<std::byte>& copied = bytes_[name];
    copied.resize(bytes.size());
    slots.spread(static_cast<std::int64_t>(bytes.size()),
                 [&](std::int64_t first, std::int64_t last) {
                   std::copy(bytes.begin() + first, bytes.begin() + last, copied.begin() + first);
                 });
  };
  // Into the buffers of the last snapshot: a new allocation of this size costs as much as the copy.
  if (with_gradient) copy(kGradient);
  for (const SlotNeed& need : slots.needs()) copy(need.name);
  taken_ = true;
}

void SlotsSnapshot::restore(Slots& slots) {
  for (const auto& [name, bytes] : bytes_) {
    std::ranges::copy(bytes, slots.bytes(name, {0, slots.layout().size()}).begin());
  }
  taken_ = false;
}

}  // namespace strait::sync
