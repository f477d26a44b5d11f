#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/sync/layout.h"
#include "framework/sync/line_allocator.h"

namespace strait::sync {

// The trainer's own memory, flat, of Layout::size() values each. Slots of these names are always
// there.
struct StageMemory {
  std::span<float> weights;  // the masters
  std::span<float> gradient;
  std::span<float> first_moment;
  std::span<float> second_moment;
};
inline constexpr const char* kWeights = "weights";
inline constexpr const char* kGradient = "gradient";
inline constexpr const char* kFirstMoment = "first_moment";
inline constexpr const char* kSecondMoment = "second_moment";

// What a method keeps for itself.
struct SlotNeed {
  enum class Width : std::uint8_t { float32, bfloat16 };
  std::string name;  // "reference", "residual", "outer"
  Width width = Width::float32;
  bool saved = true;  // in checkpoints; false: starts as zero again
  // The same on all members: whoever comes to them gets it from one of them. Else each has its own,
  // and who comes begins with zero.
  bool shared = false;
};

// Calls work(first, last) for ranges that together are 0 .. count, each once, on several threads at
// once where there are any; returns when all are done.
using Work = std::function<void(std::int64_t first, std::int64_t last)>;
using Spread = std::function<void(std::int64_t count, const Work& work)>;

// Named flat vectors over the coordinates of a stage: the trainer's, and those a method asked for,
// zero at first. Checkpoints and rejoining need to know no method.
class Slots {
 public:
  Slots(const Layout& layout, StageMemory memory, const std::vector<SlotNeed>& needs);
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  const Layout& layout() const { return layout_; }
  const std::vector<SlotNeed>& needs() const { return needs_; }

  // All values of a float32 slot.
  std::span<float> values(std::string_view name);
  std::span<const float> values(std::string_view name) const;
  // A range of a slot of any width. store() rounds to the nearest, ties to even.
  void load(std::string_view name, Range range, std::span<float> to) const;
  void store(std::string_view name, Range range, std::span<const float> from);

  // As they lie in memory: to hash, to save.
  std::span<const std::byte> bytes(std::string_view name, Range range) const;
  std::span<std::byte> bytes(std::string_view name, Range range);

  // How the owner of the memory has work done that goes over the slots; unless it says so, on the
  // caller's thread. Work that throws is on the caller's thread only.
  void spread_by(Spread spread) { spread_ = std::move(spread); }
  void spread(std::int64_t count, const Work& work) const { spread_(count, work); }

 private:
  using Narrow = std::vector<std::uint16_t, LineAllocator<std::uint16_t>>;
  const Narrow* narrow(std::string_view name) const;  // null: it is float32

  Layout layout_;
  std::vector<SlotNeed> needs_;
  Spread spread_ = [](std::int64_t count, const Work& work) { work(0, count); };
  std::map<std::string, std::span<float>, std::less<>> wide_;
  std::map<std::string, std::vector<float, LineAllocator<float>>, std::less<>> own_;
  std::map<std::string, Narrow, std::less<>> own_narrow_;
};

}  // namespace strait::sync
