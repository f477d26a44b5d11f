#include "schedules/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <stdexcept>

#include "schedules/pipeline_shape.h"

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

void check_costs(std::size_t stages, std::span<const ChunkCost> costs,
                 std::span<const LinkCost> links) {
  if (stages == 0 || costs.empty() || costs.size() % stages != 0 ||
      links.size() != costs.size() - 1) {
    refuse_to_simulate(std::to_string(stages) + " lists, " + std::to_string(costs.size()) +
                       " stage costs and " + std::to_string(links.size()) +
                       " links; expected one cost for every chunk of a list, as many in each, and "
                       "one link fewer");
  }
  const auto at = [stages](std::size_t position) {
    const std::string stage = " stage " + std::to_string(position % stages);
    return position < stages ? stage : stage + " chunk " + std::to_string(position / stages);
  };
  for (std::size_t p = 0; p < costs.size(); ++p) {
    const std::string where = " of" + at(p);
    check_number(costs[p].forward_seconds, "forward time" + where);
    check_number(costs[p].backward_seconds, "backward time" + where);
    check_number(costs[p].weight_gradient_seconds, "weight gradient time" + where);
    check_number(costs[p].update_seconds, "update time" + where);
    check_number(costs[p].bytes_in_flight, "memory in flight" + where);
    check_number(costs[p].weight_gradient_bytes, "memory for weight gradients" + where);
    if (costs[p].weight_gradient_seconds > costs[p].backward_seconds) {
      refuse_to_simulate("weight gradient time" + where + " is " +
                         std::to_string(costs[p].weight_gradient_seconds) +
                         ", more than that of the whole backward, " +
                         std::to_string(costs[p].backward_seconds));
    }
  }
  for (std::size_t p = 0; p < links.size(); ++p) {
    const std::string where = " of the link after" + at(p);
    check_number(links[p].forward_bytes, "forward bytes" + where);
    check_number(links[p].backward_bytes, "backward bytes" + where);
    check_number(links[p].latency_seconds, "latency" + where);
    for (const double rate :
         {links[p].forward_bytes_per_second, links[p].backward_bytes_per_second,
          links[p].forward_uplink_bytes_per_second, links[p].backward_uplink_bytes_per_second})
      if (!(rate > 0)) refuse_to_simulate("bandwidth" + where + " is not above 0");
  }
}

// The end times of one micro-batch's actions in one chunk. NaN: not ended yet.
struct Passage {
  std::array<double, 3> done{kNever, kNever, kNever};  // by Work
  std::array<bool, 3> listed{};
  double activation_arrived = kNever;
  double gradient_arrived = kNever;

  double& done_at(Work work) { return done.at(static_cast<std::size_t>(work)); }
  bool& is_listed(Work work) { return listed.at(static_cast<std::size_t>(work)); }
  bool is_split() { return is_listed(Work::weight_gradient); }
};

struct StagePlay {
  std::size_t next = 0;  // position in the list
  double free_at = 0;
  double line_free_at = 0;  // the line on which it sends
  int in_flight = 0;
};

struct ChunkPlay {
  int held = 0;                   // forwards whose backward is to come
  int queued = 0;                 // split backwards whose weight gradient is to come
  std::vector<Passage> passages;  // by micro-batch
};

class Player {
 public:
  Player(std::span<const ActionList> lists, std::span<const ChunkCost> costs,
         std::span<const LinkCost> links)
      : lists_(lists),
        costs_(costs),
        links_(links),
        stages_(lists.size()),
        chunks_(costs.size()),
        path_free_at_(lists.size() * lists.size()) {
    read_lists();
    forecast_.stages.resize(lists.size());
  }

  Forecast play() {
    // Each stage runs as far as it can; then the stages that it sends to are examined again. Every
    // message has one sender, and each stage works in list order, so the times do not depend on the
    // order in which stages are examined.
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
  double send(std::size_t from, std::size_t to, MicroBatch micro_batch, double made);
  void finish();
  std::optional<double> ready_at(std::size_t position, const Action& action);
  std::string why_blocked(std::size_t s, const Action& action);

  std::size_t position(std::size_t s, const Action& action) const {
    return static_cast<std::size_t>(position_of(StageIndex{static_cast<std::int32_t>(s)},
                                                action.chunk, static_cast<int>(lists_.size())));
  }
  Passage& passage(std::size_t position, MicroBatch micro_batch) {
    return chunks_[position].passages[static_cast<std::size_t>(number(micro_batch))];
  }

  std::span<const ActionList> lists_;
  std::span<const ChunkCost> costs_;  // by chunk position
  std::span<const LinkCost> links_;
  std::vector<StagePlay> stages_;
  std::vector<ChunkPlay> chunks_;     // by chunk position
  std::vector<double> path_free_at_;  // by the stage that sends, then by the one that receives
  std::deque<std::size_t> awake_;
  Forecast forecast_;
};

void Player::read_lists() {
  int micro_batches = 0;
  std::size_t actions = 0;
  const auto chunks = static_cast<int>(costs_.size() / lists_.size());
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    for (const Action& action : lists_[s]) {
      const int c = number(action.chunk);
      const int m = number(action.micro_batch);
      if (c < 0 || c >= chunks || m < 0 || m >= kMostMicroBatches) {
        refuse_to_simulate("stage " + std::to_string(s) + " lists " + describe(action) +
                           "; expected chunk 0" +
                           (chunks == 1 ? "" : " to " + std::to_string(chunks - 1)) +
                           " and a micro-batch from 0 to " + std::to_string(kMostMicroBatches - 1));
      }
      micro_batches = std::max(micro_batches, m + 1);
    }
    actions += lists_[s].size();
  }
  for (ChunkPlay& chunk : chunks_) chunk.passages.resize(static_cast<std::size_t>(micro_batches));
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    for (const Action& action : lists_[s]) {
      bool& listed = passage(position(s, action), action.micro_batch).is_listed(action.work);
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
    const std::optional<double> ready = ready_at(position(s, action), action);
    // Whoever makes what it waits for puts this stage into awake_ again.
    if (!ready) return;
    do_action(s, action, *ready);
    ++stage.next;
  }
}

std::optional<double> Player::ready_at(std::size_t position, const Action& action) {
  Passage& here = passage(position, action.micro_batch);
  double ready = 0;
  switch (action.work) {
    case Work::forward:
      if (position > 0) ready = here.activation_arrived;
      break;
    case Work::backward:
      ready = here.done_at(Work::forward);
      if (ever(ready) && position + 1 < costs_.size()) ready = here.gradient_arrived;
      break;
    case Work::weight_gradient:
      ready = here.done_at(Work::backward);
      break;
  }
  return ever(ready) ? std::optional<double>(ready) : std::nullopt;
}

double seconds_of(const ChunkCost& cost, Work work, bool split) {
  if (work == Work::forward) return cost.forward_seconds;
  if (work == Work::weight_gradient) return cost.weight_gradient_seconds;
  return cost.backward_seconds - (split ? cost.weight_gradient_seconds : 0);
}

void Player::do_action(std::size_t s, const Action& action, double ready) {
  StagePlay& stage = stages_[s];
  const std::size_t p = position(s, action);
  const double start = std::max(stage.free_at, ready);
  Passage& here = passage(p, action.micro_batch);
  const double end = start + seconds_of(costs_[p], action.work, here.is_split());
  stage.free_at = end;
  forecast_.stages[s].busy_seconds += end - start;
  forecast_.spans.push_back({StageIndex{static_cast<std::int32_t>(s)}, action, start, end});
  here.done_at(action.work) = end;
  hold(s, action, here);
  const MicroBatch m = action.micro_batch;
  if (action.work == Work::forward && p + 1 < costs_.size()) {
    passage(p + 1, m).activation_arrived = send(p, p + 1, m, end);
  }
  if (action.work == Work::backward && p > 0) {
    passage(p - 1, m).gradient_arrived = send(p, p - 1, m, end);
  }
}

void Player::hold(std::size_t s, const Action& action, Passage& here) {
  StagePlay& stage = stages_[s];
  ChunkPlay& chunk = chunks_[position(s, action)];
  const bool only_forward = !here.is_listed(Work::backward);
  switch (action.work) {
    case Work::forward:
      ++chunk.held;
      ++stage.in_flight;
      break;
    case Work::backward:
      --chunk.held;
      if (here.is_split()) ++chunk.queued;
      break;
    case Work::weight_gradient:
      --chunk.queued;
      break;
  }
  double bytes = 0;
  for (std::size_t p = s; p < chunks_.size(); p += lists_.size()) {
    bytes += chunks_[p].held * costs_[p].bytes_in_flight;
    bytes += chunks_[p].queued * costs_[p].weight_gradient_bytes;
  }
  StageForecast& forecast = forecast_.stages[s];
  forecast.peak_in_flight = std::max(forecast.peak_in_flight, stage.in_flight);
  forecast.peak_bytes = std::max(forecast.peak_bytes, bytes);
  const Work last = here.is_split() ? Work::weight_gradient : Work::backward;
  if (action.work == last || only_forward) --stage.in_flight;
  if (only_forward) --chunk.held;
}

// Sends from a chunk position to an adjacent one. Returns the time of arrival.
double Player::send(std::size_t from, std::size_t to, MicroBatch micro_batch, double made) {
  const bool down = from < to;
  const LinkCost& link = links_[std::min(from, to)];
  const auto stages = static_cast<int>(lists_.size());
  const StageIndex sender = stage_at(static_cast<int>(from), stages);
  const StageIndex receiver = stage_at(static_cast<int>(to), stages);
  double& free_at = path_free_at_[static_cast<std::size_t>(number(sender)) * lists_.size() +
                                  static_cast<std::size_t>(number(receiver))];
  double& line_free_at = stages_[static_cast<std::size_t>(number(sender))].line_free_at;
  line_free_at = std::max(line_free_at, made);
  const double start = std::max(free_at, line_free_at);
  const double bytes = down ? link.forward_bytes : link.backward_bytes;
  free_at = start + bytes / (down ? link.forward_bytes_per_second : link.backward_bytes_per_second);
  line_free_at +=
      bytes / (down ? link.forward_uplink_bytes_per_second : link.backward_uplink_bytes_per_second);
  forecast_.transfers.push_back(
      {sender, receiver, chunk_at(static_cast<int>(from), stages), micro_batch, start, free_at});
  awake_.push_back(static_cast<std::size_t>(number(receiver)));
  // Latency delays a message but does not occupy the path.
  return free_at + link.latency_seconds;
}

void Player::finish() {
  // Updates begin together: the gradient norm is that of all stages.
  double last = 0;
  std::vector<double> updates(lists_.size());
  for (std::size_t p = 0; p < costs_.size(); ++p)
    updates[p % lists_.size()] += costs_[p].update_seconds;
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    last = std::max(last, stages_[s].free_at);
    if (stages_[s].next == lists_[s].size()) continue;
    const Action& action = lists_[s][stages_[s].next];
    forecast_.blocked.push_back(
        {StageIndex{static_cast<std::int32_t>(s)}, action, why_blocked(s, action)});
  }
  forecast_.seconds = last + *std::ranges::max_element(updates);
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    StageForecast& stage = forecast_.stages[s];
    stage.busy_seconds += updates[s];
    stage.idle_seconds = std::max(0.0, forecast_.seconds - stage.busy_seconds);
  }
}

std::string Player::why_blocked(std::size_t s, const Action& action) {
  const std::size_t here = position(s, action);
  Action needed = action;
  std::size_t maker = here;
  if (action.work == Work::weight_gradient) {
    needed.work = Work::backward;
  } else if (action.work == Work::forward) {
    maker = here - 1;
  } else if (!ever(passage(here, action.micro_batch).done_at(Work::forward))) {
    needed.work = Work::forward;
  } else {
    maker = here + 1;
  }
  const std::size_t stage = maker % lists_.size();
  needed.chunk = chunk_at(static_cast<int>(maker), static_cast<int>(lists_.size()));
  std::string reason = "needs " + describe(needed) + " of stage " + std::to_string(stage);
  if (!passage(maker, needed.micro_batch).is_listed(needed.work)) {
    return reason + ", which never does it";
  }
  if (stage == s) return reason + ", which stands later in the same list";
  return reason + ", which stops before " + describe(lists_[stage][stages_[stage].next]);
}

}  // namespace

Forecast simulate(std::span<const ActionList> lists, std::span<const ChunkCost> costs,
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
