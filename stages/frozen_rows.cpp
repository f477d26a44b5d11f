#include "stages/frozen_rows.h"

#include <ATen/ATen.h>

#include "kernels/kernel_tensors.h"

namespace strait::stages {
namespace {

codec::SlotStoreOptions store_options(const FrozenRowsOptions& options) {
  const codec::CacheLimits& limits = options.limits;
  // The disk reserves what it is asked for, so no more than the rows need.
  const std::int64_t on_disk = limits.rows * limits.entry_bytes - limits.used_memory();
  return {.slot_bytes = static_cast<std::size_t>(limits.entry_bytes),
          .memory_bytes = static_cast<std::uint64_t>(limits.memory_bytes),
          .disk_bytes = static_cast<std::uint64_t>(std::min(limits.disk_bytes, on_disk)),
          .disk_file = options.disk_file,
          .what = "frozen rows (codec.cache, codec.cache_disk)"};
}

}  // namespace

FrozenRows::FrozenRows(FrozenRowsOptions options)
    : options_(std::move(options)),
      order_(options_.order),
      visited_(static_cast<std::size_t>(options_.order.rows)),
      store_(store_options(options_)) {}

bool FrozenRows::holds(const Phase& phase, MicroBatch micro_batch) {
  if (!phase.training) return false;
  if (step_ != phase.step) {
    for (const store::SampleId sample : samples_) {
      visited_[static_cast<std::size_t>(number(sample))] = true;
    }
    step_ = phase.step;
    samples_ = order_.samples(phase.step);
  }
  return std::ranges::all_of(samples_of(micro_batch), [this](store::SampleId sample) {
    return visited_[static_cast<std::size_t>(number(sample))];
  });
}

std::span<const store::SampleId> FrozenRows::samples_of(MicroBatch micro_batch) const {
  const auto rows = static_cast<std::size_t>(options_.micro_batch_rows);
  return std::span(samples_).subspan(static_cast<std::size_t>(number(micro_batch)) * rows, rows);
}

at::Tensor FrozenRows::values_of(std::span<std::byte> slot) const {
  return at::from_blob(slot.data(), like_.sizes(), like_.options().device(at::kCPU));
}

void FrozenRows::keep(const Flow& input) {
  for (std::int64_t i = 0; i < input.rows.size(); ++i) {
    const codec::Row& row = input.rows.rows[static_cast<std::size_t>(i)];
    const auto slot = static_cast<std::int64_t>(kept_.size());
    if (!kept_.emplace(row.sample, Kept{slot, row}).second) continue;
    if (!like_.defined()) like_ = at::empty_like(input.values[i]);
    TORCH_INTERNAL_ASSERT(like_.nbytes() <= store_.slot_bytes(), "a row of ", like_.nbytes(),
                          " bytes where ", store_.slot_bytes(), " were planned");
    values_of(store_.open(slot)).copy_(input.values[i]);
  }
}

Flow FrozenRows::flow(MicroBatch micro_batch) const {
  Flow flow;
  std::vector<at::Tensor> values;
  for (const store::SampleId sample : samples_of(micro_batch)) {
    const Kept& kept = kept_.at(sample);
    flow.rows.rows.push_back(kept.row);
    values.push_back(values_of(store_.at(kept.slot)));
  }
  flow.rows.padded_length = like_.size(0);
  flow.values = kernels::on_device(at::stack(values), like_.device());
  return flow;
}

}  // namespace strait::stages
