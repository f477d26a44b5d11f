#include <iterator>
#include <set>

#include "stages/reference_values.h"
#include "stages/stage.h"

// A stage's part in checkpoints.
namespace strait::stages {

std::vector<tensors::NamedTensor> Stage::saved_tensors() const {
  std::vector<tensors::NamedTensor> tensors = sync_->saved_tensors();
  if (references_ != nullptr && slots_.back().model->head() != nullptr) {
    std::ranges::move(references_->saved(options_.batch.replica, options_.batch.replicas),
                      std::back_inserter(tensors));
  }
  // Frozen weights are equal on all replicas, so one of them saves their hashes.
  if (options_.batch.replica != sync_->members().members.front()) return tensors;
  if (frozen_hashes_.empty()) append_hashes(frozen_, frozen_hashes_);
  tensors.insert(tensors.end(), frozen_hashes_.begin(), frozen_hashes_.end());
  return tensors;
}

Stage::Snapshots Stage::snapshot(store::Step steps) {
  Snapshots taken;
  // Only the first replica saves the weights that all agree on.
  std::set<std::string> weights;
  for (const tensors::NamedTensor& tensor : model()) weights.insert(tensor.name);
  std::vector<tensors::NamedTensor> tensors = saved_tensors();
  // The order of the file, so that the writer reads the snapshot from start to end.
  std::ranges::sort(tensors, {}, [&](const tensors::NamedTensor& one) {
    return std::tuple(!weights.contains(one.name), -one.tensor.element_size(), one.name);
  });
  taken.weights = static_cast<std::size_t>(
      std::ranges::count_if(tensors, [&](const auto& one) { return weights.contains(one.name); }));
  taken.state = std::make_shared<tensors::Snapshot>(std::move(tensors), snapshot_memory_);
  for (Boundary* boundary : boundaries()) {
    for (Boundary::CacheSnapshot& cache : boundary->cache_snapshots(steps)) {
      taken.caches.push_back(std::move(cache));
    }
  }
  return taken;
}

void Stage::Snapshots::close() const {
  state->close();
  for (const auto& [prefix, cache] : caches) cache->close();
}

void Stage::restore(const ReadTensor& read, const HasTensor& has, bool exact) {
  check_hashes(frozen_, read);
  if (references_ != nullptr) references_->restore(read, has);
  sync_->restore(read, has, exact);
}

std::vector<tensors::NamedTensor> Stage::saved_caches() const {
  std::vector<tensors::NamedTensor> tensors;
  for (const Boundary* boundary : boundaries()) {
    for (tensors::NamedTensor& tensor : boundary->saved_cache())
      tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void Stage::restore_caches(const ReadTensor& read, const HasTensor& has) {
  for (const ChunkSlot& slot : slots_) {
    slot.upper->restore_cache(read, has);
    slot.lower->restore_cache(read, has);
  }
}

}  // namespace strait::stages
