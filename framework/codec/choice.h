#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strait::codec {

// How rows are encoded from some step on. raw and fixed work without a cache.
struct Choice {
  enum class Encoding : std::uint8_t { raw, fixed, delta };  // raw: bfloat16
  Encoding encoding = Encoding::delta;
  int bits = 4;        // fixed and delta; 16 with raw
  int first_bits = 8;  // delta: for a row without a base; 16 is bfloat16
  bool operator==(const Choice&) const = default;
};

// "delta at 4 bits", for messages.
std::string describe(const Choice& choice);

// The limits of `auto` in one direction of one boundary.
struct ChoiceLimits {
  int least_bits = 4;     // lower limit for changes and gradients
  int first_bits = 8;     // lower limit for rows that miss the cache
  int fixed_bits = 4;     // lower limit for values sent without a base
  int usual_bits = 6;     // of a codec other than `auto`; not below the lower limits
  bool has_cache = true;  // there is a cache, and some samples are used more than once
  int group = 64;         // values that share a scale
  // By what fraction a step may get longer than with usual_bits, for more bits in this direction.
  double most_cost = 0.02;
};

// Gradients of the last steps. Squares are summed over a step.
struct GradientMeasure {
  // of the gradient's sum over rows: the part that depends on which rows were drawn
  double noise = 0;
  double signal = 0;            // of that sum without its noise
  double values = 0;            // of all values
  std::optional<double> error;  // ‖sent − g‖ / ‖g‖ with the current encoding; absent with raw
  double bias = 0;              // 1 − <sent, g> / <g, g>
};

// Measurements of the last steps.
struct Measured {
  // of the path; 0: unknown, which it stays on a path that is never full
  double bytes_per_second = 0;
  double compute_seconds = 0;  // of one step, without waiting
  double values_per_step = 0;
  double messages_per_step = 1;
  std::optional<double> change;  // ‖a − m‖ / ‖a‖ over rows that had a base
  std::optional<GradientMeasure> gradient;
};

struct Decision {
  Choice choice;
  std::string why;  // one sentence, with the seconds per step that the choice costs
  bool operator==(const Decision&) const = default;
};

// Bytes of a step if all values are sent in this many bits; 16: bfloat16.
double step_bytes(const ChoiceLimits& limits, int bits, double values);

// The duration of a step that sends these bytes in this direction and waits for nothing else. They
// travel during compute, except the bytes of one message, for which the receiver waits.
double step_seconds(const Measured& measured, double bytes);

// The noise that `bits` add to a gradient, as a fraction of its own: the variance of the error,
// plus the effect of its bias over a hundred steps, which does not average out as noise does.
double added_noise(const GradientMeasure& gradient, const Choice& now, int bits);

// The fewest bits, at least `least`, that add so little noise to a gradient that the loss does not
// show it. 8 if no number does. Fewer bits than now need a margin. Pure.
int enough_bits(const GradientMeasure& gradient, const Choice& now, int least);

// The encoding with the smallest expected error whose transfer is hidden by compute. If there is
// none: the one with the fewest bytes within the limits. Gradients need enough_bits(), if these are
// at most usual_bits. So more bytes than with usual_bits are sent only if they lengthen a step by
// at most most_cost. delta is considered only while changes are smaller than the values. Switching
// has hysteresis (margins in bytes and seconds, and a change larger than the value), so that noise
// does not make the choice oscillate. Nothing without a measured path. Pure.
std::optional<Decision> next_choice(const ChoiceLimits& limits, const Choice& now,
                                    const Measured& measured);

// ‖error‖ / ‖values‖ of this many bits, of Gaussian values in groups of 64.
double relative_error(int bits);

// The choice before the first measurement.
Choice first_choice(const ChoiceLimits& limits);

}  // namespace strait::codec
