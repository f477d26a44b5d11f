#pragma once

#include <set>
#include <unordered_map>

#include "framework/codec/slot_store.h"
#include "framework/codec/upcoming_uses.h"
#include "framework/mutex.h"
#include "framework/store/sample.h"
#include "framework/tensors/snapshot.h"
#include "kernels/group_format.h"

namespace strait::codec {

struct ActivationCacheOptions {
  std::int64_t row_tokens = 0;  // of the longest row
  std::int64_t width = 0;
  std::uint64_t memory_bytes = 0;   // entries in memory; they are filled first
  std::uint64_t disk_bytes = 0;     // entries in a mapped file
  std::filesystem::path disk_file;  // created when first needed, and unlinked at once
  bool pinned = false;  // entries in memory are pinned, so that kernels of a device can use them
  UseOrder order;
  store::Step last{};  // one past the last step of the run
  // Whether snapshot() will be called for the state before this step. Empty: never.
  std::function<bool(store::Step)> saved_before = {};
  std::shared_ptr<tensors::SnapshotMemory> snapshot_memory = {};  // needed with saved_before
};

// The cached activations of samples at one end of one direction of a boundary: entries of one size,
// by sample id, within a byte limit that both ends share.
//
// Eviction is Belady's, since the order of uses is known: a full cache evicts the entry whose
// sample is used again last, or does not cache the new sample if that one is used last. If no
// sample is used again before the run ends, nothing is cached. An entry that was used in the
// current step is never evicted. Both ends see the same accesses in the same order, so they hold
// the same samples without exchanging messages. The order is not walked before the cache is full.
//
// Threads: one at a time; snapshot() may be called concurrently.
class ActivationCache {
 public:
  explicit ActivationCache(ActivationCacheOptions options);
  ActivationCache(const ActivationCache&) = delete;
  ActivationCache& operator=(const ActivationCache&) = delete;

  // Must be called before a step's first access. Prefetches entries on disk for the next steps. No
  // effect if `step` is already the current step.
  void begin_step(store::Step step);
  std::optional<store::Step> step() const { return step_; }

  // An access: the sample's entry of kernels::entry_bytes() for its tokens; empty on a cache miss.
  // Valid until the next step.
  std::span<std::byte> find(store::SampleId sample);

  // An access: uninitialised memory for the sample's entry. Empty: the sample is not cached. Throws
  // StoreError if memory or disk have less room than the limits promise.
  std::span<std::byte> keep(store::SampleId sample, std::int64_t tokens);
  // Like keep(), for a sample that the other end has cached. Empty only if every entry was used in
  // this step, which cannot happen if both ends have the same limits.
  std::span<std::byte> keep_always(store::SampleId sample, std::int64_t tokens);

  // A checksum that is stored with the entry and saved with it. The caller compares it with the
  // entry's bytes to detect corrupted memory.
  void set_checksum(store::SampleId sample, std::uint64_t checksum);
  std::uint64_t checksum(store::SampleId sample) const;

  // Tensors of the codec that uses the cache, which are saved with the entries. To change one, a
  // codec replaces it: snapshots share their memory. restore() needs as many as there are.
  void set_state(std::vector<at::Tensor> state) { state_ = std::move(state); }
  const std::vector<at::Tensor>& state() const { return state_; }

  const ActivationCacheOptions& options() const { return options_; }
  std::int64_t entries() const { return static_cast<std::int64_t>(held_.size()); }
  // Whether all entries stay in memory after this many are added.
  bool stays_in_memory(std::int64_t more) const;
  std::uint64_t bytes() const { return bytes_; }  // of all entries
  std::uint64_t evictions() const { return evictions_; }

  // The state for a checkpoint: tensors that share the cache's memory, named with `prefix`.
  // restore() needs an empty cache and all of these tensors, and holds one slab of them at a time.
  // Throws StoreError (mismatch) if they were saved with other options.
  static constexpr const char* kLayout = "layout";  // the name of a tensor that every cache has
  std::vector<tensors::NamedTensor> saved(const std::string& prefix) const;
  using ReadTensor = std::function<at::Tensor(const std::string& name)>;
  void restore(const std::string& prefix, const ReadTensor& read);

  // The state before `step`, for which saved_before is true, without prefix. It is for a thread
  // that writes it while the cache is in use. May be called after accesses of that step, but not of
  // a later one: the cache makes the snapshot at the start of the step if this call has not.
  // Accesses copy what they are about to change, or wait for the writer (tensors::Snapshot).
  std::shared_ptr<tensors::Snapshot> snapshot(store::Step step) STRAIT_EXCLUDES(snapshot_mutex_);

 private:
  using Position = UpcomingUses::Position;
  struct Held {  // by slot
    store::SampleId sample{};
    std::int64_t tokens = 0;
    Position next = UpcomingUses::kUnknown;
    std::optional<store::Step> used;
    std::uint64_t checksum = 0;
  };

  std::size_t entry_bytes(std::int64_t tokens) const;
  std::span<std::byte> use(std::int64_t slot);
  void preserve(std::int64_t slot);
  void preserve_state_before(store::Step step) STRAIT_EXCLUDES(snapshot_mutex_);
  void take_snapshot(store::Step step) STRAIT_REQUIRES(snapshot_mutex_);
  std::span<std::byte> keep_entry(store::SampleId sample, std::int64_t tokens, bool always);
  std::span<std::byte> add(store::SampleId sample, std::int64_t tokens);
  std::optional<std::int64_t> slot_to_reuse(store::SampleId newcomer, bool always);
  void plan_ahead();
  void drop_past_uses();
  void set_next(std::int64_t slot, Position next);
  void prefetch(store::Step step);

  ActivationCacheOptions options_;
  SlotStore slots_;
  std::vector<Held> held_;
  std::unordered_map<store::SampleId, std::int64_t> slot_of_;
  std::vector<at::Tensor> state_;
  std::optional<store::Step> step_;
  std::optional<bool> any_repeats_;
  std::uint64_t bytes_ = 0;
  std::uint64_t evictions_ = 0;

  Mutex snapshot_mutex_;
  std::pair<store::Step, std::shared_ptr<tensors::Snapshot>> snapshot_
      STRAIT_GUARDED_BY(snapshot_mutex_);
  // the same snapshot, for accesses; null: none is being read
  std::shared_ptr<tensors::Snapshot> preserved_;

  // Unused until the cache is full for the first time.
  UpcomingUses ahead_;
  bool planned_ = false;
  std::set<std::pair<Position, store::SampleId>> by_next_;
  std::int64_t unknown_ = 0;  // entries whose next use is after the walked steps
};

}  // namespace strait::codec
