#include "stages/stage_loop.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/squared_norm.h"

namespace strait::stages {

StageLoop::StageLoop(StageParts parts, schedules::ActionList training,
                     schedules::ActionList evaluation, LoopOptions options, StageObserver& observer)
    : parts_(std::move(parts)),
      training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      options_(std::move(options)),
      observer_(observer) {
  sent_since();
  deal();
  for (const schedules::Action& action : training_) {
    last_micro_batch_ = std::max(last_micro_batch_, action.micro_batch);
  }
}

store::Step StageLoop::run() {
  store::Step done = options_.first;
  bool stop = false;
  while (done < options_.last && !stop) {
    const StepVerdict verdict = train(done);
    done = static_cast<store::Step>(number(done) + 1);
    stop = verdict.stop;
    const bool over = done == options_.last;
    if (options_.evaluate && (over || due(done, options_.evaluate_every))) {
      stop = evaluate(done) || stop;
    }
    if (over || stop || save_wanted_ || due(done, options_.checkpoint_every)) save(done);
  }
  return done;
}

void StageLoop::save(store::Step steps) {
  const auto holds = [&] { return parts_.sync.round_complete_before_read(steps); };
  Saved saved;
  do {
    // Whoever had gathered before a replica left will find that the checkpoint is to be made again,
    // and gathers again: so does who hears of that later. What they held has landed at the former,
    // so it lands at the latter too, before anybody votes again.
    bool gathered = false;
    do {
      gathered = gather(steps, holds);
      parts_.sync.before_checkpoint(steps);
    } while (!gathered);
    saved = observer_.checkpoint(steps);
  } while (!saved.made);
  save_wanted_ = false;
  if (!saved.arrival) return;
  parts_.sync.welcome(*saved.arrival, steps);
  deal();
}

std::vector<BoundaryTraffic> StageLoop::sent_since() {
  std::vector<BoundaryTraffic> now;
  for (const Boundary* boundary : parts_.boundaries) now.push_back(boundary->sent());
  if (sent_.empty()) sent_.resize(now.size());
  return difference(now, std::exchange(sent_, now));
}

bool StageLoop::due(store::Step steps, std::int64_t every) {
  return every > 0 && number(steps) % every == 0;
}

void StageLoop::play(const Phase& phase, const schedules::ActionList& actions) {
  for (const schedules::Action& action : actions) {
    observer_.before(phase, action);
    act(phase, action);
    observer_.after(phase, action);
  }
}

void StageLoop::act(const Phase& phase, const schedules::Action& action) {
  StageParts::Seat& seat = parts_.seats.at(static_cast<std::size_t>(number(action.chunk)));
  const MicroBatch micro_batch = action.micro_batch;
  switch (action.work) {
    case schedules::Work::forward: {
      const Flow input = seat.upstream.take(phase, micro_batch);
      seat.downstream.give(phase, micro_batch, seat.chunk.forward(phase, micro_batch, input));
      break;
    }
    case schedules::Work::backward: {
      at::Tensor gradient = seat.downstream.take_gradient(phase, micro_batch);
      if (micro_batch == last_micro_batch_) parts_.sync.last_backward_begins();
      gradient = seat.chunk.backward(micro_batch, std::move(gradient));
      // Other chunks may still have backwards of earlier micro-batches.
      parts_.gradients.announce(false);
      parts_.gradients.fold();
      seat.upstream.give_gradient(phase, micro_batch, std::move(gradient));
      break;
    }
    case schedules::Work::weight_gradient:
      TORCH_INTERNAL_ASSERT(false, "no schedule of this build splits the backward");
  }
}

StepReport StageLoop::report(const Phase& phase) {
  std::vector<SquaredNorm> norms;
  if (phase.training) {
    for (std::size_t i = 0; i < parts_.parameters.size(); ++i) {
      if (!parts_.parameters[i].owned) continue;
      norms.push_back({parts_.places[i], kernels::squared_norm(parts_.gradients[i])});
    }
  }
  StepReport all = parts_.below.collect(phase);
  add_norms(all, norms);
  return all;
}

StepVerdict StageLoop::settle(const StepReport& report) {
  const StepVerdict verdict = parts_.seats.front().upstream.settle(report);
  save_wanted_ = save_wanted_ || verdict.save;
  parts_.below.announce(verdict);
  return verdict;
}

void StageLoop::regroup(const StepVerdict& verdict) {
  if (verdict.epoch == parts_.sync.members().epoch) return;
  parts_.sync.regroup(verdict.epoch, !verdict.again);
  deal();
}

void StageLoop::deal() {
  const sync::Membership& members = parts_.sync.members();
  parts_.source.deal(members.count(), members.mine);
  if (options_.evaluation_among) {
    evaluation_ = options_.evaluation_among(members.count(), members.mine);
  }
}

StepVerdict StageLoop::agree_on_step(const Phase& phase) {
  while (true) {
    const bool whole = parts_.sync.gradient_whole(phase.step);
    StepReport all = report(phase);
    all.parted = all.parted || !whole;
    const StepVerdict verdict = settle(all);
    regroup(verdict);
    if (!verdict.again) return verdict;
  }
}

template <class Holds>
bool StageLoop::gather(store::Step steps, Holds holds) {
  if (!parts_.sync.may_part()) return true;
  while (true) {
    const bool whole = holds();
    StepReport all = report({steps, false});
    all.parted = all.parted || !whole;
    const std::uint32_t before = parts_.sync.members().epoch;
    const StepVerdict verdict = settle(all);
    regroup(verdict);
    if (!verdict.again) return verdict.epoch == before;
  }
}

StepVerdict StageLoop::train(store::Step step) {
  const auto started = std::chrono::steady_clock::now();
  const double waited = parts_.waits.read().total;
  const Phase phase{step, true};
  parts_.gradients.clear();
  parts_.sync.gradient_begins(step);
  play(phase, training_);
  {
    const at::NoGradGuard no_grad;
    for (const std::unique_ptr<WeightTie>& tie : parts_.ties) tie->combine(parts_.gradients);
  }
  const StepVerdict verdict = agree_on_step(phase);

  StepSummary summary;
  summary.verdict = verdict;
  summary.learning_rate = learning_rate(options_.learning_rate, number(step));
  if (!verdict.skip) {
    parts_.gradients.scale(verdict.gradient_factor);
    parts_.sync.gradient_clipped(step);
  }
  parts_.sync.before_update(step);
  if (!verdict.skip) {
    parts_.optimizer.update(parts_.gradients, summary.learning_rate, parts_.sync.update_rule(step),
                            parts_.sync.members().count());
  }
  const bool over = number(step) + 1 == number(options_.last);
  if (parts_.sync.updated(step, verdict.stop || over)) {
    gather(step, [&] { return parts_.sync.round_complete_now(); });
    parts_.sync.apply_now();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  summary.seconds = seconds.count();
  summary.busy_seconds = summary.seconds - (parts_.waits.read().total - waited);
  summary.sent = sent_since();
  summary.sync = parts_.sync.traffic();
  summary.sync_waited_seconds = parts_.sync.waited_seconds();
  for (Boundary* boundary : parts_.boundaries) {
    for (CodecSwitch& one : boundary->take_switches()) summary.switches.push_back(std::move(one));
  }
  observer_.trained(summary);
  return verdict;
}

bool StageLoop::evaluate(store::Step steps) {
  const Phase phase{steps, false};
  StepVerdict verdict;
  gather(steps, [&] { return parts_.sync.round_complete_before_read(steps); });
  do {
    parts_.sync.show_model(steps);
    play(phase, evaluation_);
    parts_.sync.hide_model();
    verdict = settle(report(phase));
    regroup(verdict);
  } while (verdict.again);
  observer_.evaluated(verdict);
  return verdict.stop;
}

}  // namespace strait::stages
