#include "stages/partition.h"

#include <fmt/format.h>

#include <algorithm>
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

// The layers of a chunk with these blocks. Embedding and LM head belong to the outer chunks.
Layers layers_of_blocks(const ModelDescription& model, int first, int last) {
  const int blocks = block_count(model);
  return {first == 0 ? 0 : first + 1, last == blocks - 1 ? blocks + 1 : last + 1};
}

// The cost of a layer's forward and backward, in any unit.
using LayerCost = double (*)(const partition::Layer&);

double operations(const partition::Layer& layer) {
  return layer.forward_flops_per_token * (1 + layer.backward_factor);
}

double seconds(const partition::Layer& layer) {
  return layer.forward_seconds.value() * (1 + layer.backward_factor);
}

double cost_of(const ModelDescription& model, const Layers& range, LayerCost cost) {
  double sum = 0;
  for (int i = range.first; i <= range.last; ++i) {
    sum += cost(model.layers[static_cast<std::size_t>(i)]);
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

// Whether the range at this position is allowed.
using Allowed = std::function<bool(std::size_t position, const Layers& range)>;

// The cheapest allowed cut of the blocks into this many ranges; without ranges if there is none.
// `add` returns the cost of some ranges (0 for none) plus one more.
Cut best_cut(const ModelDescription& model, int ranges, LayerCost of_layer, const Allowed& allowed,
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
        if (best[s - 1][begin] == kNever || !allowed(s - 1, range)) continue;
        const double cost = add(best[s - 1][begin], cost_of(model, range, of_layer));
        // Among equal cuts the later one: it gives less to the stages that wait longest for their
        // first input.
        if (cost <= best[s][b]) {
          best[s][b] = cost;
          begins[s][b] = begin;
        }
      }
    }
  }
  if (best[rows - 1][columns - 1] == kNever) return {};
  Cut cut{best[rows - 1][columns - 1], std::vector<Layers>(rows - 1)};
  std::size_t end = columns - 1;
  for (std::size_t s = rows - 1; s > 0; --s) {
    const std::size_t begin = begins[s][end];
    cut.ranges[s - 1] = layers_of_blocks(model, static_cast<int>(begin), static_cast<int>(end) - 1);
    end = begin;
  }
  return cut;
}

// The most even of the allowed cuts with the least cost of the slowest range. Stages that do not
// set the pace then hold little more than the others. Without stages if no cut is allowed.
Assignment most_even(const Question& question, LayerCost of_layer, const Allowed& allowed) {
  const int runs = question.stages * question.chunks;
  const Cut by_slowest =
      best_cut(question.model, runs, of_layer, allowed,
               [](double slowest, double range) { return std::max(slowest, range); });
  if (by_slowest.ranges.empty()) return {};
  const double limit = by_slowest.cost;
  const Cut even =
      best_cut(question.model, runs, of_layer, allowed, [limit](double squares, double range) {
        return range > limit ? kNever : squares + range * range;
      });
  return assign_in_turn(even.ranges, static_cast<std::size_t>(question.stages));
}

bool fits(const Question& question, const Assignment& answer) {
  try {
    check_assignment(question, answer, "");
    return true;
  } catch (const PartitionError&) {
    return false;
  }
}

// For every stage, the bytes that one of its chunks may take so that all stages of its host or GPU
// fit if each takes at most that; 0: no limit. Hosts are filled in order, as when a partition names
// none.
std::vector<std::int64_t> memory_shares(const Question& question) {
  std::vector<std::int64_t> shares;
  for (const partition::Host& host : question.cluster.hosts) {
    const auto left = static_cast<std::size_t>(question.stages) - shares.size();
    const std::size_t own = std::min(left, static_cast<std::size_t>(std::max(host.slots, 0)));
    std::vector<std::int64_t> sharing(std::max<std::size_t>(1, host.gpu_bytes.size()), 0);
    const auto place = [&](std::size_t i) {
      return host.gpu_bytes.empty() ? std::size_t{0} : gpu_of(host, i);
    };
    for (std::size_t i = 0; i < own; ++i) ++sharing[place(i)];
    for (std::size_t i = 0; i < own; ++i) {
      const std::int64_t all =
          host.gpu_bytes.empty() ? host.memory_bytes : host.gpu_bytes[place(i)];
      const std::int64_t process = host.gpu_bytes.empty() ? 0 : host.gpu_process_bytes;
      const std::int64_t share = (all / sharing[place(i)] - process) / question.chunks;
      shares.push_back(all == 0 ? 0 : std::max<std::int64_t>(share, 1));
    }
  }
  shares.resize(static_cast<std::size_t>(question.stages), 0);
  return shares;
}

Assignment evenly_cut(const Question& question, LayerCost of_layer) {
  const ModelDescription& model = question.model;
  const int blocks = block_count(model);
  const int runs = question.stages * question.chunks;
  if (runs > blocks) {
    throw PartitionError(fmt::format(
        "pipeline.stages is {}{}, but the model has only {} transformer blocks; use at most {} {}",
        question.stages,
        question.chunks == 1 ? "" : fmt::format(" with {} chunks each", question.chunks), blocks,
        blocks, question.chunks == 1 ? "stages" : "chunks in all"));
  }
  const Allowed any = [](std::size_t, const Layers&) { return true; };
  Assignment fastest = most_even(question, of_layer, any);
  // The fastest cut is preferred; only if memory forbids it are shares of memory imposed.
  if (fits(question, fastest)) return fastest;
  const std::vector<std::int64_t> shares = memory_shares(question);
  const auto stages = static_cast<std::size_t>(question.stages);
  Assignment fitting =
      most_even(question, of_layer, [&](std::size_t position, const Layers& range) {
        const std::size_t stage = position % stages;
        return shares[stage] == 0 || question.stage_bytes(stage, {range}) <= shares[stage];
      });
  return fitting.stages.empty() ? fastest : fitting;
}

}  // namespace

Catalogue<PartitionOffer>& partitions() {
  static Catalogue<PartitionOffer> all(
      "partition", {{"balanced", "by cost",
                     [](const Question& question) { return evenly_cut(question, operations); }},
                    {"profile", "by measured time",
                     [](const Question& question) { return evenly_cut(question, seconds); }}});
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
          "pipeline.partition: stage {}{} has blocks [{}, {}]; it must begin with block {} and end "
          "between that and block {}: each block once, in order",
          position % stages, chunks == 1 ? "" : fmt::format(" chunk {}", position / stages), first,
          last, next, block_count(model) - 1));
    }
    layers.push_back(layers_of_blocks(model, first, last));
    next = last + 1;
  }
  if (next != block_count(model)) {
    throw PartitionError(
        fmt::format("pipeline.partition ends with block {}, but the model has blocks up to {}",
                    next - 1, block_count(model) - 1));
  }
  return assign_in_turn(layers, stages);
}

}  // namespace strait::stages
