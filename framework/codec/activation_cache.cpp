#include "framework/codec/activation_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/store/store_error.h"

namespace strait::codec {
namespace {

// Entries on disk are prefetched this many steps ahead.
constexpr std::int64_t kPrefetchSteps = 2;
// The tensors of saved() that come before the slabs.
constexpr std::size_t kTensorsBeforeSlabs = 2;

SlotStoreOptions slot_options(const ActivationCacheOptions& options) {
  if (options.row_tokens < 1 || options.width < 1 || !options.order) {
    throw std::logic_error(fmt::format("an activation cache for rows of {} tokens of width {}{}",
                                       options.row_tokens, options.width,
                                       options.order ? "" : " without their order"));
  }
  return {static_cast<std::size_t>(kernels::entry_bytes(options.row_tokens, options.width)),
          options.memory_bytes, options.disk_bytes, options.disk_file, options.pinned};
}

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
                            "{} of a saved activation cache is not the index that "
                            "was written; resume without the caches",
                            name);
  }
  return tensor;
}

at::Tensor read_slab(const ActivationCache::ReadTensor& read, const std::string& name,
                     std::size_t entry_bytes) {
  at::Tensor slab = read(name).contiguous();
  if (slab.scalar_type() != at::kByte || slab.dim() != 2 ||
      static_cast<std::size_t>(slab.size(1)) < entry_bytes) {
    throw store::StoreError(store::StoreError::Kind::corrupt,
                            "{} of a saved activation cache has slots of another size "
                            "than its rows take; resume without the caches",
                            name);
  }
  return slab;
}

}  // namespace

ActivationCache::ActivationCache(ActivationCacheOptions options)
    : options_(std::move(options)),
      slots_(slot_options(options_)),
      ahead_(options_.order, options_.last) {}

std::size_t ActivationCache::entry_bytes(std::int64_t tokens) const {
  return static_cast<std::size_t>(kernels::entry_bytes(tokens, options_.width));
}

bool ActivationCache::stays_in_memory(std::int64_t more) const {
  const std::int64_t most = std::min(entries() + more, slots_.capacity());
  return most <= slots_.memory_slots();
}

void ActivationCache::begin_step(store::Step step) {
  if (step_ == step) return;
  // The first step of a process needs no copy: its state is the one that was loaded.
  if (step_ && options_.saved_before && options_.saved_before(step)) preserve_state_before(step);
  const std::int64_t before = step_ ? number(*step_) : number(step) - kPrefetchSteps - 1;
  step_ = step;
  drop_past_uses();
  // Each step is prefetched once: the first call prefetches all steps up to the limit, later calls
  // one more.
  for (std::int64_t ahead = 0; ahead <= kPrefetchSteps; ++ahead) {
    const std::int64_t wanted = number(step) + ahead;
    if (wanted > before + kPrefetchSteps || before >= number(step)) prefetch(store::Step{wanted});
  }
}

void ActivationCache::prefetch(store::Step step) {
  // Entries are added in slot order, and memory comes first: if the last one is in memory, all are.
  if (held_.empty() || !slots_.on_disk(entries() - 1)) return;
  if (number(step) < 0 || step >= options_.last) return;
  for (const store::SampleId sample : options_.order(step)) {
    const auto found = slot_of_.find(sample);
    if (found != slot_of_.end() && slots_.on_disk(found->second)) slots_.prefetch(found->second);
  }
}

std::span<std::byte> ActivationCache::use(std::int64_t slot) {
  Held& held = held_[static_cast<std::size_t>(slot)];
  held.used = step_;
  // The copy is made before the caller can write: preserve() must come before at().
  preserve(slot);
  return slots_.at(slot).first(entry_bytes(held.tokens));
}

// Called before an entry may change.
void ActivationCache::preserve(std::int64_t slot) {
  if (preserved_ == nullptr) return;
  if (preserved_->closed()) return preserved_.reset();
  const SlotStore::Where place = slots_.where(slot);
  const std::uint64_t first = static_cast<std::uint64_t>(place.row) * slots_.slot_bytes();
  preserved_->preserve(kTensorsBeforeSlabs + place.slab, first, first + slots_.slot_bytes());
}

std::span<std::byte> ActivationCache::find(store::SampleId sample) {
  const auto found = slot_of_.find(sample);
  return found == slot_of_.end() ? std::span<std::byte>{} : use(found->second);
}

void ActivationCache::set_checksum(store::SampleId sample, std::uint64_t checksum) {
  held_[static_cast<std::size_t>(slot_of_.at(sample))].checksum = checksum;
}

std::uint64_t ActivationCache::checksum(store::SampleId sample) const {
  return held_[static_cast<std::size_t>(slot_of_.at(sample))].checksum;
}

std::span<std::byte> ActivationCache::keep(store::SampleId sample, std::int64_t tokens) {
  return keep_entry(sample, tokens, false);
}

std::span<std::byte> ActivationCache::keep_always(store::SampleId sample, std::int64_t tokens) {
  return keep_entry(sample, tokens, true);
}

std::span<std::byte> ActivationCache::keep_entry(store::SampleId sample, std::int64_t tokens,
                                                 bool always) {
  if (!step_ || tokens < 1 || tokens > options_.row_tokens) {
    throw std::logic_error(
        fmt::format("sample {} of {} tokens is to be kept {}, {} tokens fit", number(sample),
                    tokens, step_ ? "in a step" : "before the first step", options_.row_tokens));
  }
  const auto found = slot_of_.find(sample);
  std::int64_t slot = 0;
  if (found != slot_of_.end()) {
    slot = found->second;
  } else if (entries() < slots_.capacity()) {
    if (!always) {
      // Decided for the whole run: a resumed run must send the same bytes as one that was never
      // interrupted.
      if (!any_repeats_) any_repeats_ = ahead_.any_repeats();
      if (!*any_repeats_) return {};
    }
    return add(sample, tokens);
  } else {
    const std::optional<std::int64_t> reused = slot_to_reuse(sample, always);
    if (!reused) return {};
    slot = *reused;
  }
  Held& held = held_[static_cast<std::size_t>(slot)];
  bytes_ = bytes_ - entry_bytes(held.tokens) + entry_bytes(tokens);
  held.tokens = tokens;
  return use(slot);
}

std::span<std::byte> ActivationCache::add(store::SampleId sample, std::int64_t tokens) {
  const std::int64_t slot = entries();
  slots_.open(slot);
  held_.push_back({sample, tokens, UpcomingUses::kUnknown, {}, 0});
  slot_of_.emplace(sample, slot);
  bytes_ += entry_bytes(tokens);
  planned_ = false;  // the next uses are computed again when the cache is full again
  return use(slot);
}

std::optional<std::int64_t> ActivationCache::slot_to_reuse(store::SampleId newcomer, bool always) {
  if (slots_.capacity() == 0) return std::nullopt;
  // Entries whose next use is not known yet count as used last, so the walk must come first.
  plan_ahead();
  const Position returns = ahead_.next_after(*step_, newcomer);
  for (auto last = by_next_.rbegin(); last != by_next_.rend(); ++last) {
    if (!always && returns >= last->first) return std::nullopt;
    const std::int64_t slot = slot_of_.at(last->second);
    Held& held = held_[static_cast<std::size_t>(slot)];
    // The caller may still hold this entry: it stays valid until the next step.
    if (held.used == step_) continue;
    // The nodes of both containers are reused, so that an eviction does not allocate.
    auto named = slot_of_.extract(held.sample);
    auto ordered = by_next_.extract({held.next, held.sample});
    unknown_ += (returns == UpcomingUses::kUnknown) - (held.next == UpcomingUses::kUnknown);
    named.key() = newcomer;
    ordered.value() = {returns, newcomer};
    slot_of_.insert(std::move(named));
    by_next_.insert(std::move(ordered));
    held.sample = newcomer;
    held.next = returns;
    ++evictions_;
    return slot;
  }
  return std::nullopt;
}

// Walks the order until every entry's next use is known, or the order ends.
void ActivationCache::plan_ahead() {
  if (!planned_) {
    ahead_.restart(*step_);
    by_next_.clear();
    for (Held& held : held_) {
      held.next = UpcomingUses::kUnknown;
      by_next_.emplace(held.next, held.sample);
    }
    unknown_ = entries();
    planned_ = true;
  }
  while (unknown_ > 0 || ahead_.walked() <= *step_) {
    Position position = ahead_.end();
    if (!ahead_.extend()) return;
    for (; position < ahead_.end(); ++position) {
      const auto found = slot_of_.find(ahead_.at(position).sample);
      if (found == slot_of_.end()) continue;
      const Held& held = held_[static_cast<std::size_t>(found->second)];
      if (held.next == UpcomingUses::kUnknown) set_next(found->second, position);
    }
  }
}

void ActivationCache::drop_past_uses() {
  if (!planned_) return;
  while (ahead_.begin() < ahead_.end() && ahead_.at(ahead_.begin()).step < *step_) {
    const UpcomingUses::Use past = ahead_.at(ahead_.begin());
    ahead_.pop_front();
    const auto found = slot_of_.find(past.sample);
    if (found != slot_of_.end()) set_next(found->second, past.next);
  }
  // The step does not follow the previous one, so the walked order does not lead to it.
  const bool connected = ahead_.begin() < ahead_.end() ? ahead_.at(ahead_.begin()).step == *step_
                                                       : ahead_.walked() == *step_;
  planned_ = connected;
}

void ActivationCache::set_next(std::int64_t slot, Position next) {
  Held& held = held_[static_cast<std::size_t>(slot)];
  auto ordered = by_next_.extract({held.next, held.sample});
  unknown_ += (next == UpcomingUses::kUnknown) - (held.next == UpcomingUses::kUnknown);
  ordered.value() = {next, held.sample};
  by_next_.insert(std::move(ordered));
  held.next = next;
}

// The checkpoint format of ActivationCache: "layout" int64 [3] (tokens of a row, width, slabs),
// "index" int64 [entries, 4] (sample, slot, tokens, checksum), the slabs "slab.0" and so on, and
// the codec's tensors "state.0" and so on.

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
  for (std::size_t i = 0; i < state_.size(); ++i) {
    tensors.push_back({fmt::format("{}state.{}", prefix, i), state_[i]});
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
        "the saved activation cache {} has rows of {} tokens of width {}, and this run "
        "{} of {}; resume without the caches, or with the settings they were saved with",
        prefix, layout[0].item<std::int64_t>(), layout[1].item<std::int64_t>(), options_.row_tokens,
        options_.width);
  }
  const at::Tensor index = read_integers(read, prefix + "index", {-1, kIndexColumns});
  if (index.size(0) > slots_.capacity()) {
    throw store::StoreError(store::StoreError::Kind::mismatch,
                            "the saved activation cache {} holds {} rows, but this run's limits "
                            "have room for {}; resume without the caches, or with the limits "
                            "they were saved with",
                            prefix, index.size(0), slots_.capacity());
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
  for (std::size_t i = 0; i < state_.size(); ++i) {
    state_[i] = read(fmt::format("{}state.{}", prefix, i)).contiguous();
  }
  if (line == index.size(0)) return;
  throw store::StoreError(store::StoreError::Kind::corrupt,
                          "{}index of a saved activation cache says sample {}, slot {}, {} "
                          "tokens in line {}, which cannot be; resume without the caches",
                          prefix, row[0], row[1], row[2], line);
}

}  // namespace strait::codec
