#include "kernels/entry_update.cuh"
#include "kernels/processors.h"
#include "kernels/row_launch.cuh"

namespace strait::kernels::cuda {
namespace {

// Reads a token's values.
struct TokenValues {
  const std::uint8_t* bytes;
  Element element;
  int width;

  __device__ Octet read(int octet) const {
    return load_elements(bytes + octet * kOctet * static_cast<int>(bytes_of(element)), element,
                         count_of(octet, width));
  }
};

// Adds the part that the other side will not know to `error`.
struct ErrorSink {
  TokenValues values;
  bool wanted;
  float error = 0.0F;

  __device__ void operator()(int octet, const Octet& known, bool /*refused*/) {
    if (!wanted) return;
    Octet missing = values.read(octet);
    for (int i = 0; i < kOctet; ++i) {
      const bool there = i < count_of(octet, values.width);
      missing.value[i] = there ? __fsub_rn(missing.value[i], known.value[i]) : 0.0F;
    }
    error = __fadd_rn(error, sum_of_squares(missing));
  }
};

// The change of an octet since its entry.
__device__ inline Octet change_of(const Octet& now, const EntryToken& base, int octet) {
  Octet change = base.read(octet);
  for (int i = 0; i < kOctet; ++i) {
    // A huge value is refused whatever its base.
    const bool fine = (bits_of_float(now.value[i]) & kSizeBits) < kHugeBits;
    change.value[i] = fine ? __fsub_rn(now.value[i], change.value[i]) : float_of_bits(0x7FC00000);
  }
  return change;
}

// Writes a token's message to shared memory; it is complete after the next __syncthreads(). Returns
// the number of refused groups. Called by all threads of the block.
template <int kBits>
__device__ int write_message(const Slot& slot, const StagedToken<kBits>& token,
                             const TokenValues& values, const EntryToken& base,
                             const Quantising& how, bool here, bool sums_wanted) {
  WarpResults& results = slot.results();
  const int rounds = slot.rounds();
  WeighedOctet last{};
  int top = 0;
  int refused = 0;
  float value_squares = 0.0F;
  float change_squares = 0.0F;
  // Weighs all octets, then writes them in reverse order, because the last one is still in
  // registers.
#pragma unroll 1
  for (int step = 0; step < 2 * rounds; ++step) {
    const bool writes = step >= rounds;
    const int octet = slot.octet(writes ? 2 * rounds - 1 - step : step);
    if (here && step != rounds) {
      const Octet now = values.read(octet);
      const Octet change = change_of(now, base, octet);
      if (sums_wanted && !writes) {
        value_squares = __fadd_rn(value_squares, sum_of_squares(now));
        change_squares = __fadd_rn(change_squares, sum_of_squares(change));
      }
      last = weigh(change, token, octet, how);
    }
    if (here && !writes) {
      top = max(top, note_code(slot, token, octet, last.scale_code));
      const bool first = token.is_first(octet) && octet * kOctet < token.width;
      refused += __popc(__ballot_sync(kAllLanes, first && last.scale_code == kRefusedScaleCode));
    }
    if (step == rounds - 1) {
      top = largest_of_warp(top);
      value_squares = sum_of_warp(value_squares);
      change_squares = sum_of_warp(change_squares);
      if (lane_id() == 0) {
        results.top[slot.warp()] = top;
        results.refused[slot.warp()] = refused;
        results.value[slot.warp()] = value_squares;
        results.change[slot.warp()] = change_squares;
      }
      __syncthreads();
      top = largest_of(results.top, slot.warps());
    }
    if (here && writes) write_weighed(token, last, octet, top, how);
  }
  if (here) write_header(slot, token, top);
  refused = 0;
  for (int w = 0; w < slot.warps(); ++w) refused += results.refused[w];
  return refused;
}

template <int kBits>
__device__ __forceinline__ void encode_token(const Slot& slot, const GpuRow& row,
                                             const RowShape& shape, TokenSquares* squares) {
  const auto width = static_cast<int>(shape.width);
  const std::int64_t token = token_of_slot();
  const bool here = token < row.tokens;
  const std::int64_t at = here ? token : 0;
  const EntryToken entry(row.entry, row.fresh, at, width);
  StagedToken<kBits> message(nullptr, row.format, width);
  auto* const payload = reinterpret_cast<std::uint8_t*>(row.payload) + at * message.size();
  message.bytes = slot.message(payload);
  const TokenValues values{
      static_cast<const std::uint8_t*>(row.values) + at * shape.width * bytes_of(shape.element),
      shape.element, width};
  const Quantising how{row.draw.rounding, reach_of(kBits, row.draw.rounding),
                       draw_words(row.draw.key), static_cast<std::uint32_t>(at * shape.width)};
  const bool sums_wanted = squares != nullptr;
  ErrorSink sink{values, sums_wanted};
  const int refused = write_message(slot, message, values, entry, how, here, sums_wanted);
  __syncthreads();
  if (here) copy_bytes(slot, payload, message.bytes, message.size());
  if (row.entry == nullptr && !sums_wanted) return;
  if (here) advance(slot, message, entry, sink);
  if (!sums_wanted) return;
  const float error = sum_of_warp(sink.error);
  if (lane_id() == 0) slot.results().error[slot.warp()] = error;
  __syncthreads();
  if (here && slot.thread == 0) {
    finish_token(slot.results(), slot.warps(), refused, squares[token]);
  }
}

__device__ __forceinline__ void encode_token_of(const Slot& slot, const GpuRow& row,
                                                const RowShape& shape, TokenSquares* squares) {
  switch (row.format.bits) {
    case 2:
      return encode_token<2>(slot, row, shape, squares);
    case 3:
      return encode_token<3>(slot, row, shape, squares);
    case 4:
      return encode_token<4>(slot, row, shape, squares);
    case 5:
      return encode_token<5>(slot, row, shape, squares);
    case 6:
      return encode_token<6>(slot, row, shape, squares);
    case 7:
      return encode_token<7>(slot, row, shape, squares);
    default:
      return encode_token<8>(slot, row, shape, squares);
  }
}

__global__ void __launch_bounds__(32 * kMostWarps, 2)
    encode_table(const __grid_constant__ RowTable table, const __grid_constant__ RowShape shape,
                 const __grid_constant__ SlotLayout layout,
                 const __grid_constant__ LaunchSums sums) {
  STRAIT_SHARED_MEMORY(memory);
  const GpuRow& row = table.rows[blockIdx.y];
  const unsigned blocks = table.blocks[blockIdx.y];
  if (blockIdx.x >= blocks) return;
  const Slot slot = slot_of_block(memory, layout);
  TokenSquares* const squares =
      sums.rows == nullptr ? nullptr : sums.tokens + table.first_token[blockIdx.y];
  encode_token_of(slot, row, shape, squares);
  if (squares == nullptr) return;
  auto& shared =
      *reinterpret_cast<RowResults*>(memory + blockDim.y * static_cast<unsigned>(layout.bytes));
  finish_row(shared, squares, row.tokens, blocks, sums.finished_blocks + blockIdx.y,
             sums.rows + blockIdx.y);
}

}  // namespace

std::string_view device_type() { return STRAIT_GPU_DEVICE; }

bool has_image() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(
                         &attributes, reinterpret_cast<const void*>(encode_table)) == cudaSuccess;
  if (!found) cudaGetLastError();  // otherwise the next call would report it
  return found;
}

void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums) {
  for_each_table(shape, rows,
                 [&](const RowTable& table, std::span<const GpuRow> some, std::size_t first) {
                   const Cut cut = cut_rows(shape, some);
                   ask_for_shared_memory(encode_table, cut);
                   LaunchSums at;
                   if (sums.rows != nullptr) {
                     // Launches run in sequence on the stream, so all use the same scratch.
                     auto* const counters = reinterpret_cast<unsigned*>(sums.scratch);
                     at = {sums.rows + first, counters,
                           reinterpret_cast<TokenSquares*>(counters + kRowsPerLaunch)};
                   }
                   STRAIT_LAUNCH(encode_table, cut.grid, cut.block, cut.shared_bytes,
                                 static_cast<cudaStream_t>(stream))
                   (table, shape, cut.slot, at);
                   check_cuda(cudaGetLastError(), "encode_rows");
                 });
}

}  // namespace strait::kernels::cuda
