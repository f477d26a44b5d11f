#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strait::codec {

// How rows are encoded from a step on. raw and fixed need no cache.
struct Choice {
  enum class Encoding : std::uint8_t { raw, fixed, delta };  // raw: bfloat16
  Encoding encoding = Encoding::delta;
  int bits = 4;        // fixed and delta; 16 with raw
  int first_bits = 8;  // delta: of a row that has no base; 16 is bfloat16
  bool operator==(const Choice&) const = default;
};

// "delta at 4 bits", for messages.
std::string describe(const Choice& choice);

// The limits of `auto` in one direction of one boundary.
struct ChoiceLimits {
  int least_bits = 4;     // lower limit for changes and gradients
  int first_bits = 8;     // lower limit for rows that miss the cache
  int fixed_bits = 4;     // lower limit for values that are sent without a base
  int usual_bits = 6;     // of a codec that is not `auto`; not below the lower limits
  bool has_cache = true;  // there is a cache, and samples are used more than once
  int group = 64;         // values that share a scale
  // By which share a step may get longer than with usual_bits for more bits of this direction.
  double most_cost = 0.02;
};

// Of the gradients of the last steps; squares are sums over a step.
struct GradientMeasure {
  double noise = 0;             // of the gradient's sum over rows: how much it owes to their choice
  double signal = 0;            // of that sum without its noise
  double values = 0;            // of all values
  std::optional<double> error;  // ‖sent − g‖ / ‖g‖ as they are encoded now; absent with raw
  double bias = 0;              // 1 − <sent, g> / <g, g>
};

// Measurements of the last steps.
struct Measured {
  double bytes_per_second = 0;  // of the path; 0: unknown, as it stays on a path that is never full
  double compute_seconds = 0;   // of one step, without waiting
  double values_per_step = 0;
  double messages_per_step = 1;
  std::optional<double> change;  // ‖a − m‖ / ‖a‖ over rows that had a base
  std::optional<GradientMeasure> gradient;
};

struct Decision {
  Choice choice;
  std::string why;  // one sentence, with the seconds of a step that the choice costs
  bool operator==(const Decision&) const = default;
};

// Bytes of a step if all values are sent in this many bits; 16: bfloat16.
double step_bytes(const ChoiceLimits& limits, int bits, double values);

// What a step takes that sends these bytes in this direction and waits for nothing else: they
// travel during compute, but for those of one message, for which the receiver waits.
double step_seconds(const Measured& measured, double bytes);

// The share of a gradient's own noise that `bits` add to it: the error's variance, and what a bias,
// which later steps do not average out as they do noise, comes to in a hundred steps.
double added_noise(const GradientMeasure& gradient, const Choice& now, int bits);

// The fewest bits, `least` or more, that leave a gradient what it was but for a share of its own
// noise that cannot be seen in a loss. 8 if none do. Fewer bits than now need a margin. Pure.
int enough_bits(const GradientMeasure& gradient, const Choice& now, int least);

// The encoding with the smallest expected error whose transfer compute hides; if there is none, the
// one with the fewest bytes within the limits, gradients with enough_bits(), if these are not
// more than usual_bits. So more bytes than those of usual_bits are sent only where they make a step
// longer by no more than most_cost. delta is considered only while changes are smaller than the
// values. Switching has hysteresis (margins in bytes and seconds, a change larger than the value),
// so that noise does not make the choice oscillate. Nothing without a measured path. Pure.
std::optional<Decision> next_choice(const ChoiceLimits& limits, const Choice& now,
                                    const Measured& measured);

// The choice before the first measurement.
Choice first_choice(const ChoiceLimits& limits);

}  // namespace strait::codec
