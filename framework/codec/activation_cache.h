#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/store/safetensors_writer.h"
#include "framework/store/sample.h"
#include "kernels/group_format.h"

namespace strait::codec {

// The samples of a training step, in the order of their visits; the same function at both ends.
using VisitOrder = std::function<std::vector<store::SampleId>(store::Step)>;

struct ActivationCacheOptions {
  kernels::EntryKind kind = kernels::EntryKind::bfloat16;
  std::int64_t row_tokens = 0;  // of the longest row
  std::int64_t width = 0;
  std::uint64_t memory_bytes = 0;   // of entries; then
  std::uint64_t disk_bytes = 0;     // these, in a mapped file
  std::filesystem::path disk_file;  // made when first needed, and unlinked at once
  VisitOrder order;
  store::Step first{};  // the next step, and
  store::Step last{};   // the step behind the last of the run
};

// What each sample's last visit left behind at one end of one boundary's direction: entries of one
// size, by sample id, within a byte limit that is the same at both ends.
//
// When it is full, room is made by the entry whose sample is visited again last (its order is
// known), unless that is the newcomer itself; a sample that is never visited again is not kept. An
// entry that was visited in the current step stays. Both ends see the same visits in the same
// order, so they keep the same samples.
//
// Threads: one at a time.
class ActivationCache {
 public:
  explicit ActivationCache(ActivationCacheOptions options);
  ~ActivationCache();
  ActivationCache(const ActivationCache&) = delete;
  ActivationCache& operator=(const ActivationCache&) = delete;

  // Reads ahead what the steps behind this one will ask for.
  void begin_step(store::Step step);

  // The sample's entry; empty where there is none. Valid until the next call of keep().
  std::span<std::byte> find(store::SampleId sample);

  // Room for an entry that is not there yet, by the rule above; empty: it is not kept.
  std::span<std::byte> keep(store::SampleId sample);
  // As keep(), when the other end has kept it: makes room in any case.
  std::span<std::byte> keep_always(store::SampleId sample);

  const ActivationCacheOptions& options() const { return options_; }
  std::uint64_t bytes() const;  // of the entries held
  std::uint64_t evictions() const;

  // Everything, for a checkpoint: tensors that share the cache's memory, their names behind
  // `prefix`. restore() wants them all back and throws StoreError (mismatch) where they are not of
  // these options.
  std::vector<store::NamedTensor> saved(const std::string& prefix) const;
  using ReadTensor = std::function<at::Tensor(const std::string& name)>;
  void restore(const std::string& prefix, const ReadTensor& read);

 private:
  struct State;
  ActivationCacheOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace strait::codec
