#include "framework/sync/group_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"

namespace strait::sync {
namespace {

constexpr int kByteBits = 8;
constexpr const char* kBytePart = "a part of a gradient";

// Gradients in a byte per value in both directions, as in BAGUA: the owner of a part sums them in
// float32 and encodes the sum again. No error feedback: what rounding loses is lost. In the buckets
// of allreduce, so that they travel while the backward pass still computes.
class ByteGrad final : public SyncMethod {
 public:
  explicit ByteGrad(const SyncSettings&)
      : SyncMethod({.trainer_slots = {kGradient},
                    .sums_gradients = true,
                    .reads_own_contribution = false}) {}

  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    if (point.hook != Hook::gradient) return std::nullopt;
    return plan_in_buckets(layout, membership, kByteBits);
  }
  void encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) override {
    append_byte_groups(within(slots.values(kGradient), part.range), out);
  }
  void reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
              net::Frame& out) override {
    // A NaN of one replica makes the sum NaN, so that all replicas skip the step.
    const auto read = [](auto bytes, std::span<float> to) {
      read_byte_groups(bytes, to, kBytePart);
    };
    append_byte_groups(sum_of(contributions, part.values(), read), out);
  }
  void decode(const Round& round, const Part& part, const Slots&) override {
    check_byte_groups(round.result(part), part.values(), kBytePart);
  }
  void apply(const Round& round, Slots& slots) override {
    const std::span<float> gradient = slots.values(kGradient);
    apply_parts(round, slots, [&](const Part& part) {
      read_byte_groups(round.result(part), within(gradient, part.range), kBytePart);
    });
  }
};

}  // namespace

MethodOffer bytegrad() {
  return {
      .name = "bytegrad",
      .make = made<ByteGrad>,
      .forecast =
          [](const ForecastInput& input) {
            // Per group: an f32 step and a u8 level.
            constexpr double kHeaderBits = 32 + 8;
            const double bits = kByteBits + kHeaderBits / static_cast<double>(kByteGroup);
            return every_step(input.bucketed_bytes(input.values(), bits, input.bucket(kByteBits)));
          },
      .coding_cost =
          [](const SyncSettings&) {
            return CodingCost{10, 0.9};
          },
      .rank = 20};
}

}  // namespace strait::sync
