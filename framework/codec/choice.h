#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strait::codec {

// Which way rows go from a step on. Three ways in one word each; the first two need no memory.
struct Choice {
  enum class Way : std::uint8_t { raw, fixed, delta };  // raw: bfloat16
  Way way = Way::delta;
  int bits = 4;        // fixed and delta; 16 with raw
  int first_bits = 8;  // delta: of a row that has no base; 16 is bfloat16
  bool operator==(const Choice&) const = default;
};

// "delta at 4 bits", for people.
std::string describe(const Choice& choice);

// What `auto` may do at one direction of one boundary.
struct ChoiceLimits {
  int least_bits = 4;     // of a change, or of gradients: quality is not traded below this
  int first_bits = 8;     // of a sample's first visit, likewise
  int fixed_bits = 4;     // of values that are sent without a base
  bool remembers = true;  // there is a cache, and samples come back
  int group = 64;         // values that share a scale
};

// What the last steps showed.
struct Measured {
  double bytes_per_second = 0;  // of the path; 0: not known, which a fast one stays
  double compute_seconds = 0;   // of one step, waiting left out
  double values_per_step = 0;
  std::optional<double> change;  // ‖a − m‖ / ‖a‖ over rows that had a base
};

struct Decision {
  Choice choice;
  std::string why;  // one sentence
};

// The best that the path can carry beside compute: the way with the smallest expected error whose
// bytes take no longer than the step's compute; where none does, the one with the fewest bytes
// that the limits allow. A change is worth sending as long as it is smaller than the value itself.
// What is in use is left only for something that is clearly better (bytes with room to spare, a
// change beyond the value), so that noise does not make it swing. Pure.
Decision next_choice(const ChoiceLimits& limits, const Choice& now, const Measured& measured);

// What is used before anything was measured.
Choice first_choice(const ChoiceLimits& limits);

}  // namespace strait::codec
