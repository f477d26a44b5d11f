#pragma once

#include <functional>
#include <map>
#include <new>
#include <string_view>
#include <utility>

#include "framework/sync/layout.h"

namespace strait::sync {

// The trainer's own memory, flat, of Layout::size() values each. Slots of these names always exist.
// Moments are empty if the trainer keeps them in few bits; no method may use them then.
struct StageMemory {
  std::span<float> weights;  // the float32 masters
  std::span<float> gradient;
  std::span<float> first_moment;
  std::span<float> second_moment;
};
inline constexpr const char* kWeights = "weights";
inline constexpr const char* kGradient = "gradient";
inline constexpr const char* kFirstMoment = "first_moment";
inline constexpr const char* kSecondMoment = "second_moment";

// A slot that a method needs for its own state.
struct SlotNeed {
  enum class Width : std::uint8_t { float32, bfloat16 };
  std::string name;  // "reference", "residual", "outer"
  Width width = Width::float32;
  bool saved = true;  // in checkpoints; false: zero again after a resume
  // Equal on all members, so a replica that rejoins receives it from one of them. Otherwise each
  // replica has its own, and one that rejoins begins with zero.
  bool shared = false;
  // A checkpoint may lack it, as one of a run that was too short to need it; then it is zero, as in
  // the first step.
  bool optional = false;
};

// Slots that are equal on all members, the model's first. A replica that rejoins receives them,
// and the optimizer's moments.
std::vector<std::string> shared_slots(const std::vector<SlotNeed>& needs, const std::string& model);

// Aligns a vector to cache lines, as libtorch aligns tensors. A block of kGrain values is then one
// line and not two, which halves the memory traffic of scattered accesses to blocks.
template <class Value>
struct LineAllocator {
  using value_type = Value;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class Other>
  explicit LineAllocator(const LineAllocator<Other>&) {}
  Value* allocate(std::size_t count) {
    return static_cast<Value*>(::operator new(count * sizeof(Value), kLine));
  }
  void deallocate(Value* values, std::size_t) { ::operator delete(values, kLine); }
  bool operator==(const LineAllocator&) const = default;
};

// Calls work(first, last) for ranges that cover 0 .. count once, on several threads at a time where
// there are any, and returns when all calls have returned.
using Work = std::function<void(std::int64_t first, std::int64_t last)>;
using Spread = std::function<void(std::int64_t count, const Work& work)>;

// Named flat vectors over the coordinates of a stage: the trainer's, and those that a method needs,
// zero at first. Checkpoints and rejoining replicas handle them without knowledge of the method.
class Slots {
 public:
  Slots(const Layout& layout, StageMemory memory, const std::vector<SlotNeed>& needs);
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  const Layout& layout() const { return layout_; }
  const std::vector<SlotNeed>& needs() const { return needs_; }

  // All values of a float32 slot. std::out_of_range if there is no such slot.
  std::span<float> values(std::string_view name);
  std::span<const float> values(std::string_view name) const;
  // The trainer's gradient is in other memory from now on. Nothing may hold its values() yet.
  void move_gradient(std::span<float> gradient) { wide_[kGradient] = gradient; }

  // A range of a slot of any width. store() rounds to the nearest, ties to even.
  void load(std::string_view name, Range range, std::span<float> to) const;
  void store(std::string_view name, Range range, std::span<const float> from);

  // The bytes as they lie in memory, for hashes and checkpoints.
  std::span<const std::byte> bytes(std::string_view name, Range range) const;
  std::span<std::byte> bytes(std::string_view name, Range range);

  // How work over the slots is distributed over threads. By default it runs on the caller's thread.
  // Work that throws must run on the caller's thread only.
  void spread_by(Spread spread) { spread_ = std::move(spread); }
  void spread(std::int64_t count, const Work& work) const { spread_(count, work); }

 private:
  using Narrow = std::vector<std::uint16_t, LineAllocator<std::uint16_t>>;
  const Narrow* narrow(std::string_view name) const;  // null: the slot is float32

  Layout layout_;
  std::vector<SlotNeed> needs_;
  Spread spread_ = [](std::int64_t count, const Work& work) { work(0, count); };
  std::map<std::string, std::span<float>, std::less<>> wide_;
  std::map<std::string, std::vector<float, LineAllocator<float>>, std::less<>> own_;
  std::map<std::string, Narrow, std::less<>> own_narrow_;
};

// A copy of the slots that a gradient's round changes, for a step that is skipped or repeated with
// fewer replicas. Its memory is reused by the next copy.
class SlotsSnapshot {
 public:
  // Copies the method's slots; `with_gradient`: the gradient too, so that the round can be
  // repeated.
  void take(const Slots& slots, bool with_gradient);
  bool taken() const { return taken_; }
  void restore(Slots& slots);  // and discards the copy
  void discard() { taken_ = false; }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  bool taken_ = false;
};

}  // namespace strait::sync
