#include "stages/stage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "framework/store/sample_order.h"
#include "models/initialize.h"
#include "models/model_description.h"
#include "stages/batch_upstream.h"
#include "stages/link_downstream.h"
#include "stages/link_upstream.h"
#include "stages/local_passage.h"
#include "stages/loss_downstream.h"

namespace strait::stages {

Stage::Stage(const StageOptions& options)
    : options_(options),
      seats_(make_seats(options)),
      tied_(share_tied(seats_)),
      parameters_(all_parameters()),
      places_(places()),
      layout_(stage_layout(models::describe(options.model), layers())),
      gradients_(std::make_unique<Gradients>(parameters_, layout_)),
      optimizer_(std::make_unique<AdamW>(parameters_, layout_, options.adamw)),
      sync_(std::make_unique<ReplicaSync>(options.sync, options.batch.replicas,
                                          options.batch.replica, layout_, *optimizer_, *gradients_,
                                          waits_)) {
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    seats_[i].upper = make_boundary(options.seats[i], BoundarySide::receiver);
    seats_[i].lower = make_boundary(options.seats[i], BoundarySide::sender);
  }
}

std::vector<Stage::Seat> Stage::make_seats(const StageOptions& options) {
  ChunkOptions chunk;
  chunk.seed = options.seed;
  chunk.first_micro_batch =
      static_cast<std::int32_t>(options.batch.replica * options.batch.micro_batches);
  chunk.recompute = options.recompute;
  std::vector<Seat> seats;
  for (const SeatOptions& one : options.seats) {
    Seat& seat = seats.emplace_back();
    seat.model = models::make_model(options.model, one.layers, options.dtype, at::kCPU);
    seat.chunk = std::make_unique<Chunk>(*seat.model, chunk);
  }
  return seats;
}

// Both sides of a tied weight, as far as they are on this stage; where they are in two chunks they
// come to share memory here, as they do in one.
models::TiedWeight Stage::share_tied(const std::vector<Seat>& seats) {
  models::TiedWeight tied;
  for (const Seat& seat : seats) {
    const models::TiedWeight& here = seat.model->tied();
    if (here.embedding.defined()) tied.embedding = here.embedding;
    if (here.head.defined()) tied.head = here.head;
  }
  if (tied.embedding.defined() && tied.head.defined()) {
    tied.head.set_data(tied.embedding.detach());
  }
  return tied;
}

std::vector<models::Parameter> Stage::all_parameters() const {
  std::vector<models::Parameter> all;
  for (const Seat& seat : seats_) {
    for (models::Parameter& parameter : seat.model->parameters()) {
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

std::vector<std::uint32_t> Stage::places() const {
  std::map<std::string, std::uint32_t> by_name;
  for (const models::TensorShape& tensor : models::describe(options_.model).tensors()) {
    by_name.emplace(tensor.name, static_cast<std::uint32_t>(by_name.size()));
  }
  std::vector<std::uint32_t> places;
  for (const models::Parameter& one : parameters_) places.push_back(by_name.at(one.name));
  return places;
}

std::vector<models::LayerRange> Stage::layers() const {
  std::vector<models::LayerRange> layers;
  for (const Seat& seat : seats_) layers.push_back(seat.model->range());
  return layers;
}

void Stage::connect(StageLinks links, const StageData& data, std::function<Wishes()> wishes) {
  TORCH_INTERNAL_ASSERT(links.seats.size() == seats_.size(), "links of ", links.seats.size(),
                        " chunks for a stage that has ", seats_.size());
  source_ = std::make_unique<BatchSource>(data.training, data.evaluation, options_.batch);
  sync_->connect(std::move(links.replicas), options_.loop.first, links.tracker, links.entry);
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    connect_downstream(i, links.seats[i]);
    connect_upstream(i, links.seats[i]);
  }
  if (seats_.front().upstream == nullptr) {
    connect_head(links, std::move(wishes));
  }
  connect_tie(std::move(links.tie));
  tracker_ = links.tracker;
  if (tracker_ == nullptr) return;
  tracker_->on_change([this](const auto& members) { part_from_others(members); });
}

Stage::~Stage() {
  if (tracker_ != nullptr) tracker_->on_change({});
}

void Stage::part_from_others(const std::vector<std::uint32_t>& members) const {
  const net::LinkError left(net::LinkError::Kind::aborted, "the replica takes no part any more");
  for (std::uint32_t replica = 0; replica < options_.batch.replicas; ++replica) {
    if (std::ranges::find(members, replica) != members.end()) continue;
    for (net::Link* link : {replica_link(replica), vote_link(replica)}) {
      if (link != nullptr) link->abort(left);
    }
  }
}

std::unique_ptr<Boundary> Stage::make_boundary(const SeatOptions& seat, BoundarySide side) const {
  const bool upper = side == BoundarySide::receiver;
  const BoundaryOptions& options = upper ? seat.upper : seat.lower;
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
    const int above = upper ? seat.layers.first - 1 : seat.layers.last;
    setting.width =
        models::describe(options_.model).layers.at(static_cast<std::size_t>(above)).output_width;
    const store::SampleOrder order(sample_order_options(options_.batch, options_.training_rows));
    setting.order = [order](store::Step step) { return order.samples(step); };
    setting.samples_return = number(options_.loop.last) > order.epoch_steps(1);
  }
  return std::make_unique<Boundary>(options, std::move(setting));
}

// Without a link: the seat above, where there is one, has left the other half of a passage here;
// else the pipeline begins here.
void Stage::connect_upstream(std::size_t seat, SeatLinks& links) {
  Seat& mine = seats_[seat];
  if (links.upstream == nullptr) return;
  mine.upstream = std::make_unique<LinkUpstream>(
      mine.upper->connect(std::move(links.upstream), waits_, links.upstream_name));
}

void Stage::connect_head(StageLinks& links, std::function<Wishes()> wishes) {
  const auto norms =
      sync_->sums_gradients() ? HeadVote::Norms::of_the_sum : HeadVote::Norms::of_each;
  votes_ = std::make_unique<HeadVote>(std::move(links.votes),
                                      static_cast<std::size_t>(options_.batch.replica), norms,
                                      waits_, links.tracker);
  if (links.tracker != nullptr) votes_->welcome(sync_->members());
  seats_.front().upstream = std::make_unique<BatchUpstream>(
      *source_, [this, wishes = std::move(wishes)](const StepReport& report) {
        return settle_at_head(report, wishes());
      });
}

// A loss is divided by the tokens of all replicas that there may be. Where every replica trains on
// by itself, its gradient is the mean over its own tokens; and where some have left, what the
// others have together is the mean over theirs.
StepVerdict Stage::settle_at_head(StepReport report, Wishes wishes) {
  // Somebody has come since the last vote.
  if (votes_->epoch() < sync_->members().epoch) votes_->welcome(sync_->members());
  if (wishes.save <= saved_for_) wishes.save = 0;
  const bool step = !report.squared_norms.empty();
  const auto tokens = static_cast<double>(report.target_tokens);
  double own_factor = 1;
  if (!sync_->sums_gradients() && step) {
    const std::int64_t own = source_->own_target_tokens({report.step, true});
    if (own > 0) own_factor = tokens / static_cast<double>(own);
    for (SquaredNorm& norm : report.squared_norms) norm.value *= own_factor * own_factor;
  }
  HeadVote::Result result = votes_->cast({std::move(report), wishes.stop, wishes.save});
  saved_for_ = std::max(saved_for_, result.all.save);
  StepReport& all = result.all.report;
  double factor = 1;
  if (step && result.passed &&
      result.voters.size() < static_cast<std::size_t>(options_.batch.replicas)) {
    all.target_tokens = source_->target_tokens(all.step, result.voters);
    if (all.target_tokens > 0) factor = tokens / static_cast<double>(all.target_tokens);
    all.loss *= factor;
    if (!sync_->sums_gradients()) factor = 1;
    for (SquaredNorm& norm : all.squared_norms) norm.value *= factor * factor;
  }
  StepVerdict verdict = decide(all, options_.clip, result.all.stop);
  verdict.gradient_factor *= own_factor * factor;
  verdict.save = result.all.save > 0;
  verdict.again = !result.passed;
  verdict.epoch = result.epoch;
  return verdict;
}

void Stage::connect_downstream(std::size_t seat, SeatLinks& links) {
  Seat& mine = seats_[seat];
  if (links.downstream != nullptr) {
    mine.downstream = std::make_unique<LinkDownstream>(
        mine.lower->connect(std::move(links.downstream), waits_, links.downstream_name));
  } else if (seat + 1 < seats_.size()) {
    const auto passage = std::make_shared<LocalPassage>();
    mine.downstream = std::make_unique<LocalDownstream>(passage);
    seats_[seat + 1].upstream = std::make_unique<LocalUpstream>(passage);
  } else {
    TORCH_INTERNAL_ASSERT(mine.model->head() != nullptr,
                          "the last stage of a pipeline has no head");
    mine.downstream = std::make_unique<LossDownstream>(*mine.model->head(), *gradients_, *source_);
  }
}

Downstream& Stage::below() const {
  const Seat& last = seats_.back();
  return last.model->head() != nullptr ? *last.downstream : *seats_.front().downstream;
}

void Stage::connect_tie(std::unique_ptr<net::Link> link) {
  if (tied_.embedding.defined() && tied_.head.defined()) {
    ties_.push_back(std::make_unique<LocalTie>(tied_.embedding, tied_.head));
  } else if (link != nullptr) {
    ties_.push_back(std::make_unique<LinkTie>(
        tied_.embedding.defined() ? tied_.embedding : tied_.head, std::move(link), waits_));
  }
}

void Stage::initialize() {
  for (const Seat& seat : seats_) {
    models::initialize(*seat.model, options_.model, options_.seed);
  }
  optimizer_->adopt();
}

net::Link* Stage::upstream_link(ChunkIndex chunk) {
  return seats_.at(static_cast<std::size_t>(number(chunk))).upper->link();
}
net::Link* Stage::downstream_link(ChunkIndex chunk) {
  return seats_.at(static_cast<std::size_t>(number(chunk))).lower->link();
}
net::Link* Stage::tie_link() { return ties_.empty() ? nullptr : ties_.front()->link(); }
net::Link* Stage::replica_link(std::size_t replica) const { return sync_->link(replica); }
net::Link* Stage::vote_link(std::size_t replica) const {
  return votes_ == nullptr ? nullptr : votes_->link(replica);
}

sync::SyncTraffic Stage::sync_traffic() const {
  sync::SyncTraffic traffic = sync_->traffic();
  if (votes_ != nullptr) traffic.sent_bytes += votes_->sent_bytes();
  return traffic;
}

std::vector<Boundary*> Stage::boundaries() const {
  std::vector<Boundary*> connected;
  for (const Seat& seat : seats_) {
    for (Boundary* boundary : {seat.upper.get(), seat.lower.get()}) {
      if (boundary->link() != nullptr) connected.push_back(boundary);
    }
  }
  return connected;
}

std::vector<tensors::NamedTensor> Stage::saved_caches() const {
  std::vector<tensors::NamedTensor> tensors;
  for (const Boundary* boundary : boundaries()) {
    for (tensors::NamedTensor& tensor : boundary->saved_cache())
      tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void Stage::restore_caches(const ReadTensor& read) {
  for (const Seat& seat : seats_) {
    seat.upper->restore_cache(read);
    seat.lower->restore_cache(read);
  }
}

std::vector<BoundaryTraffic> Stage::traffic() const {
  std::vector<BoundaryTraffic> all;
  for (const Boundary* boundary : boundaries()) all.push_back(boundary->sent());
  for (const Boundary* boundary : boundaries()) all.push_back(boundary->received());
  return all;
}

store::Step Stage::run(StageObserver& observer) {
  std::vector<StageParts::Seat> seats;
  for (const Seat& seat : seats_) {
    seats.push_back({*seat.chunk, *seat.upstream, *seat.downstream});
  }
  StageParts parts{std::move(seats), below(),  parameters_, places_, *gradients_, *optimizer_,
                   *sync_,           *source_, ties_,       waits_,  boundaries()};
  StageLoop loop(std::move(parts), options_.training, options_.evaluation, options_.loop, observer);
  return loop.run();
}

}  // namespace strait::stages
