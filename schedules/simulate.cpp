#include "schedules/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <stdexcept>

namespace strait::schedules {
namespace {

constexpr int kMostMicroBatches = 1 << 20;
constexpr double kNever = std::numeric_limits<double>::quiet_NaN();

bool ever(double time) { return !std::isnan(time); }

[[noreturn]] void refuse_to_simulate(const std::string& fact) {
  throw std::invalid_argument("cannot simulate: " + fact);
}

void check_number(double value, const std::string& what) {
  if (std::isfinite(value) && value >= 0) return;
  refuse_to_simulate(what + " is " + std::to_string(value) + ", expected a number of 0 or more");
}

void check_costs(std::size_t stages, std::span<const StageCost> costs,
                 std::span<const LinkCost> links) {
  if (stages == 0 || costs.size() != stages || links.size() != stages - 1) {
    refuse_to_simulate(std::to_string(stages) + " lists, " + std::to_string(costs.size()) +
                       " stage costs and " + std::to_string(links.size()) +
                       " links; expected one cost per list and one link fewer");
  }
  for (std::size_t s = 0; s < stages; ++s) {
    const std::string where = " of stage " + std::to_string(s);
    check_number(costs[s].forward_seconds, "forward time" + where);
    check_number(costs[s].backward_seconds, "backward time" + where);
    check_number(costs[s].weight_gradient_seconds, "weight gradient time" + where);
    check_number(costs[s].update_seconds, "update time" + where);
    check_number(costs[s].bytes_in_flight, "memory in flight" + where);
  }
  for (std::size_t s = 0; s < links.size(); ++s) {
    const std::string where = " of the link behind stage " + std::to_string(s);
    check_number(links[s].forward_bytes, "forward bytes" + where);
    check_number(links[s].backward_bytes, "backward bytes" + where);
    check_number(links[s].latency_seconds, "latency" + where);
    if (!(links[s].forward_bytes_per_second > 0) || !(links[s].backward_bytes_per_second > 0)) {
      refuse_to_simulate("bandwidth" + where + " is not above 0");
    }
  }
}

// What is known of one micro-batch at one stage: NaN until it has happened.
struct Passage {
  std::array<double, 3> done{kNever, kNever, kNever};  // by Work
  std::array<bool, 3> listed{};
  double activation_arrived = kNever;
  double gradient_arrived = kNever;

  double& done_at(Work work) { return done.at(static_cast<std::size_t>(work)); }
  bool& is_listed(Work work) { return listed.at(static_cast<std::size_t>(work)); }
};

struct StagePlay {
  std::size_t next = 0;  // position in the list
  double free_at = 0;
  int in_flight = 0;
  double downstream_free_at = 0;  // the directions of the links that this stage feeds
  double upstream_free_at = 0;
  std::vector<Passage> passages;  // by micro-batch
};

class Player {
 public:
  Player(std::span<const ActionList> lists, std::span<const StageCost> costs,
         std::span<const LinkCost> links)
      : lists_(lists), costs_(costs), links_(links), stages_(lists.size()) {
    read_lists();
    forecast_.stages.resize(lists.size());
  }

  Forecast play() {
    // A stage runs as far as it can; whoever it sends to is looked at again. Since every message
    // has one maker and the makers work in list order, times come out right in any order of looks.
    for (std::size_t s = 0; s < lists_.size(); ++s) awake_.push_back(s);
    while (!awake_.empty()) {
      const std::size_t s = awake_.front();
      awake_.pop_front();
      run_stage(s);
    }
    finish();
    return std::move(forecast_);
  }

 private:
  void read_lists();
  void run_stage(std::size_t s);
  void do_action(std::size_t s, const Action& action, double ready);
  void hold(std::size_t s, const Action& action, Passage& passage);
  void send_downstream(std::size_t s, MicroBatch micro_batch, double made);
  void send_upstream(std::size_t s, MicroBatch micro_batch, double made);
  void finish();
  std::optional<double> ready_at(std::size_t s, const Action& action);
  double seconds_of(std::size_t s, Work work) const;
  std::string why_blocked(std::size_t s, const Action& action);

  Passage& passage(std::size_t s, MicroBatch micro_batch) {
    return stages_[s].passages[static_cast<std::size_t>(number(micro_batch))];
  }

  std::span<const ActionList> lists_;
  std::span<const StageCost> costs_;
  std::span<const LinkCost> links_;
  std::vector<StagePlay> stages_;
  std::deque<std::size_t> awake_;
  Forecast forecast_;
};

void Player::read_lists() {
  int micro_batches = 0;
  std::size_t actions = 0;
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    for (const Action& action : lists_[s]) {
      const int m = number(action.micro_batch);
      if (number(action.chunk) != 0 || m < 0 || m >= kMostMicroBatches) {
        refuse_to_simulate("stage " + std::to_string(s) + " lists " + describe(action) +
                           "; expected chunk 0 and a micro-batch from 0 to " +
                           std::to_string(kMostMicroBatches - 1));
      }
      micro_batches = std::max(micro_batches, m + 1);
    }
    actions += lists_[s].size();
  }
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    stages_[s].passages.resize(static_cast<std::size_t>(micro_batches));
    for (const Action& action : lists_[s]) {
      bool& listed = passage(s, action.micro_batch).is_listed(action.work);
      if (listed) {
        refuse_to_simulate("stage " + std::to_string(s) + " lists " + describe(action) + " twice");
      }
      listed = true;
    }
  }
  forecast_.spans.reserve(actions);
  forecast_.transfers.reserve(actions);
}

void Player::run_stage(std::size_t s) {
  StagePlay& stage = stages_[s];
  while (stage.next < lists_[s].size()) {
    const Action& action = lists_[s][stage.next];
    const std::optional<double> ready = ready_at(s, action);
    if (!ready) return;
    do_action(s, action, *ready);
    ++stage.next;
  }
}

std::optional<double> Player::ready_at(std::size_t s, const Action& action) {
  Passage& here = passage(s, action.micro_batch);
  double ready = 0;
  switch (action.work) {
    case Work::forward:
      if (s > 0) ready = here.activation_arrived;
      break;
    case Work::backward:
      ready = here.done_at(Work::forward);
      if (ever(ready) && s + 1 < lists_.size()) ready = here.gradient_arrived;
      break;
    case Work::weight_gradient:
      ready = here.done_at(Work::backward);
      break;
  }
  return ever(ready) ? std::optional<double>(ready) : std::nullopt;
}

double Player::seconds_of(std::size_t s, Work work) const {
  if (work == Work::forward) return costs_[s].forward_seconds;
  return work == Work::backward ? costs_[s].backward_seconds : costs_[s].weight_gradient_seconds;
}

void Player::do_action(std::size_t s, const Action& action, double ready) {
  StagePlay& stage = stages_[s];
  const double start = std::max(stage.free_at, ready);
  const double end = start + seconds_of(s, action.work);
  stage.free_at = end;
  forecast_.stages[s].busy_seconds += end - start;
  forecast_.spans.push_back({StageIndex{static_cast<std::int32_t>(s)}, action, start, end});
  Passage& here = passage(s, action.micro_batch);
  here.done_at(action.work) = end;
  hold(s, action, here);
  if (action.work == Work::forward) send_downstream(s, action.micro_batch, end);
  if (action.work == Work::backward) send_upstream(s, action.micro_batch, end);
}

void Player::hold(std::size_t s, const Action& action, Passage& here) {
  StagePlay& stage = stages_[s];
  const bool split = here.is_listed(Work::weight_gradient);
  const Work releases = split                            ? Work::weight_gradient
                        : here.is_listed(Work::backward) ? Work::backward
                                                         : Work::forward;
  if (action.work == Work::forward) {
    ++stage.in_flight;
    int& peak = forecast_.stages[s].peak_in_flight;
    peak = std::max(peak, stage.in_flight);
  }
  if (action.work == releases) --stage.in_flight;
}

void Player::send_downstream(std::size_t s, MicroBatch micro_batch, double made) {
  if (s + 1 == lists_.size()) return;
  const LinkCost& link = links_[s];
  const double start = std::max(stages_[s].downstream_free_at, made);
  const double end = start + link.forward_bytes / link.forward_bytes_per_second;
  stages_[s].downstream_free_at = end;
  const auto from = static_cast<std::int32_t>(s);
  forecast_.transfers.push_back({StageIndex{from}, StageIndex{from + 1}, micro_batch, start, end});
  passage(s + 1, micro_batch).activation_arrived = end + link.latency_seconds;
  awake_.push_back(s + 1);
}

void Player::send_upstream(std::size_t s, MicroBatch micro_batch, double made) {
  if (s == 0) return;
  const LinkCost& link = links_[s - 1];
  const double start = std::max(stages_[s].upstream_free_at, made);
  const double end = start + link.backward_bytes / link.backward_bytes_per_second;
  stages_[s].upstream_free_at = end;
  const auto from = static_cast<std::int32_t>(s);
  forecast_.transfers.push_back({StageIndex{from}, StageIndex{from - 1}, micro_batch, start, end});
  passage(s - 1, micro_batch).gradient_arrived = end + link.latency_seconds;
  awake_.push_back(s - 1);
}

void Player::finish() {
  double last = 0;
  double longest_update = 0;
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    last = std::max(last, stages_[s].free_at);
    longest_update = std::max(longest_update, costs_[s].update_seconds);
    if (stages_[s].next == lists_[s].size()) continue;
    const Action& action = lists_[s][stages_[s].next];
    forecast_.blocked.push_back(
        {StageIndex{static_cast<std::int32_t>(s)}, action, why_blocked(s, action)});
  }
  forecast_.seconds = last + longest_update;
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    StageForecast& stage = forecast_.stages[s];
    stage.busy_seconds += costs_[s].update_seconds;
    stage.idle_seconds = std::max(0.0, forecast_.seconds - stage.busy_seconds);
    stage.peak_bytes = stage.peak_in_flight * costs_[s].bytes_in_flight;
  }
}

std::string Player::why_blocked(std::size_t s, const Action& action) {
  Passage& here = passage(s, action.micro_batch);
  Action needed = action;
  std::size_t maker = s;
  if (action.work == Work::weight_gradient) {
    needed.work = Work::backward;
  } else if (action.work == Work::forward) {
    maker = s - 1;
  } else if (!ever(here.done_at(Work::forward))) {
    needed.work = Work::forward;
  } else {
    maker = s + 1;
  }
  std::string reason = "needs " + describe(needed) + " of stage " + std::to_string(maker);
  if (!passage(maker, needed.micro_batch).is_listed(needed.work)) {
    return reason + ", which never does it";
  }
  if (maker == s) return reason + ", which stands later in the same list";
  return reason + ", which stops before " + describe(lists_[maker][stages_[maker].next]);
}

}  // namespace

Forecast simulate(std::span<const ActionList> lists, std::span<const StageCost> costs,
                  std::span<const LinkCost> links) {
  check_costs(lists.size(), costs, links);
  return Player(lists, costs, links).play();
}

std::string describe(std::span<const BlockedStage> blocked) {
  std::string text;
  for (const BlockedStage& stage : blocked) {
    if (!text.empty()) text += "; ";
    text += "stage " + std::to_string(number(stage.stage)) + " stops before " +
            describe(stage.action) + ": it " + stage.reason;
  }
  return text;
}

}  // namespace strait::schedules
