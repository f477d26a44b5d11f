#include <fmt/format.h>

#include <algorithm>

#include "stages/partition.h"

namespace strait::stages {
namespace {

using partition::Assignment;
using partition::Host;
using partition::Layers;
using partition::Question;

// Checks the assignment of one partition, whose name is used in messages.
class AssignmentCheck {
 public:
  AssignmentCheck(const Question& question, const Assignment& answer, const std::string& name)
      : question_(question), answer_(answer), name_(name) {}

  void each_layer_once() const {
    const std::size_t layers = question_.model.layers.size();
    std::vector<std::optional<std::size_t>> owner(layers);
    for (std::size_t s = 0; s < answer_.stages.size(); ++s) {
      if (answer_.stages[s].chunks.empty()) {
        refuse("leaves stage {} empty; every stage needs at least one layer", s);
      }
      for (const Layers& chunk : answer_.stages[s].chunks) {
        if (chunk.first < 0 || chunk.last < chunk.first ||
            static_cast<std::size_t>(chunk.last) >= layers) {
          refuse(
              "gives stage {} the layers {} to {}; the model has layers 0 to {}, and a chunk holds "
              "at least one",
              s, chunk.first, chunk.last, layers - 1);
        }
        for (int i = chunk.first; i <= chunk.last; ++i) {
          std::optional<std::size_t>& stage = owner[static_cast<std::size_t>(i)];
          if (stage) refuse("gives {} twice, to stage {} and to stage {}", layer(i), *stage, s);
          stage = s;
        }
      }
    }
    const auto missing = std::ranges::find_if(owner, [](const auto& stage) { return !stage; });
    if (missing != owner.end()) {
      refuse("gives {} to no stage", layer(static_cast<int>(missing - owner.begin())));
    }
  }

  // In the order of the data: the first chunks of all stages, then their second ones, and so on.
  void in_order() const {
    const Layers* before = nullptr;
    std::size_t before_stage = 0;
    for (std::size_t c = 0; c < most_chunks(); ++c) {
      for (std::size_t s = 0; s < answer_.stages.size(); ++s) {
        if (c >= answer_.stages[s].chunks.size()) continue;
        const Layers& chunk = answer_.stages[s].chunks[c];
        if (before != nullptr && chunk.first != before->last + 1) {
          refuse("is out of order: stage {} begins with {} after stage {}, which ends with {}", s,
                 layer(chunk.first), before_stage, layer(before->last));
        }
        before = &chunk;
        before_stage = s;
      }
    }
  }

  void chunks_as_asked() const {
    for (std::size_t s = 0; s < answer_.stages.size(); ++s) {
      const std::size_t chunks = answer_.stages[s].chunks.size();
      if (chunks == static_cast<std::size_t>(question_.chunks)) continue;
      refuse("gives stage {} {} {}, but pipeline.chunks is {}", s, chunks,
             chunks == 1 ? "chunk" : "chunks", question_.chunks);
    }
  }

  template <class... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> text, Values&&... values) const {
    throw PartitionError(name_ + " " + fmt::format(text, std::forward<Values>(values)...));
  }

 private:
  std::string layer(int i) const {
    return fmt::format("layer {} ({})", i,
                       question_.model.layers[static_cast<std::size_t>(i)].name);
  }

  // Stages may still have different numbers of chunks here; chunks_as_asked() runs later.
  std::size_t most_chunks() const {
    std::size_t most = 0;
    for (const auto& stage : answer_.stages) most = std::max(most, stage.chunks.size());
    return most;
  }

  const Question& question_;
  const Assignment& answer_;
  const std::string& name_;
};

std::string in_gigabytes(std::int64_t bytes) {
  return fmt::format("{:.3g} GB", static_cast<double>(bytes) / 1e9);
}

// The slots and memory of each host that stages use.
class Occupation {
 public:
  explicit Occupation(const std::vector<Host>& hosts)
      : hosts_(hosts), stages_(hosts.size(), 0), bytes_(hosts.size(), 0) {
    for (const Host& host : hosts) gpu_bytes_.emplace_back(host.gpu_bytes.size(), 0);
  }

  std::size_t next_free(const AssignmentCheck& check) const {
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      if (stages_[h] < hosts_[h].slots) return h;
    }
    check.refuse("needs more stages than the hosts have slots left");
  }

  void take(std::size_t host, std::size_t stage, std::int64_t bytes, const AssignmentCheck& check) {
    if (host >= hosts_.size()) {
      check.refuse("puts stage {} on host {}, but there are hosts 0 to {} only", stage, host,
                   hosts_.size() - 1);
    }
    const Host& of = hosts_[host];
    if (++stages_[host] > of.slots) {
      check.refuse("puts stage {} on {}, which has no slot left for it (of {})", stage, of.name,
                   of.slots);
    }
    if (!of.gpu_bytes.empty()) return take_gpu(host, stage, bytes, check);
    bytes_[host] += bytes;
    if (of.memory_bytes > 0 && bytes_[host] > of.memory_bytes) {
      check.refuse("is over memory: with stage {} ({}) the stages on {} need {} of its {}", stage,
                   in_gigabytes(bytes), of.name, in_gigabytes(bytes_[host]),
                   in_gigabytes(of.memory_bytes));
    }
  }

 private:
  void take_gpu(std::size_t host, std::size_t stage, std::int64_t bytes,
                const AssignmentCheck& check) {
    const Host& of = hosts_[host];
    // Stages take the GPUs of a host round robin, as processes do when they start.
    const std::size_t gpu = gpu_of(of, static_cast<std::size_t>(stages_[host]) - 1);
    std::int64_t& taken = gpu_bytes_[host][gpu];
    taken += bytes + of.gpu_process_bytes;
    // 0: the driver did not report the memory of this GPU.
    if (of.gpu_bytes[gpu] == 0 || taken <= of.gpu_bytes[gpu]) return;
    check.refuse("is over memory: with stage {} ({}) the stages on GPU {} of {} need {} of its {}",
                 stage, in_gigabytes(bytes), gpu, of.name, in_gigabytes(taken),
                 in_gigabytes(of.gpu_bytes[gpu]));
  }

  const std::vector<Host>& hosts_;
  std::vector<int> stages_;
  std::vector<std::int64_t> bytes_;
  std::vector<std::vector<std::int64_t>> gpu_bytes_;
};

}  // namespace

Assignment check_assignment(const Question& question, Assignment answer, const std::string& name) {
  const AssignmentCheck check(question, answer, name);
  if (answer.stages.size() != static_cast<std::size_t>(question.stages)) {
    check.refuse("has {} stages, but pipeline.stages is {}", answer.stages.size(), question.stages);
  }
  // In this order, because later checks rely on valid layer numbers.
  check.each_layer_once();
  check.in_order();
  check.chunks_as_asked();
  Occupation occupation(question.cluster.hosts);
  for (std::size_t s = 0; s < answer.stages.size(); ++s) {
    partition::Stage& stage = answer.stages[s];
    const std::size_t host = stage.host ? *stage.host : occupation.next_free(check);
    occupation.take(host, s, question.stage_bytes(s, stage.chunks), check);
    stage.host = host;
  }
  return answer;
}

}  // namespace strait::stages
