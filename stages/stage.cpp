#include "stages/stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "framework/data/sample_order.h"
#include "framework/store/store_error.h"
#include "kernels/random.h"
#include "models/initialize.h"
#include "models/model_description.h"
#include "stages/chunk_ports.h"
#include "stages/link_tie.h"
#include "stages/muon.h"

namespace strait::stages {
namespace {

AdamWOptions optimizer_options(const StageOptions& options, const models::ModelDescription& model,
                               const std::vector<models::LayerRange>& chunks) {
  AdamWOptions adamw = options.adamw;
  if (options.sync.share_state && !options.group.groups.empty()) {
    const auto replica = static_cast<std::uint32_t>(options.batch.replica);
    const sync::Membership group = sync::group_of(options.group.groups, replica);
    adamw.sharers = group.count();
    adamw.sharer = group.mine;
  }
  if (!options.muon) return adamw;
  for (const models::LayerRange& layers : chunks) {
    for (const auto& matrix : muon_matrices(model, layers)) adamw.muon.insert(matrix.name);
  }
  return adamw;
}

std::unique_ptr<FrozenRows> make_frozen_rows(const StageOptions& options) {
  if (options.frozen_rows.entry_bytes == 0) return nullptr;
  FrozenRowsOptions rows;
  rows.limits = options.frozen_rows;
  rows.disk_file = options.folder / fmt::format("frozen-rows-{}", options.batch.replica);
  rows.order = sample_order_options(options.batch, options.training_rows);
  rows.micro_batch_rows = options.batch.micro_batch_rows;
  return std::make_unique<FrozenRows>(std::move(rows));
}

}  // namespace

Stage::Stage(const StageOptions& options)
    : options_(options),
      snapshot_memory_(std::make_shared<tensors::SnapshotMemory>(
          options.snapshots ? options.snapshots->memory_bytes : 0)),
      description_(models::describe(options.model)),
      first_trained_layer_(description_.first_trained_layer()),
      frozen_rows_(make_frozen_rows(options)),
      offload_(options.offload_from && !options.device.is_cpu()
                   ? std::make_unique<ActivationOffload>(options.device, *options.offload_from)
                   : nullptr),
      slots_(make_slots(options, first_trained_layer_, frozen_rows_.get(), offload_.get())),
      tied_(share_tied(slots_)),
      parameters_(own_parameters(true)),
      frozen_(own_parameters(false)),
      parameter_indices_(parameter_indices()),
      layout_(stage_layout(description_, layers())),
      gradients_(std::make_unique<Gradients>(parameters_, layout_)),
      optimizer_(std::make_unique<AdamW>(parameters_, layout_,
                                         optimizer_options(options, description_, layers()))),
      sync_(std::make_unique<ReplicaSync>(options.sync, options.batch.replicas,
                                          options.batch.replica, layout_, *optimizer_, *gradients_,
                                          waits_, options.group)) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].upper = make_boundary(options.chunks[i], BoundarySide::receiver);
    slots_[i].lower = make_boundary(options.chunks[i], BoundarySide::sender);
  }
  if (options.loop.reference) {
    references_ = std::make_unique<ReferenceValues>(
        sample_order_options(options.batch, options.training_rows));
  }
}

std::vector<ChunkSlot> Stage::make_slots(const StageOptions& options, int first_trained_layer,
                                         FrozenRows* frozen_rows, ActivationOffload* offload) {
  ChunkOptions chunk;
  chunk.seed = options.seed;
  chunk.first_micro_batch = static_cast<std::int32_t>(micro_batches_before(options.batch));
  chunk.micro_batches = all_micro_batches(options.batch);
  chunk.slices = options.batch.slices;
  chunk.recompute = options.recompute;
  chunk.noise = options.noise;
  chunk.first_trained_layer = first_trained_layer;
  chunk.frozen_rows = frozen_rows;
  std::vector<ChunkSlot> slots;
  for (const ChunkPlan& plan : options.chunks) {
    const auto index = static_cast<ChunkIndex>(slots.size());
    chunk.splits_backward = schedules::splits_backward(options.training, index);
    // Otherwise all passes would be on the device all the same.
    const int waiting = schedules::most_waiting(options.training, index);
    chunk.offload = waiting > ActivationOffload::kPassesOnDevice ? offload : nullptr;
    ChunkSlot& slot = slots.emplace_back();
    slot.model = models::make_model(options.model, plan.layers, options.dtype, options.device);
    slot.chunk = std::make_unique<Chunk>(*slot.model, chunk);
  }
  return slots;
}

// The layers of a tied weight on this stage. If both are here, in different chunks, they share
// memory from now on, as in one chunk. An embedding without its LM head has no rows until a phase
// begins. If the weight is frozen, each stage has its own copy, and nothing has to be kept equal.
models::TiedWeight Stage::share_tied(const std::vector<ChunkSlot>& slots) {
  models::TiedWeight tied;
  for (const ChunkSlot& slot : slots) {
    const models::TiedWeight& here = slot.model->tied();
    if (here.embedding.defined()) {
      tied.embedding = here.embedding;
      tied.padding_row = here.padding_row;
    }
    if (here.head.defined()) tied.head = here.head;
    tied.trained = tied.trained && here.trained;
  }
  if (tied.embedding.defined() && tied.head.defined()) {
    tied.head.set_data(tied.embedding.detach());
  } else if (tied.embedding.defined() && tied.trained) {
    tied.embedding.set_data(tied.embedding.detach().new_empty({0, tied.embedding.size(1)}));
  }
  return tied.trained ? tied : models::TiedWeight{};
}

// All parameters except the embedding of a tied weight that the stage of the LM head owns.
std::vector<models::Parameter> Stage::own_parameters(bool trained) const {
  std::vector<models::Parameter> own;
  const bool both = tied_.embedding.defined() && tied_.head.defined();
  for (const ChunkSlot& slot : slots_) {
    for (models::Parameter& parameter : slot.model->parameters()) {
      if (parameter.trained != trained) continue;
      if (!both && parameter.value.is_same(tied_.embedding)) continue;
      if (!both && parameter.value.is_same(tied_.head)) parameter.owned = true;
      own.push_back(std::move(parameter));
    }
  }
  return own;
}

std::vector<std::uint32_t> Stage::parameter_indices() const {
  std::map<std::string, std::uint32_t> by_name;
  for (const models::TensorShape& tensor : description_.trained_tensors()) {
    by_name.emplace(tensor.name, static_cast<std::uint32_t>(by_name.size()));
  }
  std::vector<std::uint32_t> indices;
  for (const models::Parameter& one : parameters_) indices.push_back(by_name.at(one.name));
  return indices;
}

std::vector<models::LayerRange> Stage::layers() const {
  std::vector<models::LayerRange> layers;
  for (const ChunkSlot& slot : slots_) layers.push_back(slot.model->range());
  return layers;
}

void Stage::connect(StageLinks links, const StageData& data, std::function<Requests()> requests) {
  TORCH_INTERNAL_ASSERT(links.chunks.size() == slots_.size(), "links of ", links.chunks.size(),
                        " chunks for a stage that has ", slots_.size());
  source_ = std::make_unique<BatchSource>(data.training, data.evaluation, options_.batch);
  sync_->connect(std::move(links.replicas), options_.loop.first, links.tracker, links.rejoin);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // Downstream first: between two chunks of this stage it also makes the upstream of the next
    // one.
    connect_downstream(i, links.chunks[i], links.spans);
    connect_upstream(i, links.chunks[i], links.spans);
  }
  ReaderTie* const reader = connect_tie(std::move(links.tie));
  // Without a link and without a chunk above, this is the first stage.
  if (slots_.front().upstream == nullptr) connect_first_stage(links, reader, std::move(requests));
  tracker_ = links.tracker;
  if (tracker_ == nullptr) return;
  tracker_->on_change([this](const auto& members) { disconnect_evicted(members); });
}

Stage::~Stage() {
  // Threads of boundaries may wait for the writer of a snapshot that was given up.
  snapshot_memory_->abandon();
  // The tracker outlives this object, and the control thread calls it.
  if (tracker_ != nullptr) tracker_->on_change({});
}

void Stage::disconnect_evicted(const std::vector<std::uint32_t>& members) const {
  const net::LinkError evicted(net::LinkError::Kind::aborted, "the replica was evicted");
  for (std::uint32_t replica = 0; replica < options_.batch.replicas; ++replica) {
    if (std::ranges::find(members, replica) != members.end()) continue;
    for (net::Link* link : {replica_link(replica), consensus_link(replica)}) {
      if (link != nullptr) link->abort(evicted);
    }
  }
}

std::unique_ptr<Boundary> Stage::make_boundary(const ChunkPlan& chunk, BoundarySide side) const {
  const bool upper = side == BoundarySide::receiver;
  const BoundaryOptions& options = upper ? chunk.upper : chunk.lower;
  BoundarySetting setting;
  setting.side = side;
  setting.replica = options_.batch.replica;
  setting.seed = options_.seed;
  setting.limits.rows = options_.batch.micro_batch_rows;
  setting.limits.row_tokens = options_.row_tokens;
  setting.slices = options_.batch.slices;
  setting.dtype = options_.dtype;
  setting.device = options_.device;
  setting.evaluation_wire = options_.evaluation_wire;
  setting.last = options_.loop.last;
  // A boundary carries the output of the last layer above it. Above the embedding there is none.
  const int above = upper ? chunk.layers.first - 1 : chunk.layers.last;
  if (above >= 0) {
    setting.limits.width = description_.layers.at(static_cast<std::size_t>(above)).output_width;
  }
  if (uses_cache(options)) {
    const data::SampleOrder order(sample_order_options(options_.batch, options_.training_rows));
    setting.order = [order, batch = options_.batch](store::Step step) {
      return in_slices(order.samples(step), batch);
    };
    setting.samples_return = number(options_.loop.last) > order.epoch_steps(1);
    if (options_.snapshots) {
      setting.saved_before = [loop = options_.loop](store::Step steps) {
        return is_due(steps, loop.checkpoint_every) || is_due(steps, loop.memory_every);
      };
    }
    setting.snapshot_memory = snapshot_memory_;
  }
  return std::make_unique<Boundary>(options, std::move(setting));
}

// Without a link the input comes from the previous chunk on this stage, whose connect_downstream()
// has set both ports, or from the batch.
void Stage::connect_upstream(std::size_t slot, ChunkLinks& links, trace::SpanLog* spans) {
  ChunkSlot& mine = slots_[slot];
  if (links.upstream == nullptr) return;
  mine.upstream = std::make_unique<LinkUpstream>(
      mine.upper->connect(std::move(links.upstream), waits_, links.upstream_name, spans),
      gradients_cross(mine.model->range().first - 1));
}

void Stage::connect_downstream(std::size_t slot, ChunkLinks& links, trace::SpanLog* spans) {
  ChunkSlot& mine = slots_[slot];
  if (links.downstream != nullptr) {
    mine.downstream = std::make_unique<LinkDownstream>(
        mine.lower->connect(std::move(links.downstream), waits_, links.downstream_name, spans),
        gradients_cross(mine.model->range().last));
  } else if (slot + 1 < slots_.size()) {
    const auto queues = std::make_shared<LocalQueues>();
    mine.downstream = std::make_unique<LocalDownstream>(queues);
    slots_[slot + 1].upstream = std::make_unique<LocalUpstream>(queues);
  } else {
    TORCH_INTERNAL_ASSERT(mine.model->head() != nullptr,
                          "the last stage of a pipeline has no LM head");
    mine.downstream = std::make_unique<LossDownstream>(*mine.model->head(), *gradients_, *source_,
                                                       options_.preference, references_.get());
  }
}

void Stage::connect_first_stage(StageLinks& links, ReaderTie* tie,
                                std::function<Requests()> requests) {
  const auto norms =
      sync_->sums_gradients() ? StepConsensus::Norms::of_the_sum : StepConsensus::Norms::of_each;
  StepConsensus consensus(std::move(links.consensus),
                          static_cast<std::size_t>(options_.batch.replica), norms, waits_,
                          links.tracker);
  if (links.tracker != nullptr) consensus.rejoin(sync_->members());
  decider_ = std::make_unique<StepDecider>(std::move(consensus), options_.clip, *sync_, *source_,
                                           std::move(requests));
  slots_.front().upstream = std::make_unique<BatchUpstream>(
      *source_, [this](const StepReport& report) { return decider_->decide(report); }, tie);
}

// On the last stage of the pipeline this is its loss, the last in the order of the data. On all
// others it is the boundary of the first slot, whose gradients arrive last in a step.
Downstream& Stage::below() const {
  const ChunkSlot& last = slots_.back();
  return last.model->head() != nullptr ? *last.downstream : *slots_.front().downstream;
}

LinkTieOptions Stage::tie_options(const BoundaryOptions& boundary) const {
  const auto replica = static_cast<std::uint64_t>(options_.batch.replica);
  return {tied_row_codec(boundary.codec), options_.dtype,
          kernels::mix_key({options_.seed, kernels::hash_name("tie"), replica})};
}

ReaderTie* Stage::connect_tie(std::unique_ptr<net::Link> link) {
  TORCH_INTERNAL_ASSERT((link != nullptr) == (tied_.embedding.defined() != tied_.head.defined()),
                        "a link between two stages with a tied weight, and only there");
  if (tied_.embedding.defined() && tied_.head.defined()) {
    tie_ = std::make_unique<LocalTie>(tied_.embedding, tied_.head);
  } else if (tied_.head.defined()) {
    tie_ = std::make_unique<OwnerTie>(tied_.head, std::move(link), *source_,
                                      tie_options(options_.chunks.back().upper), waits_);
  } else if (tied_.embedding.defined()) {
    auto reader = std::make_unique<ReaderTie>(tied_, std::move(link), *source_,
                                              tie_options(options_.chunks.front().lower), waits_);
    ReaderTie* const connected = reader.get();
    tie_ = std::move(reader);
    return connected;
  }
  return nullptr;
}

void Stage::initialize() {
  for (const ChunkSlot& slot : slots_) {
    models::initialize(*slot.model, options_.model, options_.seed);
  }
  // The masters were copied from uninitialized parameters, so they take over the values now.
  optimizer_->adopt();
}

void Stage::load(const ReadTensor& read) {
  for (const models::Parameter& parameter : frozen_) {
    load_parameter(parameter, read);
  }
  std::set<std::string> adapters;
  for (const models::Parameter& parameter : parameters_) {
    if (!parameter.adapter) continue;
    adapters.insert(parameter.name);
    models::initialize(parameter, options_.model, options_.seed);
  }
  // Adapters are not in the model's files, so load_weights() must skip them.
  if (!adapters.empty()) optimizer_->adopt();
  load_weights(*optimizer_, read,
               [&](const std::string& name) { return !adapters.contains(name); });
}

net::Link* Stage::consensus_link(std::size_t replica) const {
  return decider_ == nullptr ? nullptr : decider_->consensus().link(replica);
}

std::vector<Boundary*> Stage::boundaries() const {
  std::vector<Boundary*> connected;
  for (const ChunkSlot& slot : slots_) {
    for (Boundary* boundary : {slot.upper.get(), slot.lower.get()}) {
      if (boundary->link() != nullptr) connected.push_back(boundary);
    }
  }
  return connected;
}

std::vector<BoundaryTraffic> Stage::traffic() const {
  std::vector<BoundaryTraffic> all;
  for (const Boundary* boundary : boundaries()) all.push_back(boundary->sent());
  for (const Boundary* boundary : boundaries()) all.push_back(boundary->received());
  return all;
}

store::Step Stage::run(StageObserver& observer, SaveCheckpoint save, SaveCheckpoint keep) {
  StageParts parts{slots_,           below(),           parameters_, parameter_indices_,
                   *gradients_,      *optimizer_,       *sync_,      *source_,
                   tie_.get(),       references_.get(), waits_,      boundaries(),
                   *snapshot_memory_};
  StageLoop loop(std::move(parts), options_.training, options_.evaluation, options_.loop, observer,
                 {std::move(save), std::move(keep)});
  if (options_.loop.reference_first && !references_->is_complete(options_.loop.evaluate)) {
    compare_with_reference(loop);
  }
  return loop.run();
}

void Stage::compare_with_reference(StageLoop& loop) {
  if (number(options_.loop.first) > 0) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        "the checkpoint lacks what train.preference.loss compares with: the log-probabilities of "
        "the model before training; start a new run, from the exported model of this one");
  }
  if (!load_reference_) return loop.play_references();
  // The buffers of gradients hold the weights meanwhile: they are as large, and not in use yet.
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].owned) continue;
    (*gradients_)[i].copy_(parameters_[i].value);
    load_reference_(parameters_[i]);
  }
  loop.play_references();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].owned) parameters_[i].value.copy_((*gradients_)[i]);
  }
}

}  // namespace strait::stages
