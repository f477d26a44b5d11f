#include "tests/interleavings/trainer.h"

#include <xxhash.h>

#include "framework/sync/methods.h"

namespace strait::interleavings {
namespace {

constexpr float kRate = 0.01F;
// A gradient shows which replicas contributed: each replica has a digit to this base.
constexpr std::uint64_t kDigit = 8;

sync::SyncSettings settings_of(const Case& settings) {
  sync::SyncSettings sync;
  sync.method = settings.method;
  sync.seed = 5;
  sync.random = 1;
  sync.top = 1;
  sync.every = settings.method == "streaming_diloco" ? 2 : 1;
  sync.fragments = 1;
  sync.steps = settings.steps;
  return sync;
}

// One grain for each replica: every member owns a part.
sync::Layout layout_of(const Case& settings) {
  sync::PieceSpec piece;
  piece.name = "weight";
  piece.shape = {static_cast<std::int64_t>(settings.replicas), sync::kGrain};
  return sync::Layout({piece});
}

std::uint64_t power(std::uint64_t base, std::uint32_t exponent) {
  std::uint64_t value = 1;
  for (std::uint32_t i = 0; i < exponent; ++i) value *= base;
  return value;
}

// As send_state(); there is no optimizer here.
std::vector<std::string> sent_slots(const sync::SyncMethod& method) {
  return sync::shared_slots(method.traits.slots, method.traits.model_slot);
}

}  // namespace

Trainer::Trainer(Simulation& simulation, int index, std::optional<JoinPoint> join)
    : simulation_(simulation),
      case_(simulation.case_),
      process_(simulation.process(index)),
      index_(index),
      join_(join),
      layout_(layout_of(case_)),
      weights_(static_cast<std::size_t>(layout_.size())),
      gradient_(weights_.size()),
      first_moment_(weights_.size()),
      second_moment_(weights_.size()),
      method_(sync::make_method(settings_of(case_))),
      slots_(layout_, {weights_, gradient_, first_moment_, second_moment_}, method_->traits.slots),
      agreement_({[this](const stages::Phase& phase) { return report(phase); },
                  [this](const stages::StepReport& all) { return exchange(all); },
                  [this] { return members_.epoch; },
                  [this](std::uint32_t epoch, bool complete) { regroup(epoch, complete); }}) {
  if (process_.name.stage > 0) above_ = make_pipeline_link(process_.name.stage - 1);
  if (process_.name.stage + 1 < case_.stages) below_ = make_pipeline_link(process_.name.stage + 1);
}

std::unique_ptr<SimulatedLink> Trainer::make_pipeline_link(std::uint32_t other_stage) {
  const int other = simulation_.index_of({other_stage, process_.name.replica});
  for (const auto& wire : simulation_.wires_) {
    if (wire->use != Wire::Use::pipeline) continue;
    for (const std::size_t side : {0U, 1U}) {
      if (wire->process[side] != index_ || wire->process[1 - side] != other) continue;
      return std::make_unique<SimulatedLink>(simulation_, wire, side);
    }
  }
  throw std::logic_error("no pipeline wire");
}

// By replica; the newest wire to each.
Trainer::Links Trainer::make_links(Wire::Use use) {
  Links links(case_.replicas);
  std::vector<SimulatedLink*>& known =
      use == Wire::Use::sync ? process_.to_replicas : process_.consensus;
  known.assign(case_.replicas, nullptr);
  for (std::uint32_t replica = 0; replica < case_.replicas; ++replica) {
    if (replica == process_.name.replica) continue;
    const auto [wire, side] =
        simulation_.newest_wire(use, index_, simulation_.index_of({process_.name.stage, replica}));
    auto link = std::make_unique<SimulatedLink>(simulation_, wire, side);
    known[replica] = link.get();
    links[replica] = std::move(link);
  }
  return links;
}

void Trainer::start_rounds() {
  if (join_) {
    members_ = process_.tracker->wait_for(join_->rejoin.epoch);
  } else {
    members_ = process_.tracker->wait_for(0);
    method_->start(slots_);
  }
  Links links = make_links(Wire::Use::sync);
  if (join_) {
    try {
      receive_state(join_->rejoin);
    } catch (const net::LinkError&) {
      throw std::runtime_error(kSenderLost);
    }
  }
  rounds_ = std::make_unique<sync::SyncRounds>(std::move(method_), slots_, members_,
                                               std::move(links), process_.tracker.get());
  if (join_) rounds_->resume(join_->step);
  if (!is_first()) return;
  consensus_ = std::make_unique<stages::StepConsensus>(
      make_links(Wire::Use::consensus), process_.name.replica,
      stages::StepConsensus::Norms::of_each, waits_, process_.tracker.get());
  consensus_->rejoin(members_);
}

void Trainer::run() {
  start_rounds();
  auto done = join_ ? number(join_->step) : std::int64_t{0};
  // As Stage::disconnect_evicted().
  process_.tracker->on_change([this](const std::vector<std::uint32_t>& members) {
    const net::LinkError evicted(net::LinkError::Kind::aborted, "the replica was evicted");
    for (std::uint32_t replica = 0; replica < case_.replicas; ++replica) {
      if (std::ranges::find(members, replica) != members.end()) continue;
      if (process_.to_replicas[replica]) process_.to_replicas[replica]->abort(evicted);
      if (is_first() && process_.consensus[replica]) process_.consensus[replica]->abort(evicted);
    }
  });
  while (done < case_.steps) {
    train(static_cast<store::Step>(done));
    ++done;
    if (done == case_.steps || done == case_.checkpoint) save(static_cast<store::Step>(done));
  }
  process_.epoch = members_.epoch;
}

void Trainer::compute_gradient(store::Step step) {
  const auto sums = rounds_->method().traits.sums_gradients;
  const auto digit = static_cast<float>(power(kDigit, process_.name.replica));
  for (const sync::Piece& piece : layout_.pieces()) {
    for (auto at = piece.range.first; at < piece.range.last; ++at) {
      const auto key = static_cast<std::uint64_t>(at) * 31 + process_.name.replica * 7 +
                       static_cast<std::uint64_t>(number(step)) * 3;
      gradient_[static_cast<std::size_t>(at)] =
          sums ? digit : static_cast<float>(key % 17) - static_cast<float>(8);
    }
    rounds_->gradient_ready(piece.range);
  }
}

void Trainer::train(store::Step step) {
  rounds_->gradient_begins(step);
  compute_gradient(step);
  agreement_.agree_on_step({step, true}, [&] {
    bool whole = rounds_->gradient_whole(step);
    whole = rounds_->round_complete(step) && whole;
    if (case_.mistake == Mistake::apply_before_all_reported && whole) {
      rounds_->gradient_clipped(step);
    }
    return whole || case_.mistake == Mistake::report_incomplete_round;
  });
  update(step);
  record(step);
}

void Trainer::update(store::Step step) {
  rounds_->gradient_clipped(step);
  rounds_->before_update(step);
  for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= kRate * gradient_[i];
  const bool last = number(step) + 1 == case_.steps;
  if (!rounds_->updated(step, last)) return;
  if (case_.mistake == Mistake::apply_before_all_reported && rounds_->round_complete_now()) {
    rounds_->apply_now();
    return;
  }
  agreement_.agree_between_steps(step, [&] { return rounds_->round_complete_now(); });
  rounds_->apply_now();
}

void Trainer::record(store::Step step) {
  process_.trained.push_back(
      {number(step), rounds_->method().traits.sums_gradients ? contributions() : 0, model_hash()});
}

std::uint64_t Trainer::contributions() const {
  for (const sync::Piece& piece : layout_.pieces()) {
    for (auto at = piece.range.first; at < piece.range.last; ++at) {
      if (gradient_[static_cast<std::size_t>(at)] == gradient_[0]) continue;
      throw std::logic_error("parts of one round have contributions of different replicas");
    }
  }
  return static_cast<std::uint64_t>(gradient_[0]);
}

std::uint64_t Trainer::model_hash() const {
  const std::span<const float> model =
      std::as_const(slots_).values(rounds_->method().traits.model_slot);
  return XXH3_64bits(model.data(), model.size_bytes());
}

void Trainer::save(store::Step steps) {
  process_.saving = true;
  const CheckpointResult result = agreement_.agree_on_checkpoint(
      steps, [&] { return rounds_->round_complete_before_read(steps); },
      [&] { rounds_->before_model_read(steps); }, [&](store::Step made) { return write(made); });
  if (result.rejoin) add_member(*result.rejoin, steps);
  process_.saving = false;
}

Trainer::CheckpointResult Trainer::write(store::Step steps) {
  const auto key = std::pair(steps, members_.epoch);
  simulation_.saved(index_, {steps, {}, members_.epoch}, model_hash());
  while (!process_.decided.contains(key)) Fibers::wait_for(&process_.decided_changed);
  const run::CheckpointDecided& decision = process_.decided.at(key);
  if (decision.dropped) return {!decision.again};
  if (!decision.arrives) return {};
  return {true, sync::Rejoin{*decision.next_epoch, *decision.arrives}};
}

void Trainer::add_member(const sync::Rejoin& rejoin, store::Step steps) {
  const int other = simulation_.index_of({process_.name.stage, rejoin.replica});
  for (const Wire::Use use : {Wire::Use::sync, Wire::Use::consensus}) {
    if (use == Wire::Use::consensus && !is_first()) continue;
    const auto [wire, side] = simulation_.newest_wire(use, index_, other);
    auto& links = use == Wire::Use::sync ? process_.to_replicas : process_.consensus;
    links[rejoin.replica]->replace(wire, side);
    if (process_.tracker->contains(rejoin.replica)) continue;
    links[rejoin.replica]->abort({net::LinkError::Kind::aborted, "the replica has left again"});
  }
  members_ = process_.tracker->wait_for(rejoin.epoch);
  if (sync::rejoin_sender(members_, rejoin) == process_.name.replica) send_state(rejoin.replica);
  rounds_->rejoin(members_, steps);
}

void Trainer::send_state(std::uint32_t replica) {
  try {
    for (const std::string& slot : sent_slots(rounds_->method())) {
      const auto bytes = std::as_const(slots_).bytes(slot, {0, layout_.size()});
      process_.to_replicas[replica]->send({bytes.begin(), bytes.end()});
    }
  } catch (const net::LinkError& error) {
    process_.tracker->report_lost(replica, error.what());
  }
}

void Trainer::receive_state(const sync::Rejoin& rejoin) {
  const std::uint32_t sender = sync::rejoin_sender(members_, rejoin);
  for (const std::string& slot : sent_slots(*method_)) {
    std::optional<net::Frame> frame;
    while (!frame) {
      frame = process_.to_replicas[sender]->receive_until(std::chrono::steady_clock::now() +
                                                          std::chrono::hours(1));
      if (frame || process_.tracker->contains(sender)) continue;
      throw std::runtime_error(kSenderLost);
    }
    std::ranges::copy(*frame, slots_.bytes(slot, {0, layout_.size()}).begin());
  }
  // Its own weights are lost with it: it continues from the agreed model.
  if (method_->traits.model_slot != sync::kWeights) {
    slots_.load(method_->traits.model_slot, {0, layout_.size()}, weights_);
  }
}

stages::StepReport Trainer::report(const stages::Phase& phase) {
  stages::StepReport all;
  all.step = phase.step;
  if (below_) all = stages::read_report(below_->receive());
  return all;
}

stages::StepDecision Trainer::exchange(const stages::StepReport& all) {
  stages::StepDecision decision;
  if (above_) {
    above_->send(stages::to_frame(all));
    decision = stages::read_decision(above_->receive());
  } else {
    decision = decide(all);
  }
  if (below_) below_->send(stages::to_frame(decision));
  return decision;
}

stages::StepDecision Trainer::decide(const stages::StepReport& all) {
  if (consensus_->epoch() < members_.epoch) consensus_->rejoin(members_);
  const stages::StepConsensus::Result result = consensus_->run_round({all, false, 0});
  stages::StepDecision decision;
  decision.step = all.step;
  decision.epoch = result.epoch;
  decision.retry = !result.complete;
  return decision;
}

void Trainer::regroup(std::uint32_t epoch, bool complete) {
  members_ = process_.tracker->wait_for(epoch);
  if (case_.mistake == Mistake::undo_passed_round) complete = false;
  if (case_.mistake == Mistake::keep_round) complete = true;
  rounds_->regroup(members_, complete);
}

}  // namespace strait::interleavings
