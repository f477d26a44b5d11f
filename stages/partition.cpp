#include "stages/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace strait::stages {
namespace {

using partition::Assignment;
using partition::Layers;
using partition::ModelDescription;
using partition::Question;

int block_count(const ModelDescription& model) {
  return static_cast<int>(model.layers.size()) - 2;  // without embedding and LM head
}

// The layers of a chunk with these blocks: embedding and LM head belong to the outer ones.
Layers layers_of_blocks(const ModelDescription& model, int first, int last) {
  const int blocks = block_count(model);
  return {first == 0 ? 0 : first + 1, last == blocks - 1 ? blocks + 1 : last + 1};
}

double cost_of(const ModelDescription& model, const Layers& range) {
  double sum = 0;
  for (int i = range.first; i <= range.last; ++i) {
    const partition::Layer& layer = model.layers[static_cast<std::size_t>(i)];
    sum += layer.forward_flops_per_token * (1 + layer.backward_factor);
  }
  return sum;
}

// Assigns ranges of layers, by chunk position, to stages.
Assignment assign_in_turn(const std::vector<Layers>& runs, std::size_t stages) {
  Assignment answer;
  answer.stages.resize(stages);
  for (std::size_t position = 0; position < runs.size(); ++position) {
    answer.stages[position % stages].chunks.push_back(runs[position]);
  }
  return answer;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Cut {
  double cost = kNever;
  std::vector<Layers> ranges;
};

// The cheapest of all cuts of the blocks into so many ranges. `add` returns the cost of some ranges
// (0 of none) with one more.
Cut best_cut(const ModelDescription& model, int ranges,
             const std::function<double(double sum, double range)>& add) {
  // best[s][b]: cost of the first b blocks in s ranges. begins[s][b]: first block of the last one.
  const auto rows = static_cast<std::size_t>(ranges) + 1;
  const auto columns = static_cast<std::size_t>(block_count(model)) + 1;
  std::vector<std::vector<double>> best(rows, std::vector<double>(columns, kNever));
  std::vector<std::vector<std::size_t>> begins(rows, std::vector<std::size_t>(columns, 0));
  best[0][0] = 0;
  for (std::size_t s = 1; s < rows; ++s) {
    for (std::size_t b = s; b < columns; ++b) {
      for (std::size_t begin = s - 1; begin < b; ++begin) {
        const Layers range =
            layers_of_blocks(model, static_cast<int>(begin), static_cast<int>(b) - 1);
        const double cost = add(best[s - 1][begin], cost_of(model, range));
        // Of equal cuts the later one: it gives less to the stages that wait longest for their
        // first input.
        if (cost <= best[s][b]) {
          best[s][b] = cost;
          begins[s][b] = begin;
        }
      }
    }
  }
  Cut cut{best[rows - 1][columns - 1], std::vector<Layers>(rows - 1)};
  std::size_t end = columns - 1;
  for (std::size_t s = rows - 1; s > 0; --s) {
    const std::size_t begin = begins[s][end];
    cut.ranges[s - 1] = layers_of_blocks(model, static_cast<int>(begin), static_cast<int>(end) - 1);
    end = begin;
  }
  return cut;
}

Assignment balanced(const Question& question) {
  const ModelDescription& model = question.model;
  const int blocks = block_count(model);
  const int runs = question.stages * question.chunks;
  if (runs > blocks) {
    throw PartitionError(fmt::format(
        "pipeline.stages is {}{}, but the model has only {} transformer blocks; use at most "
        "{} {}",
        question.stages,
        question.chunks == 1 ? "" : fmt::format(" with {} chunks each", question.chunks), blocks,
        blocks, question.chunks == 1 ? "stages" : "chunks in all"));
  }
  const Cut by_slowest =
      best_cut(model, runs, [](double slowest, double range) { return std::max(slowest, range); });
  // Of the cuts whose slowest range takes no longer, the most even one: stages that do not set the
  // pace need not hold much more than others.
  const double limit = by_slowest.cost;
  const std::vector<Layers> layers = best_cut(model, runs, [limit](double squares, double range) {
                                       return range > limit ? kNever : squares + range * range;
                                     }).ranges;
  return assign_in_turn(layers, static_cast<std::size_t>(question.stages));
}

}  // namespace

Catalogue<PartitionOffer>& partitions() {
  static Catalogue<PartitionOffer> all("partition", {{"balanced", "by cost", balanced}});
  return all;
}

Assignment explicit_partition(const ModelDescription& model,
                              const std::vector<std::pair<int, int>>& blocks, int chunks) {
  int next = 0;
  std::vector<Layers> layers;
  const std::size_t stages = blocks.size() / static_cast<std::size_t>(chunks);
  for (std::size_t position = 0; position < blocks.size(); ++position) {
    const auto [first, last] = blocks[position];
    if (first != next || last < first || last >= block_count(model)) {
      throw PartitionError(fmt::format(
          "pipeline.partition: stage {}{} has blocks [{}, {}]; it must begin with block "
          "{} and end between that and block {}: each block once, in order",
          position % stages, chunks == 1 ? "" : fmt::format(" chunk {}", position / stages), first,
          last, next, block_count(model) - 1));
    }
    layers.push_back(layers_of_blocks(model, first, last));
    next = last + 1;
  }
  if (next != block_count(model)) {
    throw PartitionError(
        fmt::format("pipeline.partition ends with block {}, "
                    "but the model has blocks up to {}",
                    next - 1, block_count(model) - 1));
  }
  return assign_in_turn(layers, stages);
}

}  // namespace strait::stages
