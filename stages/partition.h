#pragma once

#include <utility>

#include "framework/catalogue.h"
#include "framework/error.h"
#include "stages/assignment.h"

namespace strait::stages {

// An impossible partition: fewer layers than stages, a missing or repeated layer, too few slots.
class PartitionError : public InputError {
 public:
  using InputError::InputError;
};

// A partition with its name in recipes.
struct PartitionOffer {
  std::string name;
  std::string summary;  // a short phrase for users
  partition::Partition cut;
};

// "balanced", "profile", and the partitions of plugins. "balanced" minimises the floating-point
// operations per token of the largest chunk, with its backward. "profile" minimises its seconds,
// which the question must have. Among equals they give less to later chunks. If the result exceeds
// memory, they choose among cuts in which no stage takes more than its share of its host or GPU, if
// there are any. The embedding is in the chunk of the first block, the LM head in that of the last.
Catalogue<PartitionOffer>& partitions();

// The partition of `pipeline.partition`: first and last block of every stage, inclusive, numbered
// as in weight files (h.0, h.1, …). Embedding and LM head are placed as above. With several chunks
// per stage: the first chunks of all stages, then their second chunks.
partition::Assignment explicit_partition(const partition::ModelDescription& model,
                                         const std::vector<std::pair<int, int>>& blocks,
                                         int chunks = 1);

// The GPU of stage number `index` of this replica on a host. The host must have GPUs.
inline std::size_t gpu_of(const partition::Host& host, std::size_t index) {
  return (host.next_gpu + index) % host.gpu_bytes.size();
}

// Checks the result of any partition: each layer once and in order, no host with more stages than
// slots, no host or GPU with more bytes than memory. Returns it with every host filled in. Throws
// PartitionError, which calls the partition `name`.
partition::Assignment check_assignment(const partition::Question& question,
                                       partition::Assignment answer, const std::string& name);

}  // namespace strait::stages
