#include "stages/peer_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "framework/codec/codec_error.h"

namespace strait::stages {
namespace {

constexpr std::int64_t kPartValues = std::int64_t{1} << 18U;
// How long a wait goes on before it looks whether there is anything left to wait for.
constexpr std::chrono::milliseconds kGiverLook{20};

std::vector<std::string> given_slots(const sync::Slots& slots, const std::string& model) {
  std::vector<std::string> names = {model, sync::kFirstMoment, sync::kSecondMoment};
  for (const sync::SlotNeed& need : slots.needs()) {
    if (need.shared && need.name != model) names.push_back(need.name);
  }
  return names;
}

// The same at both ends.
template <class Visit>
void visit_parts(const sync::Slots& slots, const std::string& model, Visit visit) {
  const std::int64_t size = slots.layout().size();
  for (const std::string& name : given_slots(slots, model)) {
    for (std::int64_t first = 0; first < size; first += kPartValues) {
      visit(name, sync::Range{first, std::min(first + kPartValues, size)});
    }
  }
}

net::Frame next_part(net::Link& link, std::size_t bytes, const std::string& what,
                     const std::function<void(bool)>& look) {
  std::optional<net::Frame> frame;
  while (!frame) {
    look(false);
    frame = link.receive_until(std::chrono::steady_clock::now() + kGiverLook);
  }
  look(true);
  if (frame->size() == bytes) return std::move(*frame);
  throw codec::CodecError(fmt::format("{} gives {} bytes of {} where it has {}", link.state().peer,
                                      frame->size(), what, bytes));
}

}  // namespace

void give_state(const sync::Slots& slots, const std::string& model, const AdamW& optimizer,
                net::Link& link) {
  visit_parts(slots, model, [&](const std::string& name, sync::Range range) {
    const std::span<const std::byte> bytes = slots.bytes(name, range);
    link.send(net::Frame(bytes.begin(), bytes.end()));
  });
  net::Frame counters(optimizer.slots().size() * sizeof(float));
  for (std::size_t i = 0; i < optimizer.slots().size(); ++i) {
    const auto updates = optimizer.slots()[i].updates.item<float>();
    std::memcpy(counters.data() + i * sizeof updates, &updates, sizeof updates);
  }
  link.send(std::move(counters));
}

void take_state(sync::Slots& slots, const std::string& model, AdamW& optimizer, net::Link& link,
                const std::function<void(bool came)>& look) {
  visit_parts(slots, model, [&](const std::string& name, sync::Range range) {
    const std::span<std::byte> bytes = slots.bytes(name, range);
    const net::Frame part = next_part(link, bytes.size(), "slot " + name, look);
    std::ranges::copy(part, bytes.begin());
  });
  const net::Frame counters =
      next_part(link, optimizer.slots().size() * sizeof(float), "counters", look);
  for (std::size_t i = 0; i < optimizer.slots().size(); ++i) {
    float updates = 0;
    std::memcpy(&updates, counters.data() + i * sizeof updates, sizeof updates);
    optimizer.slots()[i].updates.fill_(updates);
  }
  if (model != sync::kWeights) {
    slots.load(model, {0, slots.layout().size()}, slots.values(sync::kWeights));
  }
  optimizer.publish();
}

}  // namespace strait::stages
