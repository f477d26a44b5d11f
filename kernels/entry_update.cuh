#pragma once

#include "kernels/octet_levels.cuh"

// How both ends update a token of a cache entry; the same as entries-inl.h on a CPU.
namespace strait::kernels {

constexpr int kEntryBits = kEntryFormat.bits;
enum class EntryKind : std::uint8_t { none, bfloat16, eight_bits };

// A token of a cache entry of either kind, or of none. 8-bit tokens are staged in shared memory,
// bfloat16 tokens are used in place.
struct EntryToken {
  EntryKind kind;
  bool fresh;
  std::uint8_t* global;
  StagedToken<kEntryBits> token;

  __device__ EntryToken(const Slot& slot, std::byte* row, CacheFormat format, bool is_fresh,
                        std::int64_t number, int width)
      : kind(row == nullptr                    ? EntryKind::none
             : format == CacheFormat::bfloat16 ? EntryKind::bfloat16
                                               : EntryKind::eight_bits),
        fresh(is_fresh || row == nullptr),
        global(reinterpret_cast<std::uint8_t*>(row)),
        token(nullptr, kEntryFormat, width) {
    if (row == nullptr) return;
    global += number * (kind == EntryKind::bfloat16 ? 2 * width : token.size());
    token.bytes = slot.entry(global);
  }

  // Called by all threads of the slot; read() needs a barrier after it.
  __device__ void fetch(const Slot& slot) const {
    if (kind == EntryKind::eight_bits && !fresh) {
      copy_bytes(slot, token.bytes, global, token.size());
    }
  }
  __device__ void store(const Slot& slot) const {
    copy_bytes(slot, global, token.bytes, token.size());
  }

  __device__ Octet read(int octet) const {
    if (fresh) return {};
    if (kind == EntryKind::bfloat16) {
      const int count = count_of(octet, token.width);
      return load_elements(global + octet * kOctet * 2, Element::bfloat16, count);
    }
    Octet values;
    read_octet(token, octet, values);
    return values;
  }
  // bfloat16: replaces `values` by what the entry then decodes to.
  __device__ void write_halves(int octet, Octet& values) const {
    std::uint32_t halves[kOctet];
    for (int i = 0; i < kOctet; ++i) {
      halves[i] = bfloat16_bits(values.value[i]);
      values.value[i] = float_of_bits(halves[i] << 16U);
    }
    store_halves(halves, count_of(octet, token.width), global + octet * kOctet * 2);
  }
};

__device__ inline Octet sum_of(const Octet& left, const Octet& right) {
  Octet sum;
  for (int i = 0; i < kOctet; ++i) sum.value[i] = __fadd_rn(left.value[i], right.value[i]);
  return sum;
}

// Stores source(octet) as a token of an 8-bit entry, and calls sink(octet, values) with what it
// then decodes to. `here`: whether this slot has such a token. Called by all threads of the block;
// the staged entry is complete after the next __syncthreads().
template <class Source, class Sink>
__device__ void store_eight_bits(const Slot& slot, const StagedToken<kEntryBits>& token, bool here,
                                 const Source& source, Sink& sink) {
  // An entry may be slightly above kHuge, so only values that are not finite are refused.
  const Quantising how{Rounding::nearest, reach_of(kEntryBits, Rounding::nearest), kInfinityBits, 0,
                       0};
  const int rounds = slot.rounds();
  WeighedOctet last{};
  int top = 0;
  // In reverse order, as in write_message(). Other threads read the header of the old entry, but
  // not the planes of this octet.
#pragma unroll 1
  for (int step = 0; step < 2 * rounds; ++step) {
    const bool writes = step >= rounds;
    const int octet = slot.octet(writes ? 2 * rounds - 1 - step : step);
    if (here && step != rounds) last = weigh(source(octet), token, octet, how);
    if (here && !writes) top = max(top, note_code(slot, token, octet, last.scale_code));
    if (step == rounds - 1) {
      top = largest_of_warp(top);
      if (lane_id() == 0) slot.results().entry_top[slot.warp()] = top;
      __syncthreads();
      top = largest_of(slot.results().entry_top, slot.warps());
    }
    if (here && writes) sink(octet, write_weighed(token, last, octet, top, how), false);
  }
  __syncthreads();
  if (here) write_header(slot, token, top);
}

// An 8-bit token whose message has refused groups does not change.
template <int kBits, class Sink>
__device__ void keep_eight_bits(const Slot& slot, const StagedToken<kBits>& message,
                                const EntryToken& entry, Sink& sink) {
  for (int round = 0; round < slot.rounds(); ++round) {
    const int octet = slot.octet(round);
    Octet change;
    const bool refused = read_octet(message, octet, change);
    sink(octet, entry.read(octet), refused);
  }
  for (int i = slot.thread; i < entry.token.size() && entry.fresh; i += slot.threads) {
    entry.token.bytes[i] = 0;
  }
}

// If there is an entry, adds the change in a complete message in shared memory; the values that it
// then decodes to go to sink(octet, values, refused). `refused_groups`: of this slot's message.
// Called by all threads of the block.
template <int kBits, class Sink>
__device__ void advance(const Slot& slot, const StagedToken<kBits>& message,
                        const EntryToken& entry, bool here, int refused_groups, Sink& sink) {
  if (entry.kind != EntryKind::eight_bits) {
    for (int round = 0; here && round < slot.rounds(); ++round) {
      const int octet = slot.octet(round);
      Octet values;
      const bool refused = read_octet(message, octet, values);
      if (entry.kind == EntryKind::bfloat16) {
        values = sum_of(entry.read(octet), values);
        if (octet * kOctet < message.width) entry.write_halves(octet, values);
      }
      sink(octet, values, refused);
    }
    return;
  }
  const auto next = [&](int octet) {
    Octet change;
    read_octet(message, octet, change);
    return sum_of(entry.read(octet), change);
  };
  if (here && refused_groups != 0) keep_eight_bits(slot, message, entry, sink);
  store_eight_bits(slot, entry.token, here && refused_groups == 0, next, sink);
  __syncthreads();
  if (here) entry.store(slot);
}

}  // namespace strait::kernels
