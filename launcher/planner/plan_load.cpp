#include "launcher/planner/plan_load.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/base/text.h"
#include "launcher/planner/host_lines.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {
namespace {

constexpr double kTwice = 2;
// A line is named if it is busy for this many times as long as the slowest link on it.
constexpr double kClearlyShared = 1.4;

double seconds_of(const StepCosts& costs, const plan::Plan& plan) {
  return step_seconds(costs, plan.depth);
}

// The blocks of a stage; layer 0 is the embedding, and the last one the head.
int blocks_of(const plan::Plan& plan, const plan::Plan::Process& process) {
  const int head = plan.processes.at(static_cast<std::size_t>(plan.recipe.pipeline.stages - 1))
                       .chunks.back()
                       .last;
  int blocks = 0;
  for (const models::LayerRange& layers : process.chunks) {
    blocks += std::min(layers.last, head - 1) - std::max(layers.first, 1) + 1;
  }
  return blocks;
}

// The load of one replica, and the seconds of its step if a part were twice as fast.
class ReplicaLoad {
 public:
  ReplicaLoad(const plan::Plan& plan, std::uint32_t replica, StepCosts costs)
      : plan_(plan), replica_(replica), costs_(std::move(costs)) {
    const schedules::Forecast forecast = simulated_step(costs_, plan.depth);
    for (const schedules::StageForecast& stage : forecast.stages) {
      busy_.push_back(stage.busy_seconds);
    }
    sent_.resize(2 * (busy_.size() - 1));
    for (const schedules::TransferSpan& span : forecast.transfers) {
      sent_.at(line_of(number(span.from), number(span.to))) += span.end - span.start;
    }
  }

  void write(PlanLoad& load) const {
    for (std::size_t stage = 0; stage < busy_.size(); ++stage) {
      const plan::Plan::Process& process = at(stage);
      load.stages.push_back(
          {process.host, base::counted(blocks_of(plan_, process), "block"), busy_[stage]});
    }
    for (std::size_t line = 0; line < sent_.size(); ++line) {
      const plan::Plan::Process& upper = at(line / 2);
      const plan::Plan::Process& lower = at(line / 2 + 1);
      const bool down = line % 2 == 0;
      const plan::Plan::Process& from = down ? upper : lower;
      const plan::Plan::Process& to = down ? lower : upper;
      const plan::PathSpeed speed = plan::path_speed(plan_, from.host_index, to.host_index);
      load.lines.push_back({from.host, to.host, down, speed.bytes_per_second, sent_[line]});
    }
    load.limit = limit(load);
  }

 private:
  static std::size_t number(StageIndex stage) { return static_cast<std::size_t>(stage); }
  // With several chunks the last stage sends to the first: no line of the drawing, so the first
  // one's.
  std::size_t line_of(std::size_t from, std::size_t to) const {
    const std::size_t upper = std::min({from, to, busy_.size() - 2});
    return 2 * upper + (from < to ? 0 : 1);
  }
  const plan::Plan::Process& at(std::size_t stage) const {
    return plan_.processes.at(replica_ * busy_.size() + stage);
  }

  PlanLoad::Limit limit(const PlanLoad& load) const {
    const double sync = sync_seconds(plan_);
    const auto stage = std::ranges::max_element(busy_) - busy_.begin();
    // Sums of equal messages differ by rounding.
    constexpr double kAsLong = 1 - 1e-9;
    const double longest = sent_.empty() ? 0 : kAsLong * std::ranges::max(sent_);
    const auto line =
        std::ranges::find_if(sent_, [longest](double one) { return one >= longest; }) -
        sent_.begin();
    const double computes = busy_[static_cast<std::size_t>(stage)];
    const double sends = sent_.empty() ? 0 : sent_[static_cast<std::size_t>(line)];
    StepCosts faster = costs_;
    const HostLines lines(plan_, plan::direct_speeds(plan_));
    if (lines.busiest_seconds() > std::max({computes, kClearlyShared * sends, sync})) {
      for (schedules::LinkCost& link : faster.links) {
        link.forward_uplink_bytes_per_second *= kTwice;
        link.backward_uplink_bytes_per_second *= kTwice;
        link.forward_bytes_per_second *= kTwice;
        link.backward_bytes_per_second *= kTwice;
      }
      const double twice = std::max(seconds_of(faster, plan_), lines.busiest_seconds() / kTwice);
      return {fmt::format("the line of {}", lines.busiest()), lines.busiest_seconds(),
              twice + sync};
    }
    if (sync > std::max(computes, sends)) {
      return {"sync of replicas", sync, load.step_seconds - sync / kTwice};
    }
    if (computes >= sends) {
      for (auto chunk = static_cast<std::size_t>(stage); chunk < faster.chunks.size();
           chunk += busy_.size()) {
        schedules::ChunkCost& cost = faster.chunks[chunk];
        cost.forward_seconds /= kTwice;
        cost.backward_seconds /= kTwice;
        cost.weight_gradient_seconds /= kTwice;
      }
      return {fmt::format("compute of {}", load.stages[static_cast<std::size_t>(stage)].host),
              computes, seconds_of(faster, plan_) + sync};
    }
    const PlanLoad::Line& slow = load.lines[static_cast<std::size_t>(line)];
    for (std::size_t link = static_cast<std::size_t>(line) / 2; link < faster.links.size();
         link += busy_.size()) {
      schedules::LinkCost& cost = faster.links[link];
      (slow.down ? cost.forward_bytes_per_second : cost.backward_bytes_per_second) *= kTwice;
      (slow.down ? cost.forward_uplink_bytes_per_second : cost.backward_uplink_bytes_per_second) *=
          kTwice;
    }
    return {fmt::format("the link from {} to {}", slow.from, slow.to), sends,
            seconds_of(faster, plan_) + sync};
  }

  const plan::Plan& plan_;
  std::size_t replica_;
  StepCosts costs_;
  std::vector<double> busy_;  // by stage
  std::vector<double> sent_;  // by line
};

// All rows of a step on the fastest host.
void compare_with_one_host(const plan::Plan& plan, PlanLoad& load) {
  const models::ModelDescription model = trained_model(plan);
  const models::LayerRange all{0, static_cast<int>(std::ssize(model.layers)) - 1};
  const std::int64_t tokens = plan.micro_batch_rows() * plan.recipe.data.row;
  const auto micro_batches = static_cast<double>(all_micro_batches(plan));
  std::size_t fastest = 0;
  load.alone_seconds = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const plan::ComputeSpeed speed = plan::compute_speed(plan, i, threads_of(plan.recipe, 1));
    const schedules::ChunkCost cost = chunk_cost(model, all, tokens, speed);
    const double seconds = (cost.forward_seconds + cost.backward_seconds) * micro_batches +
                           update_seconds(plan, i, model, all);
    if (seconds >= load.alone_seconds) continue;
    load.alone_seconds = seconds;
    fastest = i;
  }
  load.fastest = plan.hosts[fastest].name;
  std::int64_t needed = 0;
  for (const plan::Plan::Process& process : plan.processes) {
    if (process.name.replica == 0) needed += process.state_bytes;
  }
  std::int64_t known = plan::hosts_of(plan.recipe)[fastest].memory.value_or(0);
  const auto& gpus = plan.hosts[fastest].gpus;
  if (gpus && !gpus->empty()) known = std::ranges::max(*gpus);
  if (known > 0) load.fits_alone = needed <= known;
}

double without_network(const plan::Plan& plan) {
  return forecast_step(plan, [](const plan::Plan::Link& /*link*/, std::size_t, std::size_t) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    return plan::PathSpeed{
        .bytes_per_second = kInfinite, .uplink = kInfinite, .downlink = kInfinite};
  });
}

// What a process encodes and decodes in a step, if it has a boundary.
void add_coding_parts(const plan::Plan& plan, const plan::Plan::Process& process,
                      std::int64_t hidden, std::vector<plan::StepPart>& parts) {
  using Kind = plan::StepPart::Kind;
  const auto values = static_cast<double>(plan.micro_batches_of(process.name.replica) *
                                          plan.micro_batch_rows() * plan.recipe.data.row * hidden);
  std::optional<double> encodes;
  std::optional<double> decodes;
  for (const plan::Plan::Link& link : plan.links) {
    const bool upper = link.connects == process.name;
    if (link.use != plan::Plan::Use::boundary || (!upper && link.listens != process.name)) continue;
    const auto seconds = [&](codec::Direction direction) {
      const bool sends = direction == codec::Direction::forward || link.backward_bytes > 0;
      return sends ? coding_seconds(plan.recipe.codec, direction, values) : 0;
    };
    const double down = seconds(codec::Direction::forward);
    const double up = seconds(codec::Direction::backward);
    encodes = encodes.value_or(0) + (upper ? down : up);
    decodes = decodes.value_or(0) + (upper ? up : down);
  }
  if (!encodes) return;
  const std::string of = fmt::format("{} (host {})", process.name.describe(), process.host);
  parts.push_back({Kind::encode, process.name, "encode of " + of, {}, *encodes, *encodes});
  parts.push_back({Kind::decode, process.name, "decode of " + of, {}, *decodes, *decodes});
}

nlohmann::json stages_json(const PlanLoad& load) {
  nlohmann::json stages = nlohmann::json::array();
  for (const PlanLoad::Stage& one : load.stages) {
    stages.push_back({{"host", one.host},
                      {"busy_seconds", one.busy_seconds},
                      {"idle_seconds", load.step_seconds - one.busy_seconds}});
  }
  return stages;
}

}  // namespace

PlanLoad load_of(const plan::Plan& plan) {
  PlanLoad load;
  load.tokens = static_cast<double>(plan.recipe.train.batch * plan.recipe.data.row);
  std::vector<StepCosts> replicas = costs_of_replicas(plan, plan::direct_speeds(plan));
  const auto slowest = std::ranges::max_element(
      replicas, {}, [&](const StepCosts& costs) { return seconds_of(costs, plan); });
  load.replica = static_cast<std::uint32_t>(slowest - replicas.begin());
  load.step_seconds = std::max(seconds_of(*slowest, plan),
                               HostLines(plan, plan::direct_speeds(plan)).busiest_seconds()) +
                      sync_seconds(plan);
  ReplicaLoad(plan, load.replica, std::move(*slowest)).write(load);
  compare_with_one_host(plan, load);
  load.without_network_seconds = without_network(plan);
  return load;
}

std::vector<plan::StepPart> step_parts(const plan::Plan& plan) {
  using Kind = plan::StepPart::Kind;
  const double sync = sync_seconds(plan);
  const models::ModelDescription model = trained_model(plan);
  std::vector<plan::StepPart> parts{{Kind::step,
                                     {},
                                     "a step",
                                     {},
                                     plan.step_seconds + sync,
                                     plan.first_epoch_step_seconds + sync}};
  double works = 0;
  double first_works = 0;
  const std::map<net::ProcessName, double> at_first = compute_seconds(plan, true);
  for (const auto& [name, seconds] : compute_seconds(plan)) {
    const plan::Plan::Process& process = plan.process(name);
    const std::string of = fmt::format("{} (host {})", name.describe(), process.host);
    const plan::ComputeSpeed speed = plan::compute_speed(plan, process);
    double update = 0;
    for (const models::LayerRange& layers : process.chunks) {
      update += update_seconds(plan, process.host_index, model, layers, update_peers(plan, name));
    }
    parts.push_back({Kind::compute,
                     name,
                     "compute of " + of,
                     {},
                     seconds,
                     at_first.at(name),
                     !speed.measured && !speed.stated});
    parts.push_back({Kind::update, name, "update of " + of, {}, update, update, !speed.measured});
    works = std::max(works, seconds + update);
    first_works = std::max(first_works, at_first.at(name) + update);
  }
  for (const plan::Plan::Process& process : plan.processes) {
    add_coding_parts(plan, process, model.hidden, parts);
  }
  const auto add_link = [&](const plan::Plan::Link& link, bool down) {
    const net::ProcessName from = down ? link.connects : link.listens;
    const net::ProcessName to = down ? link.listens : link.connects;
    const plan::PathSpeed speed =
        plan::path_speed(plan, plan.process(from).host_index, plan.process(to).host_index);
    const auto seconds = [&](std::int64_t bytes) {
      return static_cast<double>(bytes) / speed.bytes_per_second;
    };
    parts.push_back({Kind::link, from, fmt::format("{} from {}", link.name, from.describe()),
                     link.name, seconds(down ? link.forward_bytes : link.backward_bytes),
                     seconds(down ? link.first_forward_bytes : link.backward_bytes),
                     !speed.measured && !speed.stated});
  };
  for (const plan::Plan::Link& link : plan.links) {
    if (link.use != plan::Plan::Use::boundary) continue;
    add_link(link, true);
    add_link(link, false);
  }
  if (plan.recipe.pipeline.replicas > 1) {
    const double rounds = sync - consensus_seconds(plan);
    parts.push_back({Kind::sync, {}, "waiting for rounds of replicas", {}, rounds, rounds});
  }
  parts.push_back({Kind::wait,
                   {},
                   "waiting of the busiest process",
                   {},
                   parts[0].seconds - works,
                   parts[0].first_epoch_seconds - first_works});
  return parts;
}

plan::Layout layout_of(const plan::Plan& whole) {
  const plan::Plan::SyncOffer* const sync = chosen_offer(whole);
  // In the first epoch every sample misses the activation cache.
  const double in_first_epoch =
      std::min(1.0, static_cast<double>(whole.epoch_steps) /
                        static_cast<double>(std::max(whole.steps, std::int64_t{1})));
  const double known = sync == nullptr ? whole.step_seconds : sync->step_seconds;
  const double step =
      known + in_first_epoch * (whole.first_epoch_step_seconds - whole.step_seconds);
  const recipe::Recipe::Pipeline& pipeline = whole.recipe.pipeline;
  plan::Layout summary{pipeline.stages,
                       pipeline.replicas,
                       {},
                       step,
                       {},
                       pipeline.schedule,
                       whole.depth,
                       whole.micro_batch_rows(),
                       whole.recipe.model.recompute == recipe::Recompute::layer,
                       load_of(whole).limit.name};
  for (const plan::Plan::Process& process : whole.processes) {
    summary.hosts.push_back(process.host);
    if (process.name.replica == 0) summary.layers.push_back(process.chunks.front());
  }
  return summary;
}

nlohmann::json to_json(const PlanLoad& load) {
  nlohmann::json lines = nlohmann::json::array();
  for (const PlanLoad::Line& one : load.lines) {
    lines.push_back({{"from", one.from},
                     {"to", one.to},
                     {"bytes_per_second", one.bytes_per_second},
                     {"busy_seconds", one.busy_seconds}});
  }
  nlohmann::json json = {
      {"step_seconds", load.step_seconds},
      {"tokens_per_second", load.tokens / load.step_seconds},
      {"slowest_replica", load.replica},
      {"stages", stages_json(load)},
      {"lines", std::move(lines)},
      {"limit",
       {{"name", load.limit.name},
        {"busy_seconds", load.limit.busy_seconds},
        {"step_seconds_with_twice", load.limit.twice_seconds}}},
      {"one_host", {{"host", load.fastest}, {"step_seconds", load.alone_seconds}}},
      {"without_network", {{"step_seconds", load.without_network_seconds}}}};
  if (load.fits_alone) json["one_host"]["fits"] = *load.fits_alone;
  return json;
}

}  // namespace strait::planner
