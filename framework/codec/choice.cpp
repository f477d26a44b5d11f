#include "framework/codec/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace strait::codec {
namespace {

constexpr int kRawBits = 16;
// Of the step's compute: a transfer that takes a larger share makes stages wait.
constexpr double kShareToStay = 0.9;
// Switching to more bytes needs this margin, so that noise in the measured rate causes no switch.
constexpr double kShareToGrow = 0.7;
constexpr double kChangeToStay = 1.0;
constexpr double kChangeToBegin = 0.9;
// Relative error by bits, Gaussian values in groups of 64; kernels/QUANTIZED.md has the table.
constexpr std::array<double, 9> kError = {1, 1, 0.36, 0.19, 0.10, 0.052, 0.026, 0.013, 0.0065};

// Noise of a gradient that encoding may add, in shares of its own. Four bits add about 1 % and are
// measured to lose nothing (tests/bench/RESULTS.md); three would add 3 %.
constexpr double kNoiseToStay = 0.02;
constexpr double kNoiseToShrink = 0.015;
// Steps over which noise is taken to average out where a bias does not.
constexpr double kStepsOfBias = 100;

double bytes_of(const ChoiceLimits& limits, Choice::Encoding encoding, int bits, double values) {
  const double scales = encoding == Choice::Encoding::raw ? 0.0 : 8.0 / limits.group;
  return values * (bits + scales) / 8;
}

struct Candidate {
  Choice choice;
  double bytes = 0;
  double error = 0;  // 0 for bfloat16: it is what raw would send
};

std::vector<Candidate> candidates_for(const ChoiceLimits& limits, const Measured& measured,
                                      bool may_delta) {
  using Encoding = Choice::Encoding;
  std::vector<Candidate> all;
  const auto add = [&](Encoding encoding, int bits, double error) {
    all.push_back({{encoding, bits, limits.first_bits},
                   bytes_of(limits, encoding, bits, measured.values_per_step),
                   error});
  };
  add(Encoding::raw, kRawBits, 0);
  for (int bits = 8; bits >= 2; --bits) {
    const double error = kError.at(static_cast<std::size_t>(bits));
    if (bits >= limits.fixed_bits) add(Encoding::fixed, bits, error);
    if (may_delta && bits >= limits.least_bits) {
      add(Encoding::delta, bits, error * measured.change.value_or(kChangeToBegin));
    }
  }
  return all;
}

// delta pays off only while changes are small. Values sent without a base leave no change to
// measure, so delta may start only if its change was measured small or never measured.
bool delta_is_worth_it(const ChoiceLimits& limits, const Choice& now, const Measured& measured) {
  if (!limits.has_cache) return false;
  if (now.encoding == Choice::Encoding::delta) return measured.change.value_or(0) < kChangeToStay;
  if (now.encoding == Choice::Encoding::fixed && !measured.change) return false;
  return measured.change.value_or(0) < kChangeToBegin;
}

// More bits for cache misses if even they fit: they cause most of a short run's error.
int first_bits_for(const ChoiceLimits& limits, const Measured& measured, double budget) {
  for (const int bits : {kRawBits, 8, 7, 6, 5, 4, 3}) {
    if (bits <= limits.first_bits) break;
    const Choice::Encoding encoding =
        bits == kRawBits ? Choice::Encoding::raw : Choice::Encoding::fixed;
    if (bytes_of(limits, encoding, bits, measured.values_per_step) <= budget * kShareToGrow)
      return bits;
  }
  return limits.first_bits;
}

std::string reason(const Candidate& best, bool fits, const Choice& now, const Measured& measured,
                   double budget) {
  std::string more =
      measured.change ? fmt::format(", changes are {:.2f} of the values", *measured.change) : "";
  if (measured.gradient && best.choice.encoding == Choice::Encoding::fixed) {
    more += fmt::format(", {:.1f} % are added to the gradient's own noise",
                        100 * added_noise(*measured.gradient, now, best.choice.bits));
  }
  return fmt::format(
      "{}: {:.0f} kB a step {} the {:.0f} kB that {:.1f} Mbit/s carry beside {:.3f} s of compute{}",
      describe(best.choice), best.bytes / 1e3, fits ? "fit into" : "come nearest to", budget / 1e3,
      measured.bytes_per_second * 8e-6, measured.compute_seconds, more);
}

}  // namespace

std::string describe(const Choice& choice) {
  switch (choice.encoding) {
    case Choice::Encoding::raw:
      return "raw bfloat16";
    case Choice::Encoding::fixed:
      return fmt::format("fixed at {} bits", choice.bits);
    case Choice::Encoding::delta:
      break;
  }
  return fmt::format("delta at {} bits ({} on a cache miss)", choice.bits, choice.first_bits);
}

Choice first_choice(const ChoiceLimits& limits) {
  if (limits.has_cache) return {Choice::Encoding::delta, limits.least_bits, limits.first_bits};
  return {Choice::Encoding::fixed, limits.fixed_bits, limits.first_bits};
}

double added_noise(const GradientMeasure& gradient, const Choice& now, int bits) {
  const double table = kError.at(static_cast<std::size_t>(bits));
  // How much other than Gaussian values these are. A bias goes with the square of the error.
  double scale = 1;
  double bias = 0;
  if (now.encoding != Choice::Encoding::raw && gradient.error) {
    const double table_now = kError.at(static_cast<std::size_t>(now.bits));
    scale = *gradient.error / table_now;
    bias = gradient.bias * table * table / (table_now * table_now);
  }
  const double error = scale * scale * table * table * gradient.values;
  return (error + kStepsOfBias * bias * bias * gradient.signal) / gradient.noise;
}

int enough_bits(const GradientMeasure& gradient, const Choice& now, int least) {
  constexpr int kMost = 8;
  const int bits_now = now.encoding == Choice::Encoding::raw ? kRawBits : now.bits;
  for (int bits = least; bits < kMost; ++bits) {
    const double limit = bits < bits_now ? kNoiseToShrink : kNoiseToStay;
    if (added_noise(gradient, now, bits) <= limit) return bits;
  }
  return std::max(least, kMost);
}

Decision next_choice(const ChoiceLimits& user_limits, const Choice& now, const Measured& measured) {
  if (measured.bytes_per_second <= 0 || measured.values_per_step <= 0) {
    return {now, "nothing was measured yet"};
  }
  ChoiceLimits limits = user_limits;
  if (measured.gradient) {
    limits.fixed_bits = enough_bits(*measured.gradient, now, limits.fixed_bits);
  }
  const double budget = measured.bytes_per_second * measured.compute_seconds;
  const double bytes_now = bytes_of(limits, now.encoding, now.bits, measured.values_per_step);
  const auto fits = [&](const Candidate& candidate) {
    const double share = candidate.bytes > bytes_now ? kShareToGrow : kShareToStay;
    return candidate.bytes <= budget * share;
  };
  const auto all = candidates_for(limits, measured, delta_is_worth_it(limits, now, measured));
  const Candidate best = *std::ranges::min_element(all, [&](const auto& a, const auto& b) {
    if (fits(a) != fits(b)) return fits(a);
    const bool by_error = fits(a) ? a.error != b.error : a.bytes == b.bytes;
    return by_error ? a.error < b.error : a.bytes < b.bytes;
  });
  Decision decision{best.choice, reason(best, fits(best), now, measured, budget)};
  if (decision.choice.encoding == Choice::Encoding::delta) {
    decision.choice.first_bits = first_bits_for(limits, measured, budget);
    // A change of first_bits alone is not worth a switch.
    if (now.encoding == Choice::Encoding::delta && now.bits == decision.choice.bits)
      decision.choice = now;
  }
  return decision;
}

}  // namespace strait::codec
