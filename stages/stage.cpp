#include "stages/stage.h"

#include <ATen/ATen.h>

#include <utility>

#include "framework/store/sample_order.h"
#include "models/initialize.h"
#include "models/model_description.h"
#include "stages/batch_upstream.h"
#include "stages/link_downstream.h"
#include "stages/link_upstream.h"
#include "stages/loss_downstream.h"

namespace strait::stages {

Stage::Stage(const StageOptions& options)
    : options_(options),
      model_(models::make_model(options.model, options.layers, options.dtype, at::kCPU)),
      parameters_(model_->parameters()),
      layout_(stage_layout(models::describe(options.model), options.layers)),
      gradients_(std::make_unique<Gradients>(parameters_, layout_)),
      optimizer_(std::make_unique<AdamW>(parameters_, layout_, options.adamw)),
      sync_(std::make_unique<ReplicaSync>(options.sync, options.batch.replicas,
                                          options.batch.replica, layout_, *optimizer_, *gradients_,
                                          waits_)) {
  ChunkOptions chunk;
  chunk.seed = options.seed;
  chunk.first_micro_batch =
      static_cast<std::int32_t>(options.batch.replica * options.batch.micro_batches);
  chunk.recompute = options.recompute;
  chunk_ = std::make_unique<Chunk>(*model_, chunk);
  upper_ = make_boundary(BoundarySide::receiver);
  lower_ = make_boundary(BoundarySide::sender);
}

void Stage::connect(StageLinks links, const StageData& data, std::function<bool()> stop_requested) {
  source_ = std::make_unique<BatchSource>(data.training, data.evaluation, options_.batch);
  sync_->connect(std::move(links.replicas), options_.loop.first);
  connect_upstream(links, std::move(stop_requested));
  connect_downstream(links);
  connect_tie(std::move(links.tie));
}

Stage::~Stage() = default;

std::unique_ptr<Boundary> Stage::make_boundary(BoundarySide side) const {
  const bool upper = side == BoundarySide::receiver;
  const BoundaryOptions& options = upper ? options_.upper : options_.lower;
  BoundarySetting setting;
  setting.side = side;
  setting.replica = options_.batch.replica;
  setting.seed = options_.seed;
  setting.row_tokens = options_.row_tokens;
  setting.dtype = options_.dtype;
  setting.wire = options_.wire;
  setting.evaluation_wire = options_.evaluation_wire;
  setting.last = options_.loop.last;
  if (remembers_samples(options)) {
    const int above = upper ? options_.layers.first - 1 : options_.layers.last;
    setting.width =
        models::describe(options_.model).layers.at(static_cast<std::size_t>(above)).output_width;
    const store::SampleOrder order(sample_order_options(options_.batch, options_.training_rows));
    setting.order = [order](store::Step step) { return order.samples(step); };
    setting.samples_return = number(options_.loop.last) > order.epoch_steps(1);
  }
  return std::make_unique<Boundary>(options, std::move(setting));
}

void Stage::connect_upstream(StageLinks& links, std::function<bool()> stop_requested) {
  if (links.upstream == nullptr) {
    const auto norms =
        sync_->sums_gradients() ? HeadVote::Norms::of_the_sum : HeadVote::Norms::of_each;
    votes_ = std::make_unique<HeadVote>(
        std::move(links.votes), static_cast<std::size_t>(options_.batch.replica), norms, waits_);
    upstream_ = std::make_unique<BatchUpstream>(
        *source_, [this, stop = std::move(stop_requested)](const StepReport& report) {
          return settle_at_head(report, stop());
        });
    return;
  }
  upstream_ = std::make_unique<LinkUpstream>(
      upper_->connect(std::move(links.upstream), waits_, links.upstream_name));
}

// Where every replica trains on by itself, its gradient is the mean over its own tokens: the loss
// was divided by those of all replicas.
StepVerdict Stage::settle_at_head(StepReport report, bool stop) {
  double factor = 1;
  if (!sync_->sums_gradients() && !report.squared_norms.empty()) {
    const std::int64_t own = source_->own_target_tokens({report.step, true});
    if (own > 0) factor = static_cast<double>(report.target_tokens) / static_cast<double>(own);
    for (double& squared : report.squared_norms) squared *= factor * factor;
  }
  const HeadVote::Vote all = votes_->cast({std::move(report), stop});
  StepVerdict verdict = decide(all.report, options_.clip, all.stop);
  verdict.gradient_factor *= factor;
  return verdict;
}

void Stage::connect_downstream(StageLinks& links) {
  if (links.downstream == nullptr) {
    TORCH_INTERNAL_ASSERT(model_->head() != nullptr, "the last stage of a pipeline has no head");
    downstream_ = std::make_unique<LossDownstream>(*model_->head(), *gradients_, *source_);
    return;
  }
  downstream_ = std::make_unique<LinkDownstream>(
      lower_->connect(std::move(links.downstream), waits_, links.downstream_name));
}

void Stage::connect_tie(std::unique_ptr<net::Link> link) {
  const models::TiedWeight tied = model_->tied();
  if (tied.embedding.defined() && tied.head.defined()) {
    ties_.push_back(std::make_unique<LocalTie>(tied.embedding, tied.head));
  } else if (link != nullptr) {
    ties_.push_back(std::make_unique<LinkTie>(tied.embedding.defined() ? tied.embedding : tied.head,
                                              std::move(link), waits_));
  }
}

void Stage::initialize() {
  models::initialize(*model_, options_.model, options_.seed);
  optimizer_->adopt();
}

net::Link* Stage::upstream_link() { return upper_->link(); }
net::Link* Stage::downstream_link() { return lower_->link(); }
net::Link* Stage::tie_link() { return ties_.empty() ? nullptr : ties_.front()->link(); }
const net::Link* Stage::replica_link(std::size_t replica) const { return sync_->link(replica); }
const net::Link* Stage::vote_link(std::size_t replica) const {
  return votes_ == nullptr ? nullptr : votes_->link(replica);
}

sync::SyncTraffic Stage::sync_traffic() const {
  sync::SyncTraffic traffic = sync_->traffic();
  if (votes_ != nullptr) traffic.sent_bytes += votes_->sent_bytes();
  return traffic;
}

std::vector<Boundary*> Stage::boundaries() const {
  std::vector<Boundary*> connected;
  for (const std::unique_ptr<Boundary>* boundary : {&upper_, &lower_}) {
    if ((*boundary)->link() != nullptr) connected.push_back(boundary->get());
  }
  return connected;
}

std::vector<store::NamedTensor> Stage::saved_caches() const {
  std::vector<store::NamedTensor> tensors;
  for (const Boundary* boundary : boundaries()) {
    for (store::NamedTensor& tensor : boundary->saved_cache()) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void Stage::restore_caches(const ReadTensor& read) {
  upper_->restore_cache(read);
  lower_->restore_cache(read);
}

std::vector<BoundaryTraffic> Stage::traffic() const {
  std::vector<BoundaryTraffic> all;
  for (const Boundary* boundary : boundaries()) all.push_back(boundary->sent());
  for (const Boundary* boundary : boundaries()) all.push_back(boundary->received());
  return all;
}

store::Step Stage::run(StageObserver& observer) {
  StageParts parts{{{*chunk_, *upstream_, *downstream_}},
                   parameters_,
                   *gradients_,
                   *optimizer_,
                   *sync_,
                   ties_,
                   waits_,
                   boundaries()};
  StageLoop loop(std::move(parts), options_.training, options_.evaluation, options_.loop, observer);
  return loop.run();
}

}  // namespace strait::stages
