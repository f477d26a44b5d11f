#include "stages/stage.h"

#include <ATen/ATen.h>

#include <utility>

#include "framework/codec/raw.h"
#include "models/initialize.h"
#include "stages/batch_upstream.h"
#include "stages/link_downstream.h"
#include "stages/link_upstream.h"
#include "stages/loss_downstream.h"

namespace strait::stages {

Stage::Stage(const StageOptions& options)
    : options_(options),
      model_(models::make_model(options.model, options.layers, options.dtype, at::kCPU)),
      parameters_(model_->parameters()),
      gradients_(std::make_unique<Gradients>(parameters_)),
      optimizer_(std::make_unique<AdamW>(parameters_, options.adamw)) {
  ChunkOptions chunk;
  chunk.seed = options.seed;
  chunk.first_micro_batch =
      static_cast<std::int32_t>(options.batch.replica * options.batch.micro_batches);
  chunk.recompute = options.recompute;
  chunk_ = std::make_unique<Chunk>(*model_, chunk);
}

void Stage::connect(StageLinks links, const StageData& data, std::function<bool()> stop_requested) {
  source_ = std::make_unique<BatchSource>(data.training, data.evaluation, options_.batch);
  connect_upstream(links, std::move(stop_requested));
  connect_downstream(links);
  connect_tie(std::move(links.tie));
}

Stage::~Stage() = default;

BoundaryCodecs Stage::codecs() const {
  BoundaryCodecs made;
  made.encoder = std::make_unique<codec::RawEncoder>(options_.wire);
  made.decoder = std::make_unique<codec::RawDecoder>(options_.wire, options_.dtype);
  made.evaluation_encoder = std::make_unique<codec::RawEncoder>(options_.evaluation_wire);
  made.evaluation_decoder =
      std::make_unique<codec::RawDecoder>(options_.evaluation_wire, options_.dtype);
  return made;
}

void Stage::connect_upstream(StageLinks& links, std::function<bool()> stop_requested) {
  if (links.upstream == nullptr) {
    upstream_ = std::make_unique<BatchUpstream>(
        *source_, [clip = options_.clip, stop = std::move(stop_requested)](
                      const StepReport& report) { return decide(report, clip, stop()); });
    return;
  }
  upper_end_ = std::make_unique<BoundaryEnd>(std::move(links.upstream), codecs(), waits_,
                                             links.upstream_name);
  upstream_ = std::make_unique<LinkUpstream>(*upper_end_);
}

void Stage::connect_downstream(StageLinks& links) {
  if (links.downstream == nullptr) {
    TORCH_INTERNAL_ASSERT(model_->head() != nullptr, "the last stage of a pipeline has no head");
    downstream_ = std::make_unique<LossDownstream>(*model_->head(), *gradients_, *source_);
    return;
  }
  lower_end_ = std::make_unique<BoundaryEnd>(std::move(links.downstream), codecs(), waits_,
                                             links.downstream_name);
  downstream_ = std::make_unique<LinkDownstream>(*lower_end_);
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

net::Link* Stage::upstream_link() { return upper_end_ ? &upper_end_->link() : nullptr; }
net::Link* Stage::downstream_link() { return lower_end_ ? &lower_end_->link() : nullptr; }
net::Link* Stage::tie_link() { return ties_.empty() ? nullptr : ties_.front()->link(); }

store::Step Stage::run(StageObserver& observer) {
  StageParts parts{
      {{*chunk_, *upstream_, *downstream_}}, parameters_, *gradients_, *optimizer_, ties_, waits_};
  StageLoop loop(std::move(parts), options_.training, options_.evaluation, options_.loop, observer);
  return loop.run();
}

}  // namespace strait::stages
