#include "framework/codec/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace strait::codec {
namespace {

constexpr int kRawBits = 16;
struct Margin {
  double of_compute;  // fraction that a transfer may take; above it stages wait
  double of_cost;     // fraction of ChoiceLimits::most_cost
};
constexpr Margin kToStay{0.9, 1};
// For a choice with more bytes than now: a margin, so that noise in the measurements causes no
// switch.
constexpr Margin kToGrow{0.7, 0.75};
constexpr double kChangeToStay = 1.0;
constexpr double kChangeToBegin = 0.9;
// Relative error by bits, of Gaussian values in groups of 64; the table is in kernels/QUANTIZED.md.
constexpr std::array<double, 9> kError = {1, 1, 0.36, 0.19, 0.10, 0.052, 0.026, 0.013, 0.0065};

// Noise that encoding may add to a gradient, as a fraction of the gradient's own. Four bits add
// about 1 % and measurably lose nothing (tests/bench/RESULTS.md); three would add 3 %.
constexpr double kNoiseToStay = 0.02;
constexpr double kNoiseToShrink = 0.015;
// Steps over which noise averages out but a bias does not.
constexpr double kStepsOfBias = 100;

// Whether compute hides a transfer of these bytes. `usual`: the bytes without `auto`.
bool is_hidden(const ChoiceLimits& limits, const Measured& measured, double bytes, double usual,
               const Margin& margin) {
  if (bytes > margin.of_compute * measured.compute_seconds * measured.bytes_per_second)
    return false;
  const double most = 1 + margin.of_cost * limits.most_cost;
  return bytes <= usual || step_seconds(measured, bytes) <= most * step_seconds(measured, usual);
}

struct Candidate {
  Choice choice;
  double bytes = 0;
  double error = 0;  // 0 for bfloat16, which is what raw sends
};

std::vector<Candidate> candidates_for(const ChoiceLimits& limits, const Measured& measured,
                                      bool may_delta) {
  using Encoding = Choice::Encoding;
  std::vector<Candidate> all;
  const auto add = [&](Encoding encoding, int bits, double error) {
    all.push_back({{encoding, bits, limits.first_bits},
                   step_bytes(limits, bits, measured.values_per_step),
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

// delta pays off only while changes are small. Values sent without a base give no change to
// measure, so delta may start only if its change was measured to be small or was never measured.
bool delta_is_worth_it(const ChoiceLimits& limits, const Choice& now, const Measured& measured) {
  if (!limits.has_cache) return false;
  if (now.encoding == Choice::Encoding::delta) return measured.change.value_or(0) < kChangeToStay;
  if (now.encoding == Choice::Encoding::fixed && !measured.change) return false;
  return measured.change.value_or(0) < kChangeToBegin;
}

// More bits for cache misses if compute hides even these, because misses cause most of a short
// run's error. They are not worth a switch by themselves.
int first_bits_for(const ChoiceLimits& limits, const Choice& now, int bits,
                   const Measured& measured) {
  const double usual = step_bytes(limits, limits.first_bits, measured.values_per_step);
  const auto fits = [&](int more, const Margin& margin) {
    const double bytes = step_bytes(limits, more, measured.values_per_step);
    return is_hidden(limits, measured, bytes, usual, margin);
  };
  const bool stays = now.encoding == Choice::Encoding::delta && now.bits == bits;
  if (stays && (now.first_bits <= limits.first_bits || fits(now.first_bits, kToStay))) {
    return now.first_bits;
  }
  for (const int more : {kRawBits, 8, 7, 6, 5, 4, 3}) {
    if (more > limits.first_bits && fits(more, kToGrow)) return more;
  }
  return limits.first_bits;
}

std::string seconds_text(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// "delta at 4 bits (8 on a cache miss), 0.61 s a step (6 bits 0.92 s, bfloat16 2.4 s) at 8.4 Mbit/s
// with 0.5 s of compute; change 17 %, expected error 1.7 %"
std::string reason(const ChoiceLimits& limits, const Candidate& best, const Choice& now,
                   const Measured& measured) {
  const auto price = [&](int bits) {
    return seconds_text(step_bytes(limits, bits, measured.values_per_step) /
                        measured.bytes_per_second);
  };
  std::string others;
  if (best.choice.bits != limits.usual_bits) {
    others = fmt::format("{} bits {}", limits.usual_bits, price(limits.usual_bits));
  }
  if (best.choice.encoding != Choice::Encoding::raw) {
    others += fmt::format("{}bfloat16 {}", others.empty() ? "" : ", ", price(kRawBits));
  }
  std::string text =
      fmt::format("{}, {} a step ({}) at {:.3g} Mbit/s with {} of compute", describe(best.choice),
                  price(best.choice.bits), others, measured.bytes_per_second * 8e-6,
                  seconds_text(measured.compute_seconds));
  std::string more;
  const auto add = [&](const std::string& words) { more += (more.empty() ? "; " : ", ") + words; };
  if (measured.change) add(fmt::format("change {:.0f} %", 100 * *measured.change));
  if (best.error > 0) add(fmt::format("expected error {:.2g} %", 100 * best.error));
  if (measured.gradient && best.choice.encoding == Choice::Encoding::fixed) {
    add(fmt::format("{:.2g} % are added to the gradient's own noise",
                    100 * added_noise(*measured.gradient, now, best.choice.bits)));
  }
  return text + more;
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

double step_bytes(const ChoiceLimits& limits, int bits, double values) {
  const double scales = bits == kRawBits ? 0.0 : 8.0 / limits.group;
  return values * (bits + scales) / 8;
}

double step_seconds(const Measured& measured, double bytes) {
  const double transfer = bytes / measured.bytes_per_second;
  return std::max(measured.compute_seconds, transfer) + transfer / measured.messages_per_step;
}

double relative_error(int bits) {
  constexpr double kOfBfloat16 = 0.0011;
  return bits == kRawBits ? kOfBfloat16 : kError.at(static_cast<std::size_t>(bits));
}

Choice first_choice(const ChoiceLimits& limits) {
  if (limits.has_cache) return {Choice::Encoding::delta, limits.least_bits, limits.first_bits};
  return {Choice::Encoding::fixed, limits.fixed_bits, limits.first_bits};
}

double added_noise(const GradientMeasure& gradient, const Choice& now, int bits) {
  const double table = kError.at(static_cast<std::size_t>(bits));
  // The ratio to the error of Gaussian values. A bias grows with the square of the error.
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

std::optional<Decision> next_choice(const ChoiceLimits& user_limits, const Choice& now,
                                    const Measured& measured) {
  if (measured.bytes_per_second <= 0 || measured.values_per_step <= 0) return std::nullopt;
  ChoiceLimits limits = user_limits;
  if (measured.gradient) {
    // Bits beyond the usual ones are only worth time that is free.
    limits.fixed_bits = std::min(enough_bits(*measured.gradient, now, limits.fixed_bits),
                                 std::max(limits.fixed_bits, limits.usual_bits));
  }
  const double bytes_now = step_bytes(limits, now.bits, measured.values_per_step);
  const double usual = step_bytes(limits, limits.usual_bits, measured.values_per_step);
  const auto fits = [&](const Candidate& candidate) {
    return is_hidden(limits, measured, candidate.bytes, usual,
                     candidate.bytes > bytes_now ? kToGrow : kToStay);
  };
  const auto all = candidates_for(limits, measured, delta_is_worth_it(limits, now, measured));
  Candidate best = *std::ranges::min_element(all, [&](const auto& a, const auto& b) {
    if (fits(a) != fits(b)) return fits(a);
    const bool by_error = fits(a) ? a.error != b.error : a.bytes == b.bytes;
    return by_error ? a.error < b.error : a.bytes < b.bytes;
  });
  if (best.choice.encoding == Choice::Encoding::delta) {
    best.choice.first_bits = first_bits_for(limits, now, best.choice.bits, measured);
  }
  return Decision{best.choice, reason(limits, best, now, measured)};
}

}  // namespace strait::codec
