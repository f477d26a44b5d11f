#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <stdexcept>

#include "framework/codec/activation_cache.h"
#include "framework/store/store_error.h"

// The checkpoint format of ActivationCache: "layout" int64 [3] (tokens of a row, width, slabs),
// "index" int64 [entries, 4] (sample, slot, tokens, checksum), and the slabs "slab.0" and so on.
namespace strait::codec {
namespace {

constexpr std::int64_t kIndexColumns = 4;

at::Tensor layout_of(const ActivationCacheOptions& options, std::int64_t slabs) {
  return at::tensor({options.row_tokens, options.width, slabs}, at::kLong);
}

at::Tensor read_integers(const ActivationCache::ReadTensor& read, const std::string& name,
                         at::IntArrayRef shape) {
  at::Tensor tensor = read(name).contiguous();
  const bool right = tensor.scalar_type() == at::kLong &&
                     tensor.dim() == static_cast<std::int64_t>(shape.size()) &&
                     tensor.size(-1) == shape.back();
  if (!right) {
    throw store::StoreError(store::StoreError::Kind::corrupt,
                            fmt::format("{} of a saved activation cache is not the index that "
                                        "was written; resume without the caches",
                                        name));
  }
  return tensor;
}

at::Tensor read_slab(const ActivationCache::ReadTensor& read, const std::string& name,
                     std::size_t entry_bytes) {
  at::Tensor slab = read(name).contiguous();
  if (slab.scalar_type() != at::kByte || slab.dim() != 2 ||
      static_cast<std::size_t>(slab.size(1)) < entry_bytes) {
    throw store::StoreError(store::StoreError::Kind::corrupt,
                            fmt::format("{} of a saved activation cache has slots of another size "
                                        "than its rows take; resume without the caches",
                                        name));
  }
  return slab;
}

}  // namespace

std::vector<tensors::NamedTensor> ActivationCache::saved(const std::string& prefix) const {
  const std::vector<at::Tensor> slabs = slots_.slabs(entries());
  at::Tensor index = at::empty({entries(), kIndexColumns}, at::kLong);
  auto* row = index.mutable_data_ptr<std::int64_t>();
  for (std::size_t slot = 0; slot < held_.size(); ++slot) {
    *row++ = number(held_[slot].sample);
    *row++ = static_cast<std::int64_t>(slot);
    *row++ = held_[slot].tokens;
    *row++ = std::bit_cast<std::int64_t>(held_[slot].checksum);
  }
  std::vector<tensors::NamedTensor> tensors;
  tensors.push_back(
      {prefix + kLayout, layout_of(options_, static_cast<std::int64_t>(slabs.size()))});
  tensors.push_back({prefix + "index", std::move(index)});
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    tensors.push_back({fmt::format("{}slab.{}", prefix, i), slabs[i]});
  }
  return tensors;
}

std::shared_ptr<tensors::Snapshot> ActivationCache::snapshot(store::Step step) {
  const MutexLock lock(snapshot_mutex_);
  // A closed snapshot belongs to a checkpoint that is now written again, in a pause.
  const bool there = snapshot_.second != nullptr && snapshot_.first == step;
  if (!there || snapshot_.second->closed()) take_snapshot(step);
  return snapshot_.second;
}

void ActivationCache::preserve_state_before(store::Step step) {
  const MutexLock lock(snapshot_mutex_);
  // A closed snapshot has been written, so nothing has to be preserved.
  if (snapshot_.second == nullptr || snapshot_.first != step) take_snapshot(step);
  preserved_ = snapshot_.second;
}

void ActivationCache::take_snapshot(store::Step step) {
  // The old one is still open if its checkpoint was dropped.
  if (snapshot_.second != nullptr) snapshot_.second->close();
  snapshot_ = {step, std::make_shared<tensors::Snapshot>(saved(""), options_.snapshot_memory)};
}

void ActivationCache::restore(const std::string& prefix, const ReadTensor& read) {
  if (!held_.empty()) throw std::logic_error("an activation cache is restored that holds entries");
  const at::Tensor layout = read_integers(read, prefix + kLayout, {3});
  const auto slab_count = layout[2].item<std::int64_t>();
  if (!at::equal(layout, layout_of(options_, slab_count))) {
    throw store::StoreError(
        store::StoreError::Kind::mismatch,
        fmt::format(
            "the saved activation cache {} has rows of {} tokens of width {}, and this run "
            "{} of {}; resume without the caches, or with the settings they were saved with",
            prefix, layout[0].item<std::int64_t>(), layout[1].item<std::int64_t>(),
            options_.row_tokens, options_.width));
  }
  const at::Tensor index = read_integers(read, prefix + "index", {-1, kIndexColumns});
  if (index.size(0) > slots_.capacity()) {
    throw store::StoreError(
        store::StoreError::Kind::mismatch,
        fmt::format("the saved activation cache {} holds {} rows, but this run's limits "
                    "have room for {}; resume without the caches, or with the limits "
                    "they were saved with",
                    prefix, index.size(0), slots_.capacity()));
  }
  // A damaged index must not make two samples share a slot, or an entry exceed its slot.
  const auto is_possible = [this](const std::int64_t* line) {
    return line[2] >= 1 && line[2] <= options_.row_tokens &&
           !slot_of_.contains(store::SampleId{line[0]});
  };
  // One slab at a time, because all together may exceed the memory.
  const auto* row = index.const_data_ptr<std::int64_t>();
  std::int64_t line = 0;
  std::int64_t begin = 0;  // the slab's first slot
  for (std::int64_t i = 0; i < slab_count; ++i) {
    const at::Tensor slab =
        read_slab(read, fmt::format("{}slab.{}", prefix, i), slots_.slot_bytes());
    const auto* bytes = static_cast<const std::byte*>(slab.const_data_ptr());
    const std::int64_t end = begin + slab.size(0);
    // The index is sorted by slot, as saved() wrote it, so one pass over the slabs meets every
    // line.
    for (; line < index.size(0) && row[1] < end; ++line, row += kIndexColumns) {
      if (row[1] < begin || !is_possible(row)) break;
      const std::span<std::byte> entry = add(store::SampleId{row[0]}, row[2]);
      std::memcpy(entry.data(), bytes + (row[1] - begin) * slab.size(1), entry.size());
      set_checksum(store::SampleId{row[0]}, std::bit_cast<std::uint64_t>(row[3]));
    }
    begin = end;
  }
  if (line == index.size(0)) return;
  throw store::StoreError(
      store::StoreError::Kind::corrupt,
      fmt::format("{}index of a saved activation cache says sample {}, slot {}, {} "
                  "tokens in line {}, which cannot be; resume without the caches",
                  prefix, row[0], row[1], row[2], line));
}

}  // namespace strait::codec
