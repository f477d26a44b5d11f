#include "kernels/entry_update.cuh"
#include "kernels/processors.h"
#include "kernels/row_launch.cuh"

namespace strait::kernels::cuda {
namespace {

__device__ std::uint8_t* octet_of(std::uint8_t* values, int octet, Element element) {
  return values + octet * kOctet * static_cast<int>(bytes_of(element));
}

__global__ void __launch_bounds__(32 * kMostWarps, 2)
    store_table(const __grid_constant__ RowTable table, const __grid_constant__ RowShape shape,
                const __grid_constant__ SlotLayout layout) {
  STRAIT_SHARED_MEMORY(memory);
  const GpuRow& row = table.rows[blockIdx.y];
  if (blockIdx.x >= table.blocks[blockIdx.y]) return;
  const Slot slot = slot_of_block(memory, layout);
  const auto width = static_cast<int>(shape.width);
  const bool here = token_of_slot() < row.tokens;
  const std::int64_t at = here ? token_of_slot() : 0;
  const EntryToken entry(slot, row.entry, shape.kind, true, at, width);
  auto* const all =
      static_cast<std::uint8_t*>(row.values) + at * shape.width * bytes_of(shape.element);
  const auto finite = [&](int octet) {
    Octet values =
        load_elements(octet_of(all, octet, shape.element), shape.element, count_of(octet, width));
    for (float& value : values.value) {
      if ((bits_of_float(value) & kSizeBits) >= kHugeBits) value = 0.0F;
    }
    return values;
  };
  if (shape.kind == CacheFormat::bfloat16) {
    for (int round = 0; here && round < slot.rounds(); ++round) {
      Octet values = finite(slot.octet(round));
      entry.write_halves(slot.octet(round), values);
    }
    return;
  }
  const auto no_reader = [](int, const Octet&, bool) {};
  store_eight_bits(slot, entry.token, here, finite, no_reader);
  __syncthreads();
  if (here) entry.store(slot);
}

__global__ void __launch_bounds__(32 * kMostWarps, 2)
    load_table(const __grid_constant__ RowTable table, const __grid_constant__ RowShape shape,
               const __grid_constant__ SlotLayout layout) {
  STRAIT_SHARED_MEMORY(memory);
  const GpuRow& row = table.rows[blockIdx.y];
  if (blockIdx.x >= table.blocks[blockIdx.y]) return;
  const Slot slot = slot_of_block(memory, layout);
  const auto width = static_cast<int>(shape.width);
  const bool here = token_of_slot() < row.tokens;
  const std::int64_t at = here ? token_of_slot() : 0;
  const EntryToken entry(slot, row.entry, shape.kind, false, at, width);
  auto* const all =
      static_cast<std::uint8_t*>(row.values) + at * shape.width * bytes_of(shape.element);
  if (here) entry.fetch(slot);
  __syncthreads();
  for (int round = 0; here && round < slot.rounds(); ++round) {
    const int octet = slot.octet(round);
    Octet values;
    bool refused = false;
    if (entry.kind == EntryKind::eight_bits) {
      refused = read_octet(entry.token, octet, values);
    } else {
      values = entry.read(octet);
    }
    store_elements(values, refused, shape.element, count_of(octet, width),
                   octet_of(all, octet, shape.element));
  }
}

}  // namespace

void store_entries(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  for_each_table(shape, rows,
                 [&](const RowTable& table, std::span<const GpuRow> some, std::size_t) {
                   const Cut cut = cut_rows(shape, some, Staged::entry);
                   ask_for_shared_memory(store_table, cut);
                   STRAIT_LAUNCH(store_table, cut.grid, cut.block, cut.shared_bytes,
                                 static_cast<cudaStream_t>(stream))
                   (table, shape, cut.slot);
                   check_cuda(cudaGetLastError(), "store_entries");
                 });
}

void load_entries(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  for_each_table(shape, rows,
                 [&](const RowTable& table, std::span<const GpuRow> some, std::size_t) {
                   const Cut cut = cut_rows(shape, some, Staged::entry);
                   ask_for_shared_memory(load_table, cut);
                   STRAIT_LAUNCH(load_table, cut.grid, cut.block, cut.shared_bytes,
                                 static_cast<cudaStream_t>(stream))
                   (table, shape, cut.slot);
                   check_cuda(cudaGetLastError(), "load_entries");
                 });
}

}  // namespace strait::kernels::cuda
