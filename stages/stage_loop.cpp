#include "stages/stage_loop.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <iterator>
#include <numeric>

#include "kernels/squared_norm.h"
#include "stages/step_decision.h"

namespace strait::stages {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<BoundaryTraffic> sent_over(const std::vector<Boundary*>& boundaries) {
  std::vector<BoundaryTraffic> sent;
  sent.reserve(boundaries.size());
  for (const Boundary* boundary : boundaries) sent.push_back(boundary->sent());
  return sent;
}

int micro_batches_of(const schedules::ActionList& actions) {
  int count = 0;
  for (const schedules::Action& action : actions) {
    count = std::max(count, number(action.micro_batch) + 1);
  }
  return count;
}

// One copy: each copy would wait for all queued work of the device.
std::vector<double> read_together(const at::Tensor& first, const at::Tensor& last) {
  const at::Tensor all =
      last.defined() ? at::cat({first.to(last.device()), last.reshape({-1})}) : first;
  const at::Tensor read = all.cpu();
  const auto* values = read.const_data_ptr<double>();
  return {values, values + read.numel()};
}

}  // namespace

StageLoop::StageLoop(StageParts parts, schedules::ActionList training,
                     schedules::ActionList evaluation, LoopOptions options, StageObserver& observer,
                     CheckpointTargets targets)
    : parts_(std::move(parts)),
      training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      options_(std::move(options)),
      observer_(observer),
      targets_(std::move(targets)),
      agreement_({[this](const Phase& phase) { return report(phase); },
                  [this](const StepReport& all) { return exchange(all); },
                  [this] { return parts_.sync.members().epoch; },
                  [this](std::uint32_t epoch, bool complete) {
                    parts_.sync.regroup(epoch, complete);
                    shard_evaluation();
                  }}),
      sent_(sent_over(parts_.boundaries)) {
  shard_evaluation();
  // In every chunk the gradients of the same one are the last.
  for (const schedules::Action& action : training_) {
    if (action.work != schedules::Work::forward) last_micro_batch_ = action.micro_batch;
  }
}

store::Step StageLoop::run() {
  store::Step done = options_.first;
  bool stop = options_.early_stop.is_due();
  while (done < options_.last && !stop) {
    const StepDecision decision = train(done);
    stop = decision.stop;
    done = static_cast<store::Step>(number(done) + 1);
    const bool last = done == options_.last;
    if (options_.evaluate && (last || is_due(done, options_.evaluate_every))) {
      stop = evaluate(done).stop || stop;
    }
    save_requested_ = save_requested_ || is_due(done, options_.checkpoint_every);
    // A skipped step had a loss or gradient that was not finite; its weights are not saved.
    if (last || stop || (save_requested_ && !decision.hold)) {
      save(done, targets_.disk);
    } else if (!decision.hold && is_due(done, options_.memory_every)) {
      save(done, targets_.memory);
    }
  }
  return done;
}

StepDecision StageLoop::train(store::Step step) {
  const auto started = std::chrono::steady_clock::now();
  const double waited = parts_.waits.read().total;
  const double waited_for_tie = parts_.tie == nullptr ? 0 : parts_.tie->waited_seconds();
  const Phase phase{step, true};
  play_reference(step, Phase::Reference::training);
  parts_.gradients.clear();
  parts_.sync.gradient_begins(step);
  play(phase, training_);
  if (parts_.tie != nullptr) {
    const at::NoGradGuard no_grad;
    parts_.tie->combine(parts_.gradients);
  }
  const auto gradient_whole = std::chrono::steady_clock::now();
  const double waited_for_gradient = parts_.waits.read().total;
  // Before the sync, whose methods may change moments and slots.
  preserve_snapshot();
  StepSummary summary;
  summary.decision =
      agreement_.agree_on_step(phase, [&] { return parts_.sync.gradient_whole(step); });
  const double rate = learning_rate(options_.learning_rate, number(step));
  update(step, summary.decision, rate);
  summary.metrics = metrics_of(summary.decision, rate, parts_.source.preferences());
  const double seconds = seconds_since(started);
  summary.metrics.seconds = seconds;
  summary.metrics.update_seconds =
      seconds_since(gradient_whole) - (parts_.waits.read().total - waited_for_gradient);
  summary.metrics.busy_seconds = seconds - (parts_.waits.read().total - waited);
  parts_.waits.step_ended(summary.metrics.busy_seconds);
  summary.metrics.checkpoint_seconds = take_checkpoint_seconds();
  if (parts_.tie != nullptr) {
    summary.metrics.tied_wait_seconds = parts_.tie->waited_seconds() - waited_for_tie;
  }
  summarize_experts(summary.metrics);
  summarize_boundaries(summary);
  summary.sync = parts_.sync.traffic();
  summary.sync_waited_seconds = parts_.sync.waited_seconds();
  observer_.trained(summary);
  return summary.decision;
}

double StageLoop::take_checkpoint_seconds() {
  // The threads of boundaries also wait for the writer before they change a cache.
  const double waited = parts_.snapshot_memory.waited_seconds();
  const double by_boundaries = waited - std::exchange(snapshot_waited_, waited);
  return std::exchange(checkpoint_seconds_, 0.0) + by_boundaries;
}

StepDecision StageLoop::evaluate(store::Step steps) {
  const Phase phase{steps, false};
  StepDecision decision;
  if (parts_.sync.membership_changes()) {
    agreement_.agree_between_steps(steps,
                                   [&] { return parts_.sync.round_complete_before_read(steps); });
  }
  // Repeated after an eviction, because the shards of the evaluation change.
  do {
    play_reference(steps, Phase::Reference::evaluation);
    parts_.sync.show_model(steps);
    play(phase, evaluation_);
    parts_.sync.hide_model();
    decision = exchange(report(phase));
    agreement_.regroup(decision);
  } while (decision.retry);
  observer_.evaluated(decision, parts_.source.preferences());
  options_.early_stop.evaluated(decision.loss);
  decision.stop = decision.stop || options_.early_stop.is_due();
  return decision;
}

void StageLoop::save(store::Step steps, const SaveCheckpoint& target) {
  const auto started = std::chrono::steady_clock::now();
  const auto round_complete = [&] { return parts_.sync.round_complete_before_read(steps); };
  const auto apply = [&] { parts_.sync.before_checkpoint(steps); };
  CheckpointResult result;
  if (parts_.sync.membership_changes()) {
    result = agreement_.agree_on_checkpoint(steps, round_complete, apply, target);
  } else {
    apply();
    result = target(steps);
  }
  save_requested_ = false;
  snapshot_ = std::move(result.snapshot);
  checkpoint_seconds_ += seconds_since(started);
  if (!result.rejoin) return;
  parts_.sync.add_member(*result.rejoin, steps);
  shard_evaluation();
}

void StageLoop::preserve_snapshot() {
  if (snapshot_ == nullptr) return;
  const auto started = std::chrono::steady_clock::now();
  const double waited = parts_.snapshot_memory.waited_seconds();
  {
    const WaitClock::Wait waiting(parts_.waits,
                                  "its last checkpoint to be written to disk, which is slower than "
                                  "a step; checkpoint.memory is used up",
                                  [] { return nullptr; });
    snapshot_->preserve_all();
  }
  snapshot_.reset();
  // Counted once: the snapshot memory counts this wait too.
  snapshot_waited_ += parts_.snapshot_memory.waited_seconds() - waited;
  checkpoint_seconds_ += seconds_since(started);
}

void StageLoop::play(const Phase& phase, const schedules::ActionList& actions) {
  if (parts_.tie != nullptr) parts_.tie->begin(phase, micro_batches_of(actions));
  for (const schedules::Action& action : actions) {
    observer_.before(phase, action);
    act(phase, action);
    observer_.after(phase, action);
  }
}

void StageLoop::play_reference(store::Step step, Phase::Reference samples) {
  if (!options_.reference) return;
  ReferenceValues& references = *parts_.references;
  const Phase phase{step, false, samples};
  if (phase.reads_training() ? references.has(step) : references.has_evaluation()) return;
  if (phase.reads_training()) {
    schedules::ActionList forwards;
    std::ranges::copy_if(
        training_, std::back_inserter(forwards),
        [](const schedules::Action& action) { return action.work == schedules::Work::forward; });
    play(phase, forwards);
  } else {
    play(phase, evaluation_);
  }
  references.played(phase);
}

void StageLoop::play_references() {
  for (std::int64_t step = 0; step < parts_.references->epoch_steps(); ++step) {
    play_reference(store::Step{step}, Phase::Reference::training);
  }
  if (options_.evaluate) play_reference(options_.first, Phase::Reference::evaluation);
}

void StageLoop::act(const Phase& phase, const schedules::Action& action) {
  const ChunkSlot& slot = parts_.slots.at(static_cast<std::size_t>(number(action.chunk)));
  const MicroBatch micro_batch = action.micro_batch;
  switch (action.work) {
    case schedules::Work::forward: {
      const FrozenRows* held = slot.chunk->rows_that_hold(phase, micro_batch);
      if (held != nullptr && !slot.chunk->has_backward()) break;  // a chunk above has the result
      const Flow input =
          held != nullptr ? held->flow(micro_batch) : slot.upstream->take(phase, micro_batch);
      slot.downstream->give(phase, micro_batch, slot.chunk->forward(phase, micro_batch, input));
      break;
    }
    case schedules::Work::backward: {
      at::Tensor gradient = slot.downstream->take_gradient(phase, micro_batch);
      if (micro_batch == last_micro_batch_) parts_.sync.last_backward_begins();
      gradient = slot.chunk->backward(micro_batch, std::move(gradient));
      // Off again: the next backward may be of an earlier micro-batch in another chunk.
      parts_.gradients.announce(false);
      slot.upstream->give_gradient(phase, micro_batch, std::move(gradient));
      break;
    }
    case schedules::Work::weight_gradient:
      if (micro_batch == last_micro_batch_) parts_.sync.last_backward_begins();
      slot.chunk->weight_gradients(micro_batch);
      parts_.gradients.announce(false);
      break;
  }
}

StepReport StageLoop::report(const Phase& phase) {
  std::vector<SquaredNorm> norms;
  std::vector<at::Tensor> sums;
  // Only the owner of a tied weight counts it.
  if (phase.training) {
    for (std::size_t i = 0; i < parts_.parameters.size(); ++i) {
      if (!parts_.parameters[i].owned) continue;
      norms.push_back({parts_.parameter_indices[i], 0});
      sums.push_back(parts_.gradients[i]);
    }
  }
  const std::vector<double> values =
      read_together(kernels::squared_norms(sums), parts_.below.loss_sums(phase));
  if (phase.training) parts_.sync.check_sums();
  for (std::size_t i = 0; i < norms.size(); ++i) norms[i].value = values[i];
  // After the own norms, because the report of the stages below has arrived meanwhile.
  StepReport all = parts_.below.collect(phase, std::span(values).subspan(norms.size()));
  add_norms(all, norms);
  all.joint = !phase.training || ends_jointly(phase.step);
  return all;
}

// Whether more than the next step follows this one. All replicas must know by then whether any of
// them holds the checkpoint back.
bool StageLoop::ends_jointly(store::Step step) const {
  const auto done = static_cast<store::Step>(number(step) + 1);
  return save_requested_ || done == options_.last || is_due(done, options_.checkpoint_every) ||
         is_due(done, options_.memory_every) || is_due(done, options_.evaluate_every);
}

StepDecision StageLoop::exchange(const StepReport& report) {
  const StepDecision decision = parts_.slots.front().upstream->decide(report);
  save_requested_ = save_requested_ || decision.save;
  // Announced even with `retry`: every stage has to report again.
  parts_.below.announce(decision);
  return decision;
}

void StageLoop::shard_evaluation() {
  const sync::Membership& members = parts_.sync.members();
  parts_.source.shard_evaluation(members.count(), members.mine);
  if (options_.evaluation_shard) {
    evaluation_ = options_.evaluation_shard(members.count(), members.mine);
  }
  if (options_.reference && sharded_ && *sharded_ != members.members) {
    parts_.references->evaluation_changed();
  }
  sharded_ = members.members;
}

void StageLoop::update(store::Step step, const StepDecision& decision, double rate) {
  ReplicaSync& sync = parts_.sync;
  if (!decision.skip) {
    parts_.gradients.scale(decision.gradient_factor);
    sync.gradient_clipped(step);
  }
  // In a skipped step too: rounds of earlier steps become due in it.
  sync.before_update(step);
  if (!decision.skip) {
    parts_.optimizer.update(parts_.gradients, rate, sync.update_rule(step), sync.copies());
  }
  const bool last = number(step) + 1 == number(options_.last);
  if (sync.updated(step, decision.stop || last)) {
    // No process applies the round before all have its data. Otherwise an eviction could leave
    // replicas with different models.
    agreement_.agree_between_steps(step, [&] { return sync.round_complete_now(); });
    sync.apply_now();
  }
}

void StageLoop::summarize_experts(trace::StepMetrics& metrics) const {
  for (const ChunkSlot& slot : parts_.slots) {
    const models::ExpertLoad load = slot.chunk->take_load();
    if (load.balance.defined()) metrics.router_loss += load.balance.item<double>();
    for (const auto& [layer, tokens] : load.tokens) {
      const auto all = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
      if (all == 0) continue;
      const double mean = static_cast<double>(all) / static_cast<double>(tokens.size());
      const auto most = static_cast<double>(std::ranges::max(tokens));
      metrics.expert_load = std::max(metrics.expert_load, most / mean);
      metrics.idle_experts += std::ranges::count(tokens, 0);
    }
  }
}

void StageLoop::summarize_boundaries(StepSummary& summary) {
  const auto before = std::exchange(sent_, sent_over(parts_.boundaries));
  summary.sent = difference(sent_, before);
  for (Boundary* boundary : parts_.boundaries) {
    std::ranges::move(boundary->take_decisions(), std::back_inserter(summary.codecs));
    const CodingSeconds coding = boundary->take_coding();
    summary.metrics.encode_seconds += coding.encode;
    summary.metrics.decode_seconds += coding.decode;
  }
}

}  // namespace strait::stages
