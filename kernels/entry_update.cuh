#pragma once

#include "kernels/octet_levels.cuh"

// How both ends update a token of a cache entry; the same as advance_entry() on a CPU.
namespace strait::kernels {

// A token of a cache entry, or none.
struct EntryToken {
  std::uint8_t* bytes;  // bfloat16; null: none
  bool fresh;
  int width;

  __device__ EntryToken(std::byte* row, bool is_fresh, std::int64_t number, int token_width)
      : bytes(row == nullptr ? nullptr
                             : reinterpret_cast<std::uint8_t*>(row) + number * 2 * token_width),
        fresh(is_fresh || row == nullptr),
        width(token_width) {}

  __device__ Octet read(int octet) const {
    if (fresh) return {};
    return load_elements(bytes + octet * kOctet * 2, Element::bfloat16, count_of(octet, width));
  }
  // Replaces `values` by what the entry then decodes to.
  __device__ void write(int octet, Octet& values) const {
    std::uint32_t halves[kOctet];
    for (int i = 0; i < kOctet; ++i) {
      halves[i] = bfloat16_bits(values.value[i]);
      values.value[i] = float_of_bits(halves[i] << 16U);
    }
    store_halves(halves, count_of(octet, width), bytes + octet * kOctet * 2);
  }
};

__device__ inline Octet sum_of(const Octet& left, const Octet& right) {
  Octet sum;
  for (int i = 0; i < kOctet; ++i) sum.value[i] = __fadd_rn(left.value[i], right.value[i]);
  return sum;
}

// If there is an entry, adds the change in a complete message in shared memory; the values that it
// then decodes to go to sink(octet, values, refused).
template <int kBits, class Sink>
__device__ void advance(const Slot& slot, const StagedToken<kBits>& message,
                        const EntryToken& entry, Sink& sink) {
  for (int round = 0; round < slot.rounds(); ++round) {
    const int octet = slot.octet(round);
    Octet values;
    const bool refused = read_octet(message, octet, values);
    if (entry.bytes != nullptr) {
      values = sum_of(entry.read(octet), values);
      if (octet * kOctet < message.width) entry.write(octet, values);
    }
    sink(octet, values, refused);
  }
}

}  // namespace strait::kernels
