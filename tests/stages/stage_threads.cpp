#include "tests/stages/stage_threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <tuple>

#include "framework/net/replaceable_link.h"
#include "models/model_config.h"
#include "schedules/action_lists.h"
#include "schedules/evaluation_shard.h"
#include "schedules/schedule.h"
#include "stages/partition.h"
#include "stages/stage_state.h"
#include "tests/memory_links.h"

namespace strait::stages {
namespace {

constexpr std::int64_t kRows = 24;
constexpr std::int64_t kRowLength = 16;
constexpr int kEvaluationRows = 5;

constexpr const char* kGpt2 =
    R"({{"model_type": "gpt2", "vocab_size": 61, "n_positions": 16, "n_embd": 16, "n_layer": 4,
         "n_head": 2, "tie_word_embeddings": {tied}, "resid_pdrop": {dropout},
         "embd_pdrop": {dropout}, "attn_pdrop": {dropout}}})";
// Wide enough for the kernels of GPUs.
constexpr const char* kLlama =
    R"({{"model_type": "llama", "vocab_size": 61, "max_position_embeddings": 16, "hidden_size": 32,
         "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
         "intermediate_size": 24, "tie_word_embeddings": {tied}}})";

models::ModelConfig tiny_config(const RunSettings& settings) {
  models::ModelConfig config = models::parse_config(
      fmt::format(fmt::runtime(settings.llama ? kLlama : kGpt2), fmt::arg("tied", settings.tied),
                  fmt::arg("dropout", settings.dropout)),
      "config.json");
  config.lora = settings.lora;
  return config;
}

// Rows with several documents, masks and padding, to cover every path.
std::shared_ptr<const data::TokenFile> random_rows(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  data::TokenRows rows;
  rows.row_length = kRowLength;
  for (std::int64_t row = 0; row < count; ++row) {
    const auto used = static_cast<std::int64_t>(8 + random() % 9);
    std::int32_t document = 0;
    for (std::int64_t t = 0; t < kRowLength; ++t) {
      const bool padding = t >= used;
      if (!padding && t > 0 && random() % 6 == 0) ++document;
      rows.input_ids.push_back(padding ? 0 : static_cast<std::int32_t>(random() % 61));
      rows.loss_mask.push_back(!padding && random() % 4 != 0 ? 1 : 0);
      rows.document.push_back(padding ? -1 : document);
    }
  }
  return std::make_shared<const data::TokenFile>(std::move(rows), "random rows");
}

// Rows of one or two pairs of documents.
std::shared_ptr<const data::TokenFile> random_pairs(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  data::TokenRows rows;
  rows.row_length = kRowLength;
  for (std::int64_t row = 0; row < count; ++row) {
    const auto documents = static_cast<std::int32_t>(2 + 2 * (random() % 2));
    std::int64_t used = 0;
    for (std::int32_t document = 0; document < documents; ++document) {
      const auto length = static_cast<std::int64_t>(2 + random() % 3);
      for (std::int64_t t = 0; t < length; ++t, ++used) {
        rows.input_ids.push_back(static_cast<std::int32_t>(random() % 61));
        const bool target = t + 1 == length || random() % 2 == 0;
        // Every second answer that is rated is undesirable.
        rows.loss_mask.push_back(!target ? 0 : row % 2 == 1 && document % 2 == 0 ? 2 : 1);
        rows.document.push_back(document);
      }
    }
    const auto size = static_cast<std::size_t>((row + 1) * kRowLength);
    rows.input_ids.resize(size, 0);
    rows.loss_mask.resize(size, 0);
    rows.document.resize(size, -1);
  }
  return std::make_shared<const data::TokenFile>(std::move(rows), "random pairs");
}

// Links to one other replica: of the sync engine, and of a first stage.
struct ReplicaLinks {
  std::unique_ptr<net::Link> replica;
  std::unique_ptr<net::Link> consensus;
};

// State that the threads of a run share.
struct Together {
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::condition_variable changed;
  RunResult result;
  std::vector<std::vector<double>> targets;  // of steps that replicas decide apart, by replica
  // The coordinator's part: the members, and the tracker of every process.
  std::set<std::uint32_t> members;
  bool replicas_leave = false;
  int last = 0;  // step of the run
  std::uint32_t epoch = 0;
  std::map<std::pair<store::Step, std::uint32_t>, std::size_t> saved;
  std::map<std::pair<store::Step, std::uint32_t>, CheckpointResult> complete;
  std::vector<std::unique_ptr<sync::MembershipTracker>> trackers;
  // A lost replica rejoins as follows: its threads end; it gets new links, of which every other
  // process replaces its own after a checkpoint; its threads start. Replicas that are lost
  // meanwhile wait until all links are replaced.
  int rejoin_count = 0;
  std::vector<std::size_t> running;  // threads, by replica
  std::set<std::uint32_t> lost;
  std::optional<std::uint32_t> rejoining;
  std::uint32_t save_requests = 0;
  std::optional<std::pair<store::Step, sync::Rejoin>> admitted;
  std::vector<std::vector<net::ReplaceableLink*>> links;  // by process and replica
  std::vector<std::vector<net::ReplaceableLink*>> consensus;
  std::vector<ReplicaLinks> next_links;  // by process: to the rejoining replica

  void lose(std::uint32_t replica) {
    const std::lock_guard lock(mutex);
    if (members.erase(replica) == 0) return;
    ++epoch;
    update_trackers();
    if (rejoin_count > 0 && !members.empty() && --rejoin_count >= 0) lost.insert(replica);
    changed.notify_all();
  }
  void update_trackers() const {
    for (const auto& tracker : trackers) tracker->update(epoch, {members.begin(), members.end()});
  }

  // Waits for all processes of all members. Not complete if one is lost before all have saved.
  CheckpointResult save(store::Step steps, std::uint32_t in, std::size_t stages) {
    std::unique_lock lock(mutex);
    if (in != epoch && replicas_leave) return {false};
    std::size_t& here = saved[{steps, in}];
    here += 1;
    const auto key = std::pair(steps, in);
    if (here == members.size() * stages) {
      complete[key] = {};
      if (rejoining && number(steps) < last && !stop) admit(steps, complete[key]);
    }
    changed.notify_all();
    changed.wait(lock, [&] { return complete.contains(key) || in != epoch; });
    if (complete.contains(key)) return complete[key];
    return {!replicas_leave};
  }

  void admit(store::Step steps, CheckpointResult& checkpoint) {
    const sync::Rejoin rejoin{++epoch, *rejoining};
    members.insert(*rejoining);
    const std::size_t stages = trackers.size() / running.size();
    for (std::size_t process = *rejoining * stages; process < (*rejoining + 1) * stages;
         ++process) {
      trackers[process] = std::make_unique<sync::MembershipTracker>(running.size(), *rejoining);
    }
    result.rejoins.emplace_back(number(steps), *rejoining);
    admitted = {steps, rejoin};
    checkpoint.rejoin = rejoin;
    rejoining.reset();
    update_trackers();
  }

  // On the thread of the process.
  void replace_links(std::size_t process, std::uint32_t replica) {
    const std::lock_guard lock(mutex);
    ReplicaLinks& next = next_links[process];
    if (next.replica != nullptr) links[process][replica]->replace(std::move(next.replica));
    if (next.consensus != nullptr) consensus[process][replica]->replace(std::move(next.consensus));
    changed.notify_all();
  }
  bool all_links_in_place() const {
    return std::ranges::all_of(next_links, [](const ReplicaLinks& next) {
      return next.replica == nullptr && next.consensus == nullptr;
    });
  }
};

class Recorder final : public StageObserver {
 public:
  Recorder(const RunSettings& settings, Together& together, std::size_t index, Stage& stage)
      : settings_(settings), together_(together), index_(index), stage_(stage) {}
  void before(const Phase& phase, const schedules::Action& action) override {
    if (settings_.before) settings_.before(stage_, index_, phase, action);
  }
  void after(const Phase& phase, const schedules::Action& action) override {
    if (settings_.after) settings_.after(stage_, index_, phase, action);
  }
  void trained(const StepSummary& summary) override {
    const std::lock_guard lock(together_.mutex);
    RunResult& result = together_.result;
    const auto step = static_cast<std::size_t>(number(summary.decision.step));
    result.sent.resize(std::max(result.sent.size(), step + 1));
    auto& sent = result.sent[step];
    sent.insert(sent.end(), summary.sent.begin(), summary.sent.end());
    const std::size_t stages = settings_.stages();
    if (index_ % stages == 0) {
      result.curves[index_ / stages].push_back(summary.decision.loss);
      result.tokens[index_ / stages].push_back(summary.decision.tokens);
      if (summary.decision.own) {
        together_.targets[index_ / stages].push_back(
            static_cast<double>(summary.decision.target_tokens));
      }
    }
    if (index_ != 0) return;
    result.losses.push_back(summary.decision.loss);
    result.norms.push_back(summary.decision.gradient_norm);
    result.skips.push_back(summary.decision.skip);
    if (settings_.stop_at > 0 && number(summary.decision.step) + 2 == settings_.stop_at) {
      together_.stop = true;
    }
  }
  void evaluated(const StepDecision& decision, bool /*preferences*/) override {
    const std::lock_guard lock(together_.mutex);
    if (index_ == 0) together_.result.evaluations.push_back(decision.loss);
  }
  // As in a real run, no process continues before the shards of all are saved.
  CheckpointResult save(store::Step steps) {
    if (settings_.at_checkpoint) settings_.at_checkpoint(stage_, index_, steps);
    if (settings_.take_snapshot) {
      const CheckpointResult taken = settings_.take_snapshot(stage_, index_, steps);
      // Links close after the last checkpoint: in a real run, too, all wait for it together.
      if (number(steps) == settings_.steps) {
        together_.save(steps, stage_.epoch(), settings_.stages());
      }
      return taken;
    }
    const CheckpointResult result = together_.save(steps, stage_.epoch(), settings_.stages());
    if (result.rejoin) together_.replace_links(index_, result.rejoin->replica);
    return result;
  }

 private:
  const RunSettings& settings_;
  Together& together_;
  const std::size_t index_;
  Stage& stage_;
};

// By chunk position.
std::vector<models::LayerRange> layers_of(const models::ModelConfig& config,
                                          const std::vector<std::pair<int, int>>& blocks) {
  partition::ModelDescription model;
  model.layers.resize(models::describe(config).layers.size());
  std::vector<models::LayerRange> layers;
  for (const partition::Stage& one : explicit_partition(model, blocks).stages) {
    layers.push_back({one.chunks.front().first, one.chunks.front().last});
  }
  return layers;
}

std::vector<ChunkPlan> chunk_plans(const RunSettings& settings, const models::ModelConfig& model,
                                   std::size_t process) {
  const std::vector<models::LayerRange> layers = layers_of(model, settings.blocks);
  const std::size_t stages = settings.stages();
  const std::size_t replica = process / stages;
  std::vector<ChunkPlan> plans;
  for (std::size_t at = process % stages; at < layers.size(); at += stages) {
    ChunkPlan& plan = plans.emplace_back();
    plan.layers = layers[at];
    if (stages == 1) continue;
    for (const bool upper : {true, false}) {
      if (upper ? at == 0 : at + 1 == layers.size()) continue;
      BoundaryOptions& boundary = upper ? plan.upper : plan.lower;
      boundary = settings.boundary;
      const std::size_t position = upper ? at - 1 : at;
      boundary.position = static_cast<std::int64_t>(position);
      boundary.name = fmt::format("{}.{r}>{}.{r}", position, position + 1, fmt::arg("r", replica));
    }
  }
  return plans;
}

schedules::ActionList evaluation_of(const RunSettings& settings, std::size_t stage,
                                    std::size_t replicas, std::size_t position) {
  std::vector<std::int64_t> weights(replicas, 1);
  if (replicas == settings.unequal.size()) weights = settings.unequal;
  const auto mine = static_cast<int>(schedules::evaluation_micro_batches(
      (kEvaluationRows + settings.rows - 1) / settings.rows, weights, position));
  if (mine == 0) return {};
  return schedules::forward_only({static_cast<int>(settings.stages()), mine, 0, settings.chunks},
                                 static_cast<StageIndex>(stage));
}

StageOptions options_of(const RunSettings& settings, std::size_t process, std::int64_t first) {
  const std::size_t stage = process % settings.stages();
  StageOptions options;
  options.model = tiny_config(settings);
  options.chunks = chunk_plans(settings, options.model, process);
  options.dtype = settings.bfloat16 ? at::kBFloat16 : at::kFloat;
  if (!settings.devices.empty()) {
    options.device = settings.devices[process % settings.devices.size()];
  }
  options.seed = 5;
  options.adamw.offload = settings.offload || settings.on_disk;
  if (settings.on_disk) {
    options.adamw.disk_file = std::filesystem::path(testing::TempDir()) / "optimizer";
  }
  options.adamw.moments = settings.moments;
  options.muon = settings.muon;
  options.recompute = settings.recompute;
  if (settings.offload_activations) options.offload_from = 1;
  options.clip = settings.clip;
  options.preference = settings.preference;
  options.batch.preferences = settings.preference.loss != PreferenceLoss::none;
  options.loop.reference = has_reference(settings.preference.loss);
  options.loop.reference_first = options.loop.reference && settings.lora == nullptr;
  options.batch.seed = 5;
  options.batch.micro_batch_rows = settings.rows;
  options.batch.micro_batches = settings.micro_batches;
  options.batch.micro_batches_by_replica = settings.unequal;
  options.batch.slices = settings.slices;
  options.batch.shuffle = settings.shuffle;
  options.batch.replicas = settings.replicas;
  options.batch.replica = static_cast<std::int64_t>(process / settings.stages());
  options.sync = settings.sync;
  options.sync.rows = settings.unequal;
  options.group = settings.group;
  options.group.place = fmt::format("{} of process {}", options.device.str(), process);
  options.sync.seed = 5;
  options.sync.steps = settings.steps;
  // Short as these runs are.
  if (!options.sync.outer_momentum) options.sync.outer_momentum = 0.5;
  options.loop.first = static_cast<store::Step>(first);
  options.loop.last = static_cast<store::Step>(settings.steps);
  options.loop.evaluate = settings.evaluate;
  options.loop.evaluate_every = 7;
  options.loop.checkpoint_every = settings.checkpoint_every;
  options.snapshots = settings.snapshots;
  options.training_rows = kRows;
  options.row_tokens = kRowLength;
  options.frozen_rows = settings.frozen_rows;
  options.folder = std::filesystem::temp_directory_path();
  options.loop.evaluation_shard = [settings, stage](std::size_t replicas, std::size_t position) {
    return evaluation_of(settings, stage, replicas, position);
  };
  options.loop.learning_rate = {
      .peak = settings.learning_rate, .warmup = 3, .steps = settings.steps};
  const std::int64_t own = settings.unequal.empty()
                               ? settings.micro_batches
                               : settings.unequal[static_cast<std::size_t>(options.batch.replica)];
  const schedules::PipelineShape shape{static_cast<int>(settings.stages()), static_cast<int>(own),
                                       settings.depth, settings.chunks, settings.slices};
  const auto index = static_cast<StageIndex>(stage);
  options.training =
      schedules::action_list(schedules::schedule_named(settings.schedule), shape, index);
  options.evaluation = evaluation_of(settings, stage, static_cast<std::size_t>(settings.replicas),
                                     static_cast<std::size_t>(options.batch.replica));
  return options;
}

void connect_pipeline(std::span<StageLinks> links, std::uint32_t replica, bool tied, int chunks) {
  const auto stages = static_cast<std::uint32_t>(links.size());
  for (StageLinks& one : links) one.chunks.resize(static_cast<std::size_t>(chunks));
  const std::uint32_t places = stages * static_cast<std::uint32_t>(chunks);
  for (std::uint32_t p = 0; stages > 1 && p + 1 < places; ++p) {
    const std::uint32_t upper = p % stages;
    const std::uint32_t lower = (p + 1) % stages;
    LinkPair pair = memory_links({upper, replica}, {lower, replica}, "boundary");
    links[upper].chunks[p / stages].downstream = std::move(pair.first);
    links[lower].chunks[(p + 1) / stages].upstream = std::move(pair.second);
  }
  if (tied && stages > 1) {
    LinkPair pair = memory_links({0, replica}, {stages - 1, replica}, "tie");
    links.front().tie = std::move(pair.first);
    links.back().tie = std::move(pair.second);
  }
}

std::vector<StageLinks> connect_all(const RunSettings& settings) {
  const std::size_t stages = settings.stages();
  const auto replicas = static_cast<std::size_t>(settings.replicas);
  std::vector<StageLinks> links(stages * replicas);
  for (std::size_t r = 0; r < replicas; ++r) {
    connect_pipeline(std::span(links).subspan(r * stages, stages), static_cast<std::uint32_t>(r),
                     settings.tied, settings.chunks);
  }
  if (replicas == 1) return links;
  for (std::size_t process = 0; process < links.size(); ++process) {
    links[process].replicas.resize(replicas);
    if (process % stages == 0) links[process].consensus.resize(replicas);
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    for (std::uint32_t a = 0; a < replicas; ++a) {
      for (std::uint32_t b = a + 1; b < replicas; ++b) {
        StageLinks& one = links[a * stages + s];
        StageLinks& other = links[b * stages + s];
        std::tie(one.replicas[b], other.replicas[a]) = memory_links({s, a}, {s, b}, "replica");
        if (s == 0)
          std::tie(one.consensus[b], other.consensus[a]) =
              memory_links({s, a}, {s, b}, "consensus");
      }
    }
  }
  return links;
}

void wrap_all(const RunSettings& settings, std::vector<StageLinks>& links) {
  for (std::size_t process = 0; process < links.size(); ++process) {
    const auto around = [&](std::unique_ptr<net::Link>& link) {
      if (link != nullptr) link = settings.wrap(process, std::move(link));
    };
    StageLinks& mine = links[process];
    for (ChunkLinks& chunk : mine.chunks) {
      for (auto* link : {&chunk.upstream, &chunk.downstream}) around(*link);
    }
    around(mine.tie);
    for (auto& link : mine.replicas) around(link);
    for (auto& link : mine.consensus) around(link);
  }
}

// Links to other replicas outlive the connection.
void make_replaceable(std::size_t process, StageLinks& links, Together& together) {
  const auto around = [](std::vector<std::unique_ptr<net::Link>>& row,
                         std::vector<net::ReplaceableLink*>& known) {
    known.assign(row.size(), nullptr);
    for (std::size_t replica = 0; replica < row.size(); ++replica) {
      if (row[replica] == nullptr) continue;
      const net::LinkState state = row[replica]->state();
      auto lasting =
          std::make_unique<net::ReplaceableLink>(state.name, state.peer, std::move(row[replica]));
      known[replica] = lasting.get();
      row[replica] = std::move(lasting);
    }
  };
  around(links.replicas, together.links[process]);
  around(links.consensus, together.consensus[process]);
}

// New links between a rejoining replica and all others; returns those of its own processes.
std::vector<StageLinks> links_for_rejoin(const RunSettings& settings, std::uint32_t replica,
                                         Together& together) {
  std::vector<StageLinks> links = connect_all(settings);
  if (settings.returns) settings.returns(replica);
  if (settings.wrap) wrap_all(settings, links);
  const std::size_t stages = settings.stages();
  std::vector<StageLinks> own;
  for (std::size_t process = 0; process < links.size(); ++process) {
    if (process / stages == replica) {
      own.push_back(std::move(links[process]));
      continue;
    }
    together.next_links[process].replica = std::move(links[process].replicas[replica]);
    if (process % stages == 0) {
      together.next_links[process].consensus = std::move(links[process].consensus[replica]);
    }
  }
  return own;
}

struct StageInput {
  const Tensors& from;
  std::int64_t first = 0;
  const Tensors& caches;
  const StageData& data;
};

at::Tensor on_host(const at::Tensor& tensor) { return tensor.detach().cpu().clone(); }

void keep_result(const RunSettings& settings, Stage& stage, std::size_t index, RunResult& result) {
  for (const tensors::NamedTensor& tensor : stage.saved_tensors()) {
    result.saved[tensor.name] = on_host(tensor.tensor);
  }
  const std::size_t stages = settings.stages();
  for (const AdamW::Slot& slot : stage.optimizer().slots()) {
    result.masters[index / stages][fmt::format("{} of stage {}", slot.name, index % stages)] =
        on_host(slot.master);
  }
  for (const tensors::NamedTensor& tensor : stage.model()) {
    result.models[index / stages][fmt::format("{} of stage {}", tensor.name, index % stages)] =
        on_host(tensor.tensor);
  }
  for (const tensors::NamedTensor& tensor : stage.saved_caches()) {
    result.caches[tensor.name] = tensor.tensor.clone();
  }
  result.traffic[index] = stage.traffic();
}

void run_stage(const RunSettings& settings, const StageInput& input, StageLinks links,
               std::size_t index, Together& together) {
  at::set_num_threads(settings.threads);
  const auto replica = static_cast<std::uint32_t>(index / settings.stages());
  try {
    Stage stage(options_of(settings, index, input.first));
    if (input.from.empty() || stage.has_frozen_weights()) stage.initialize();
    if (!input.from.empty()) {
      stage.restore([&](const std::string& name) { return input.from.at(name); },
                    [&](const std::string& name) { return input.from.contains(name); },
                    settings.exact);
    }
    if (!input.caches.empty() && (!settings.finds_caches || settings.finds_caches(index))) {
      stage.restore_caches([&](const std::string& name) { return input.caches.at(name); },
                           [&](const std::string& name) { return input.caches.contains(name); });
    }
    if (settings.replicas_leave) links.tracker = together.trackers[index].get();
    stage.connect(std::move(links), input.data, [&together] {
      const std::lock_guard lock(together.mutex);
      return Requests{together.stop.load(), together.save_requests};
    });
    Recorder recorder(settings, together, index, stage);
    const store::Step done =
        stage.run(recorder, [&recorder](store::Step steps) { return recorder.save(steps); });
    const std::lock_guard lock(together.mutex);
    keep_result(settings, stage, index, together.result);
    if (index == 0) together.result.steps = number(done);
  } catch (const std::exception& error) {
    together.lose(replica);
    const std::lock_guard lock(together.mutex);
    together.result.errors.push_back(fmt::format("stage {}: {}", index, error.what()));
  }
  const std::lock_guard lock(together.mutex);
  --together.running[replica];
  together.changed.notify_all();
}

// The threads of a run, including those of rejoining replicas.
class Threads {
 public:
  Threads(const RunSettings& settings, StageInput input, Together& together)
      : settings_(settings), input_(input), together_(together) {}

  void start(std::size_t process, StageLinks links, std::int64_t first) {
    if (settings_.replicas_leave) make_replaceable(process, links, together_);
    ++together_.running[process / settings_.stages()];
    threads_.emplace_back([this, process, first, mine = std::move(links)]() mutable {
      StageInput input = input_;
      input.first = first;
      run_stage(settings_, input, std::move(mine), process, together_);
    });
  }

  void join() {
    std::unique_lock lock(together_.mutex);
    while (std::ranges::any_of(together_.running, [](std::size_t one) { return one > 0; })) {
      if (together_.admitted) start_admitted();
      prepare();
      together_.changed.wait(lock);
    }
    lock.unlock();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  // With the mutex held.
  void prepare() {
    if (together_.rejoining || together_.admitted || !together_.all_links_in_place()) return;
    for (const std::uint32_t replica : together_.lost) {
      if (together_.running[replica] > 0) continue;
      links_ = links_for_rejoin(settings_, replica, together_);
      together_.lost.erase(replica);
      together_.rejoining = replica;
      ++together_.save_requests;
      return;
    }
  }
  void start_admitted() {
    const auto [steps, rejoin] = *together_.admitted;
    together_.admitted.reset();
    const std::size_t first = rejoin.replica * settings_.stages();
    for (std::size_t stage = 0; stage < settings_.stages(); ++stage) {
      links_[stage].rejoin = RejoinOptions{rejoin, {}};
      start(first + stage, std::move(links_[stage]), number(steps));
    }
  }

  const RunSettings& settings_;
  const StageInput input_;
  Together& together_;
  std::vector<StageLinks> links_;  // of the rejoining replica
  std::vector<std::thread> threads_;
};

// Of replicas that train apart, as the coordinator does: the mean over the targets of all.
void combine_own_losses(Together& together) {
  RunResult& result = together.result;
  for (std::size_t step = 0; step < together.targets[0].size(); ++step) {
    double sum = 0;
    double count = 0;
    for (std::size_t r = 0; r < together.targets.size(); ++r) {
      if (step >= together.targets[r].size()) return;
      sum += result.curves[r][step] * together.targets[r][step];
      count += together.targets[r][step];
    }
    result.losses[step] = sum / count;
  }
}

}  // namespace

RunResult run_stages(const RunSettings& settings, const Tensors& from, std::int64_t first,
                     const Tensors& caches) {
  const std::size_t count = settings.stages() * static_cast<std::size_t>(settings.replicas);
  const auto rows = settings.preference.loss == PreferenceLoss::none ? random_rows : random_pairs;
  const StageData data{rows(kRows, 1), rows(kEvaluationRows, 2)};
  std::vector<StageLinks> links = connect_all(settings);
  if (settings.wrap) wrap_all(settings, links);
  Together together;
  together.replicas_leave = settings.replicas_leave;
  together.last = settings.steps;
  together.rejoin_count = settings.rejoin_count;
  for (std::size_t process = 0; process < count; ++process) {
    const auto replica = static_cast<std::uint32_t>(process / settings.stages());
    if (!settings.absent.contains(replica)) together.members.insert(replica);
    together.trackers.push_back(std::make_unique<sync::MembershipTracker>(
        static_cast<std::uint32_t>(settings.replicas), replica, settings.absent));
  }
  if (settings.rejoin_count > 0) together.lost = settings.absent;
  const auto replicas = static_cast<std::size_t>(settings.replicas);
  together.running.resize(replicas);
  together.links.resize(count);
  together.consensus.resize(count);
  together.next_links.resize(count);
  together.result.curves.resize(replicas);
  together.result.tokens.resize(replicas);
  together.result.models.resize(replicas);
  together.targets.resize(replicas);
  together.result.traffic.resize(count);
  together.result.masters.resize(replicas);
  Threads threads(settings, {from, first, caches, data}, together);
  {
    const std::lock_guard lock(together.mutex);
    for (std::size_t s = 0; s < count; ++s) {
      if (settings.absent.contains(static_cast<std::uint32_t>(s / settings.stages()))) continue;
      threads.start(s, std::move(links[s]), first);
    }
  }
  threads.join();
  combine_own_losses(together);
  return std::move(together.result);
}

codec::Traffic sum_of(const RunResult& result, BoundaryTraffic::Direction direction, bool sent) {
  codec::Traffic sum;
  for (const std::vector<BoundaryTraffic>& stage : result.traffic) {
    for (const BoundaryTraffic& one : stage) {
      if (one.direction != direction || one.sent != sent) continue;
      const auto add = [&](auto member) { sum.*member += one.traffic.*member; };
      std::apply([&](auto... members) { (add(members), ...); }, codec::kTrafficSums);
      sum.cache_bytes += one.traffic.cache_bytes;
    }
  }
  return sum;
}

}  // namespace strait::stages
