#include "stages/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace strait::stages {
namespace {

int block_count(const models::ModelDescription& model) {
  return static_cast<int>(model.layers.size()) - 2;  // without embedding and head
}

// Layers of a stage that runs these blocks: the ends of the model ride along.
models::LayerRange range_of_blocks(const models::ModelDescription& model, int first, int last) {
  const int blocks = block_count(model);
  return models::LayerRange{first == 0 ? 0 : first + 1, last == blocks - 1 ? blocks + 1 : last + 1};
}

double cost_of(const models::ModelDescription& model, const models::LayerRange& range) {
  double sum = 0;
  for (int i = range.first; i <= range.last; ++i) {
    sum += model.layers[static_cast<std::size_t>(i)].forward_flops_per_token;
  }
  return sum;
}

}  // namespace

std::vector<models::LayerRange> balanced_partition(const models::ModelDescription& model,
                                                   std::int64_t stages) {
  const int blocks = block_count(model);
  if (stages > blocks) {
    throw PartitionError(fmt::format(
        "pipeline.stages is {}, but the model has only {} transformer blocks to share out; "
        "ask for at most {} stages",
        stages, blocks, blocks));
  }
  // best[s][b]: the slowest stage when the first b blocks are cut into s stages; cut[s][b] is where
  // the last of them begins.
  const auto rows = static_cast<std::size_t>(stages) + 1;
  const auto columns = static_cast<std::size_t>(blocks) + 1;
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(rows, std::vector<double>(columns, never));
  std::vector<std::vector<std::size_t>> cut(rows, std::vector<std::size_t>(columns, 0));
  best[0][0] = 0;
  for (std::size_t s = 1; s < rows; ++s) {
    for (std::size_t b = s; b < columns; ++b) {
      for (std::size_t begin = s - 1; begin < b; ++begin) {
        const auto range = range_of_blocks(model, static_cast<int>(begin), static_cast<int>(b) - 1);
        const double slowest = std::max(best[s - 1][begin], cost_of(model, range));
        // Later cuts win ties: they leave less to the stages that wait longest for their first
        // input.
        if (slowest <= best[s][b]) {
          best[s][b] = slowest;
          cut[s][b] = begin;
        }
      }
    }
  }
  std::vector<models::LayerRange> ranges(static_cast<std::size_t>(stages));
  std::size_t end = columns - 1;
  for (std::size_t s = rows - 1; s > 0; --s) {
    const std::size_t begin = cut[s][end];
    ranges[s - 1] = range_of_blocks(model, static_cast<int>(begin), static_cast<int>(end) - 1);
    end = begin;
  }
  return ranges;
}

std::vector<models::LayerRange> explicit_partition(const models::ModelDescription& model,
                                                   const std::vector<std::pair<int, int>>& blocks) {
  int next = 0;
  std::vector<models::LayerRange> ranges;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const auto [first, last] = blocks[stage];
    if (first != next || last < first || last >= block_count(model)) {
      throw PartitionError(fmt::format(
          "pipeline.partition: stage {} has blocks [{}, {}]; it must begin with block {} and end "
          "between that and block {}: each block once, in order",
          stage, first, last, next, block_count(model) - 1));
    }
    ranges.push_back(range_of_blocks(model, first, last));
    next = last + 1;
  }
  if (next != block_count(model)) {
    throw PartitionError(
        fmt::format("pipeline.partition ends with block {}, but the model has blocks up to {}",
                    next - 1, block_count(model) - 1));
  }
  return ranges;
}

}  // namespace strait::stages
