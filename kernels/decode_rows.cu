#include "kernels/entry_update.cuh"
#include "kernels/processors.h"
#include "kernels/row_launch.cuh"

namespace strait::kernels::cuda {
namespace {

// Writes a token's values.
struct ValueSink {
  std::uint8_t* bytes;
  Element element;
  int width;

  __device__ void operator()(int octet, const Octet& values, bool refused) const {
    store_elements(values, refused, element, count_of(octet, width),
                   bytes + octet * kOctet * static_cast<int>(bytes_of(element)));
  }
};

template <int kBits>
__device__ __forceinline__ void decode_token(const Slot& slot, const GpuRow& row,
                                             const RowShape& shape) {
  const auto width = static_cast<int>(shape.width);
  const std::int64_t token = token_of_slot();
  const bool here = token < row.tokens;
  const std::int64_t at = here ? token : 0;
  const EntryToken entry(row.entry, row.fresh, at, width);
  StagedToken<kBits> message(nullptr, row.format, width);
  const auto* const payload =
      reinterpret_cast<const std::uint8_t*>(row.payload) + at * message.size();
  message.bytes = slot.message(payload);
  const ValueSink sink{
      static_cast<std::uint8_t*>(row.values) + at * shape.width * bytes_of(shape.element),
      shape.element, width};
  if (here) copy_bytes(slot, message.bytes, payload, message.size());
  __syncthreads();
  if (here) advance(slot, message, entry, sink);
}

__device__ __forceinline__ void decode_token_of(const Slot& slot, const GpuRow& row,
                                                const RowShape& shape) {
  switch (row.format.bits) {
    case 2:
      return decode_token<2>(slot, row, shape);
    case 3:
      return decode_token<3>(slot, row, shape);
    case 4:
      return decode_token<4>(slot, row, shape);
    case 5:
      return decode_token<5>(slot, row, shape);
    case 6:
      return decode_token<6>(slot, row, shape);
    case 7:
      return decode_token<7>(slot, row, shape);
    default:
      return decode_token<8>(slot, row, shape);
  }
}

__global__ void __launch_bounds__(32 * kMostWarps, 2)
    decode_table(const __grid_constant__ RowTable table, const __grid_constant__ RowShape shape,
                 const __grid_constant__ SlotLayout layout) {
  STRAIT_SHARED_MEMORY(memory);
  const GpuRow& row = table.rows[blockIdx.y];
  if (blockIdx.x >= table.blocks[blockIdx.y]) return;
  decode_token_of(slot_of_block(memory, layout), row, shape);
}

}  // namespace

void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  for_each_table(shape, rows,
                 [&](const RowTable& table, std::span<const GpuRow> some, std::size_t) {
                   const Cut cut = cut_rows(shape, some);
                   ask_for_shared_memory(decode_table, cut);
                   STRAIT_LAUNCH(decode_table, cut.grid, cut.block, cut.shared_bytes,
                                 static_cast<cudaStream_t>(stream))
                   (table, shape, cut.slot);
                   check_cuda(cudaGetLastError(), "decode_rows");
                 });
}

}  // namespace strait::kernels::cuda
