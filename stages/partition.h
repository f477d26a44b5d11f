#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/catalogue.h"
#include "framework/error.h"
#include "stages/assignment.h"

namespace strait::stages {

// A cut that cannot be: fewer layers than stages, a layer missing or twice, too few slots.
class PartitionError : public InputError {
 public:
  using InputError::InputError;
};

// A partition under the name that recipes use.
struct PartitionOffer {
  std::string name;
  std::string summary;  // half a sentence for people
  partition::Partition cut;
};

// "balanced", and what plugins added. The cut of "balanced" is the one whose slowest chunk is as
// fast as can be, by floating-point operations per token; among equals the one that gives later
// chunks less. The embedding goes with the first block and the head with the last.
Catalogue<PartitionOffer>& partitions();

// The user's own: first and last block of every stage, inclusive, counted as the weight files do
// (h.0, h.1, …). The embedding and the head ride along. Of several chunks a stage: of the first
// ones of all stages, then of their second ones.
partition::Assignment explicit_partition(const partition::ModelDescription& model,
                                         const std::vector<std::pair<int, int>>& blocks,
                                         int chunks = 1);

// Every answer, of ours and of plugins, passes here: each layer once and in order, a host for every
// stage, nowhere more stages than slots or more bytes than memory. Gives back the answer with every
// host filled in. PartitionError, which calls the answering party `who`, for all else.
partition::Assignment check_assignment(const partition::Question& question,
                                       partition::Assignment answer, const std::string& who);

}  // namespace strait::stages
