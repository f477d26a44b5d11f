#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"

namespace strait::planner {
namespace {

std::string text_of_rate(double bytes_per_second) {
  const double bits = bytes_per_second * 8;
  return bits < 1e9 ? fmt::format("{:.3g} Mbit/s", bits / 1e6)
                    : fmt::format("{:.3g} Gbit/s", bits / 1e9);
}

// The first entries of a list that may be long.
std::string some_of(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 6;
  if (words.size() <= kShown) return fmt::format("{}", fmt::join(words, ", "));
  const std::vector<std::string> first(words.begin(), words.begin() + kShown);
  return fmt::format("{} and {} more", fmt::join(first, ", "), words.size() - kShown);
}

// The speeds that forecasts use, measured and assumed.
std::string text_of_speeds(const plan::Plan& plan) {
  std::vector<std::string> measured;
  std::set<std::string> assumed;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const plan::ComputeSpeed speed = plan::compute_speed(plan, i, 1);
    const std::string words =
        fmt::format("{:.3g} Gflop/s a {}", speed.flops_per_second / 1e9,
                    speed.measured && plan::computes_on_gpus(plan, i) ? "GPU" : "thread");
    if (speed.measured) measured.push_back(fmt::format("{} on {}", words, plan.hosts[i].name));
    if (!speed.measured) assumed.insert(words);
  }
  std::set<std::pair<std::size_t, std::size_t>> seen;
  for (const plan::Plan::Link& link : plan.links) {
    const std::size_t from = plan.process(link.connects).host_index;
    const std::size_t to = plan.process(link.listens).host_index;
    if (!seen.insert({from, to}).second) continue;
    const plan::PathSpeed path = plan::path_speed(plan, from, to);
    const std::string words = text_of_rate(path.bytes_per_second);
    if (!path.measured) assumed.insert(words + " a link");
    if (path.measured) {
      measured.push_back(fmt::format("{} and {:.3g} ms from {} to {}", words, path.seconds * 1e3,
                                     plan.hosts[from].name, plan.hosts[to].name));
    }
  }
  std::string rest = fmt::format("{}", fmt::join(assumed, " and "));
  if (measured.empty()) return rest;
  return fmt::format("measured {}{}{}", some_of(measured), rest.empty() ? "" : "; assumed ", rest);
}

// "0.223 s", "12 min", "4.1 h", "26 days".
std::string text_of_seconds(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  if (seconds < 10 * kMinute) return fmt::format("{:.3g} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  if (seconds < 3 * kDay) return fmt::format("{:.1f} h", seconds / kHour);
  return fmt::format("{:.0f} days", seconds / kDay);
}

// Includes what replicas add to each step: sync, which contains the consensus round, or the
// consensus round alone.
double seconds_of_all_steps(const plan::Plan& plan) {
  const std::int64_t first = std::min(plan.steps, plan.epoch_steps);
  const plan::Plan::SyncOffer* const offer = chosen_offer(plan);
  const double added =
      offer != nullptr ? offer->step_seconds - plan.step_seconds : consensus_seconds(plan);
  return static_cast<double>(first) * plan.first_epoch_step_seconds +
         static_cast<double>(plan.steps - first) * plan.step_seconds +
         static_cast<double>(plan.steps) * added;
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
    words.push_back(text_of_rate(static_cast<double>(path.bits_per_second) / 8));
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

std::string text_of_forecast(const plan::Plan& plan) {
  std::string text = fmt::format("\nforecast at {}: {} a step", text_of_speeds(plan),
                                 text_of_seconds(plan.step_seconds));
  if (std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache)) {
    text +=
        fmt::format(", {} in the first epoch ({})", text_of_seconds(plan.first_epoch_step_seconds),
                    base::counted(plan.epoch_steps, "step"));
  }
  if (const double consensus = consensus_seconds(plan); consensus > 0) {
    text += fmt::format(", and {:.3g} s for the consensus of replicas", consensus);
  }
  return text + fmt::format("; {} in all\n", text_of_seconds(seconds_of_all_steps(plan)));
}

}  // namespace

std::string forecast_text(const plan::Plan& plan) {
  return text_of_simulation(plan.recipe.hosts) + text_of_forecast(plan);
}

}  // namespace strait::planner
