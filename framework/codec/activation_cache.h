#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/codec/slot_store.h"
#include "framework/codec/visits_ahead.h"
#include "framework/store/safetensors_writer.h"
#include "framework/store/sample.h"
#include "kernels/group_format.h"

namespace strait::codec {

struct ActivationCacheOptions {
  kernels::EntryKind kind = kernels::EntryKind::bfloat16;
  std::int64_t row_tokens = 0;  // of the longest row
  std::int64_t width = 0;
  std::uint64_t memory_bytes = 0;   // of entries; then
  std::uint64_t disk_bytes = 0;     // these, in a mapped file
  std::filesystem::path disk_file;  // made when first needed, and unlinked at once
  VisitOrder order;
  store::Step last{};  // the step behind the last of the run
};

// What each sample's last visit left behind at one end of one boundary's direction: entries of one
// size, by sample id, within a byte limit that is the same at both ends.
//
// When it is full, room is made by the entry whose sample is visited again last (the order is
// known), unless that is the newcomer itself; and where no sample comes back before the run ends,
// nothing is kept. An entry that was visited in the current step stays. Both ends see the same
// visits in the same order, so they keep the same samples. As long as everything fits, the order is
// not walked.
//
// Threads: one at a time.
class ActivationCache {
 public:
  explicit ActivationCache(ActivationCacheOptions options);
  ActivationCache(const ActivationCache&) = delete;
  ActivationCache& operator=(const ActivationCache&) = delete;

  // To be called before a step's first visit. Reads ahead what the steps behind it will ask for
  // where that is on disk. Nothing where it is the current step already.
  void begin_step(store::Step step);
  std::optional<store::Step> step() const { return step_; }

  // A visit: the sample's entry, kernels::entry_bytes() of its tokens; empty where there is none.
  // Valid until the next step.
  std::span<std::byte> find(store::SampleId sample);

  // A visit: room for the sample's entry; what was there is not cleared. Empty: it is not kept.
  // Throws StoreError where memory or disk have less room than the limits say.
  std::span<std::byte> keep(store::SampleId sample, std::int64_t tokens);
  // As keep(), when the other end has kept it. Empty only when every entry was visited in this
  // step, which an end of the same limits never sees.
  std::span<std::byte> keep_always(store::SampleId sample, std::int64_t tokens);

  // A word that is kept beside an entry, and saved with it: what its owner checks its bytes
  // against.
  void seal(store::SampleId sample, std::uint64_t word);
  std::uint64_t sealed(store::SampleId sample) const;

  const ActivationCacheOptions& options() const { return options_; }
  std::int64_t entries() const { return static_cast<std::int64_t>(held_.size()); }
  std::uint64_t bytes() const { return bytes_; }  // of the entries held
  std::uint64_t evictions() const { return evictions_; }

  // Everything, for a checkpoint: tensors that share the cache's memory, their names behind
  // `prefix`. restore() is for an empty cache; it wants them all back and throws StoreError
  // (mismatch) where they are not of these options.
  std::vector<store::NamedTensor> saved(const std::string& prefix) const;
  using ReadTensor = std::function<at::Tensor(const std::string& name)>;
  void restore(const std::string& prefix, const ReadTensor& read);

 private:
  using Position = VisitsAhead::Position;
  struct Held {  // by slot
    store::SampleId sample{};
    std::int64_t tokens = 0;
    Position next = VisitsAhead::kUnknown;
    std::optional<store::Step> visited;
    std::uint64_t seal = 0;
  };

  std::size_t entry_bytes(std::int64_t tokens) const;
  std::span<std::byte> visit(std::int64_t slot);
  std::span<std::byte> remember(store::SampleId sample, std::int64_t tokens, bool always);
  std::span<std::byte> add(store::SampleId sample, std::int64_t tokens);
  std::optional<std::int64_t> slot_to_reuse(store::SampleId newcomer, bool always);
  void plan_ahead();
  void drop_past_visits();
  void set_next(std::int64_t slot, Position next);
  void prefetch(store::Step step);

  ActivationCacheOptions options_;
  SlotStore slots_;
  std::vector<Held> held_;
  std::unordered_map<store::SampleId, std::int64_t> slot_of_;
  std::optional<store::Step> step_;
  std::optional<bool> any_returns_;
  std::uint64_t bytes_ = 0;
  std::uint64_t evictions_ = 0;

  // From the first time that it was full.
  VisitsAhead ahead_;
  bool planned_ = false;
  std::set<std::pair<Position, store::SampleId>> by_next_;
  std::int64_t unknown_ = 0;  // entries whose next visit was not walked to
};

}  // namespace strait::codec
