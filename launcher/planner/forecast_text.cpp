#include <fmt/format.h>

#include "launcher/base/text.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/run_forecast.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {

double one_digit(double value) {
  if (value <= 0 || !std::isfinite(value)) return value;
  const double digit = std::pow(10, std::floor(std::log10(value)));
  return std::round(value / digit) * digit;
}

std::string text_of_seconds(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  if (seconds < 10 * kMinute) return fmt::format("{:.3g} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  if (seconds < 3 * kDay) return fmt::format("{:.1f} h", seconds / kHour);
  return fmt::format("{:.0f} days", seconds / kDay);
}

namespace {

// The first entries of a list that may be long.
std::string some_of(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 6;
  if (words.size() <= kShown) return fmt::format("{}", fmt::join(words, ", "));
  const std::vector<std::string> first(words.begin(), words.begin() + kShown);
  return fmt::format("{} and {} more", fmt::join(first, ", "), words.size() - kShown);
}

std::string text_of_speed(double flops_per_second) {
  return flops_per_second < 1e12 ? fmt::format("{:.3g} Gflop/s", flops_per_second / 1e9)
                                 : fmt::format("{:.3g} Tflop/s", flops_per_second / 1e12);
}

// Which replica has how many rows, and why: "  rows of a step: 28 of replica 0 (host a), 4 of
// replica 1 (host b); with 16 each ...". Empty: all have the same.
std::string text_of_rows(const plan::Plan& plan) {
  if (plan.replica_rows.empty()) return "";
  std::vector<std::string> words;
  for (std::uint32_t replica = 0; replica < plan.replica_rows.size(); ++replica) {
    words.push_back(fmt::format("{} of replica {} (host {})", plan.replica_rows[replica], replica,
                                plan.process({0, replica}).host));
  }
  const plan::PathSpeeds speed = plan::direct_speeds(plan);
  double own = 0;
  double equal = 0;
  for (StepCosts& costs : costs_of_replicas(plan, speed)) {
    own = std::max(own, step_seconds(costs, plan.depth));
    costs.micro_batches = std::max<std::int64_t>(
        1, plan.recipe.train.batch / plan.micro_batch_rows() / std::ssize(plan.replica_rows));
    equal = std::max(equal, step_seconds(costs, plan.depth));
  }
  return fmt::format("  rows of a step: {}; with equal rows the slowest takes {} instead of {}\n",
                     some_of(words), text_of_seconds(equal), text_of_seconds(own));
}

// The speeds that forecasts use, measured and assumed.
std::string text_of_speeds(const plan::Plan& plan) {
  std::vector<std::string> measured;
  std::set<std::string> stated;
  std::set<std::string> assumed;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const plan::ComputeSpeed speed = plan::compute_speed(plan, i, 1);
    const bool known = speed.measured || speed.stated;
    const std::string words =
        text_of_speed(known ? speed.flops_per_second : one_digit(speed.flops_per_second)) +
        (plan::computes_on_gpus(plan, i) ? " a GPU" : " a thread");
    if (speed.measured) measured.push_back(fmt::format("{} on {}", words, plan.hosts[i].name));
    if (speed.stated) {
      stated.insert(fmt::format("{:.3g} Tflop/s a process on {}", speed.flops_per_second / 1e12,
                                plan.hosts[i].name));
    }
    if (!known) assumed.insert(words);
  }
  std::set<std::pair<std::size_t, std::size_t>> seen;
  for (const plan::Plan::Link& link : plan.links) {
    const std::size_t from = plan.process(link.connects).host_index;
    const std::size_t to = plan.process(link.listens).host_index;
    if (!seen.insert({from, to}).second) continue;
    const plan::PathSpeed path = plan::path_speed(plan, from, to);
    const std::string words = plan::text_of_rate(path.bytes_per_second);
    if (!path.measured) (path.stated ? stated : assumed).insert(words + " a link");
    if (path.measured) {
      measured.push_back(fmt::format("{} and {:.3g} ms from {} to {}", words, path.seconds * 1e3,
                                     plan.hosts[from].name, plan.hosts[to].name));
    }
  }
  std::vector<std::string> parts;
  if (!measured.empty()) parts.push_back("measured " + some_of(measured));
  if (!stated.empty()) parts.push_back("stated " + some_of({stated.begin(), stated.end()}));
  if (!assumed.empty()) parts.push_back(fmt::format("assumed {}", fmt::join(assumed, " and ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// Whether the forecast knows neither by measurement nor by the recipe how fast a part is.
bool is_assumed(const plan::Plan& plan) {
  const bool host = std::ranges::any_of(plan.processes, [&](const plan::Plan::Process& process) {
    const plan::ComputeSpeed speed = plan::compute_speed(plan, process);
    return !speed.measured && !speed.stated;
  });
  return host || std::ranges::any_of(plan.links, [&](const plan::Plan::Link& link) {
           const plan::PathSpeed path = plan::path_speed(
               plan, plan.process(link.connects).host_index, plan.process(link.listens).host_index);
           return !path.measured && !path.stated;
         });
}

// To one digit if it is assumed.
double as_known(const plan::Plan& plan, double value) {
  return is_assumed(plan) ? one_digit(value) : value;
}

// hosts.simulate: "100 Mbit/s, 20 ms one way"; empty: links are as they are.
std::string text_of_simulation(const recipe::Recipe::Hosts& hosts) {
  const net::PathConditions& path = hosts.simulate;
  if (!path.any()) return "";
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  std::vector<std::string> words;
  if (path.bits_per_second > 0) {
    words.push_back(plan::text_of_rate(static_cast<double>(path.bits_per_second) / 8));
  }
  words.push_back(fmt::format("{:.3g} ms one way", seconds(path.delay) * 1e3));
  if (path.loss > 0) words.push_back(fmt::format("{:.3g} % of packets lost", path.loss * 100));
  if (path.cut_every.count() > 0) {
    words.push_back(fmt::format("cut every {:.3g} s for {:.3g} s", seconds(path.cut_every),
                                seconds(path.cut_for)));
  }
  const std::string rest = fmt::format("simulated, in each direction: {}", fmt::join(words, ", "));
  if (hosts.simulate_link.empty()) return fmt::format("\nevery link is {}\n", rest);
  return fmt::format("\nonly {} is {}; the forecast leaves that out\n", hosts.simulate_link, rest);
}

// How to replace lines that are assumed; empty: none is.
std::string text_of_assumed_lines(const plan::Plan& plan) {
  if (plan.hosts.size() < 2 || !plan::assumes_lines(plan)) return "";
  return fmt::format(
      "  lines between hosts are assumed to carry {}; state yours as hosts.link_megabits or as "
      "uplink_megabits of a host, or measure them: strait probe RECIPE\n",
      plan::text_of_rate(plan::kAssumedLineBytesPerSecond));
}

std::string text_of_slowed_measurements(const plan::Plan& plan) {
  std::string text;
  for (const recipe::MeasuredHost& host : plan.speeds.hosts) {
    if (!plan::measured_under_load(host)) continue;
    text += fmt::format("  measured while other programs used {}; the next plan measures again\n",
                        host.name);
  }
  return text;
}

// "  hosts that lack the weights, 15.0 GiB, get them within 21 min"
std::string text_of_shipping(const plan::Plan& plan, const RunForecast& run) {
  if (run.shipped_bytes == 0) return "";
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const bool stated = hosts.ship_megabits || hosts.link_megabits;
  const double seconds = stated ? run.shipping_seconds : one_digit(run.shipping_seconds);
  return fmt::format("  hosts that lack the weights, {}, get them within {} ({})\n",
                     base::byte_text(run.shipped_bytes), text_of_seconds(seconds),
                     hosts.ship_megabits   ? "hosts.ship_megabits"
                     : hosts.link_megabits ? "hosts.link_megabits"
                                           : "assumed; hosts.ship_megabits states it");
}

// "  b sends most, 120 GiB in all; 2 checkpoints of 1.2 GiB; 12.3 GPU-hours; cost 4.56 without c"
std::string text_of_use(const plan::Plan& plan, const RunForecast& run) {
  std::vector<std::string> parts;
  const auto busiest = std::ranges::max_element(run.sent_bytes);
  if (busiest != run.sent_bytes.end() && *busiest > 0) {
    parts.push_back(
        fmt::format("{} sends most, {} in all",
                    plan.hosts[static_cast<std::size_t>(busiest - run.sent_bytes.begin())].name,
                    base::byte_text(*busiest)));
  }
  if (run.checkpoints > 0) {
    parts.push_back(fmt::format("{} of {}", base::counted(run.checkpoints, "checkpoint"),
                                base::byte_text(run.checkpoint_bytes)));
  }
  if (run.gpu_seconds > 0) {
    parts.push_back(fmt::format("{} GPU-hours", forecast_number(plan, run.gpu_seconds / 3600)));
  }
  if (run.cost) {
    parts.push_back("cost " + forecast_number(plan, *run.cost));
    if (!run.without_price.empty()) parts.back() += " without " + some_of(run.without_price);
  }
  return parts.empty() ? "" : fmt::format("  {}\n", fmt::join(parts, "; "));
}

std::string text_of_forecast(const plan::Plan& plan) {
  const RunForecast run = forecast_run(plan);
  const bool one_epoch = plan.epoch_steps > 0 && plan.steps <= plan.epoch_steps;
  const double sync = sync_seconds(plan);
  const auto seconds = [&plan](double value) { return forecast_seconds(plan, value); };
  const std::string first = seconds(plan.first_epoch_step_seconds + sync);
  const double step = (one_epoch ? plan.first_epoch_step_seconds : plan.step_seconds) + sync;
  std::string text = "\nforecast at " + text_of_speeds(plan) + ": " + seconds(step) + " a step";
  // An epoch that the run does not leave needs no words.
  const bool caches = std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache);
  if (!one_epoch && (caches || first != seconds(step))) {
    text +=
        fmt::format(", {} in the first epoch ({})", first, base::counted(plan.epoch_steps, "step"));
  }
  if (sync > 1e-3 * step) text += fmt::format(", {} of it for replicas", seconds(sync));
  text += fmt::format("; {} in all", seconds(run.steps_seconds + run.evaluation_seconds));
  if (run.evaluation_seconds > 0) {
    text += fmt::format(", {} of it for {}", seconds(run.evaluation_seconds),
                        base::counted(run.evaluations, "evaluation"));
  }
  return text + "\n" + text_of_rows(plan) + text_of_use(plan, run) + offload_text(plan) +
         text_of_shipping(plan, run) + text_of_assumed_lines(plan) +
         text_of_slowed_measurements(plan);
}

// "a 16, b+c 12": the hosts of each stage in all replicas, with its blocks.
std::string text_of_layout(const plan::Layout& layout) {
  std::vector<std::string> words;
  for (std::size_t stage = 0; stage < layout.layers.size(); ++stage) {
    // Layer 0 is the embedding, and the last one the head.
    const models::LayerRange& range = layout.layers[stage];
    const bool head = stage + 1 == layout.layers.size();
    const int blocks = range.last - range.first + 1 - (stage == 0 ? 1 : 0) - (head ? 1 : 0);
    std::vector<std::string> names;
    for (std::int64_t replica = 0; replica < layout.replicas; ++replica) {
      const auto at = static_cast<std::size_t>(replica * layout.stages) + stage;
      const std::string& host = layout.hosts[at];
      if (std::ranges::find(names, host) == names.end()) names.push_back(host);
    }
    words.push_back(fmt::format("{} {}", fmt::join(names, "+"), blocks));
  }
  return some_of(words);
}

// Hosts without a process.
std::string text_of_idle_hosts(const plan::Plan& plan) {
  std::vector<std::string> idle;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const bool used = std::ranges::any_of(
        plan.processes, [i](const auto& process) { return process.host_index == i; });
    if (!used) idle.push_back(plan.hosts[i].name);
  }
  if (idle.empty()) return "";
  // A stated layout that is clearly slower did not ask what they are worth.
  if (!slower_layout_note(plan).empty()) return fmt::format("  not used: {}\n", some_of(idle));
  return fmt::format("  left out, because a step takes no longer without: {}\n", some_of(idle));
}

// "2 stages, 1 replica".
std::string shape_text(const plan::Layout& layout) {
  return fmt::format("{}, {}", base::counted(layout.stages, "stage"),
                     base::counted(layout.replicas, "replica"));
}

// "zero_bubble, depth 2, 4 rows, recompute".
std::string settings_text(const plan::Layout& layout) {
  return fmt::format("{}, depth {}, {}{}", layout.schedule, layout.depth,
                     base::counted(layout.micro_batch, "row"),
                     layout.recomputes ? ", recompute" : "");
}

}  // namespace

std::string forecast_seconds(const plan::Plan& plan, double seconds) {
  return text_of_seconds(as_known(plan, seconds));
}

std::string forecast_number(const plan::Plan& plan, double number) {
  constexpr double kWhole = 100;  // from here on without digits after the point
  const double known = as_known(plan, number);
  return known < kWhole ? fmt::format("{:.3g}", known) : fmt::format("{:.0f}", known);
}

std::string layout_text(const plan::Layout& layout) {
  return fmt::format("{}: {}; {}", shape_text(layout), text_of_layout(layout),
                     settings_text(layout));
}

std::string slower_layout_note(const plan::Plan& plan) {
  if (plan.layouts.size() < 2) return "";
  const plan::Layout& own = plan.layouts[0];
  const plan::Layout& best = plan.layouts[1];
  // Of layouts among which "auto" chose, the first one is the fastest.
  if (best.step_seconds * kClearlySlower > own.step_seconds) return "";
  return fmt::format(
      "by the forecast a step takes {}, and {} with the layout that pipeline.stages = \"auto\" "
      "chooses: {}",
      forecast_seconds(plan, own.step_seconds), forecast_seconds(plan, best.step_seconds),
      layout_text(best));
}

std::string layout_table(const plan::Plan& plan, std::size_t columns) {
  if (plan.layouts.empty()) return "";
  constexpr std::size_t kShown = 4;
  using Kind = base::TextColumn::Kind;
  std::vector<base::TextColumn> table{
      {"  layout", {}, Kind::key},  {"a step", {}, Kind::number},
      {"longer", {}, Kind::number}, {"takes longest", {}, Kind::text},
      {"with", {}, Kind::text},     {"blocks of each stage", {}, Kind::text}};
  const double chosen = plan.layouts.front().step_seconds;
  for (std::size_t i = 0; i < std::min(kShown, plan.layouts.size()); ++i) {
    const plan::Layout& one = plan.layouts[i];
    table[0].cells.push_back(fmt::format("{}{}", i == 0 ? "* " : "  ", shape_text(one)));
    table[1].cells.push_back(forecast_seconds(plan, one.step_seconds));
    table[2].cells.push_back(fmt::format("{:.2f}x", one.step_seconds / chosen));
    table[3].cells.push_back(one.limit);
    table[4].cells.push_back(settings_text(one));
    table[5].cells.push_back(text_of_layout(one));
  }
  return "\n" + base::table_text(table, columns) + text_of_idle_hosts(plan);
}

std::string forecast_text(const plan::Plan& plan) {
  return text_of_simulation(plan.recipe.hosts) + text_of_forecast(plan);
}

}  // namespace strait::planner
