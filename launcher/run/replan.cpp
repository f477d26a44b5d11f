#include "launcher/run/replan.h"

#include "launcher/base/median.h"

namespace strait::run {
namespace {

constexpr double kLeastGain = 1.1;  // of a step; forecasts are not much better than this
constexpr double kMargin = 2;       // times the cost of the change

double median_of(const std::deque<double>& values) {
  return base::median(std::vector<double>(values.begin(), values.end()));
}

void keep_latest(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > RunSpeeds::kWindow) values.pop_front();
}

// The recipe with the layout open again. What decides bits stays as it is.
recipe::Recipe open_recipe(const plan::Plan& plan) {
  recipe::Recipe recipe = plan.recipe;
  recipe.pipeline.choose_stages = true;
  recipe.pipeline.hosts.clear();
  recipe.pipeline.partition = {};
  // Another size would change how gradients are summed, and so the bits.
  recipe.train.micro_batch = plan.micro_batch_rows();
  return recipe;
}

std::string hosts_text(const plan::Plan& plan) {
  std::string text;
  for (const plan::Plan::Process& process : plan.processes) {
    if (process.name.replica > 0) break;
    int layers = 0;
    for (const models::LayerRange& range : process.chunks) layers += range.last - range.first + 1;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", process.host, layers);
  }
  return text;
}

}  // namespace

void RunSpeeds::add(const StepLine& line) {
  keep_latest(seconds_, line.seconds);
  for (const auto& [process, metrics] : line.processes) {
    keep_latest(busy_[process], metrics.busy_seconds);
  }
  std::map<std::string, const plan::Plan::Link*> links;
  for (const plan::Plan::Link& link : plan_.links) links[link.name] = &link;
  for (const StepLine::LinkBytes& one : line.links) {
    const auto known = links.find(one.name);
    if (known == links.end() || one.bytes_per_second <= 0) continue;
    const net::ProcessName other =
        known->second->connects == one.sender ? known->second->listens : known->second->connects;
    const Path path{plan_.process(one.sender).host_index, plan_.process(other).host_index};
    // Links within a host are not part of a table of paths.
    if (path.first != path.second) keep_latest(rates_[path], one.bytes_per_second);
  }
}

double RunSpeeds::step_seconds() const { return median_of(seconds_); }

recipe::LinkTable RunSpeeds::table() const {
  recipe::LinkTable table = plan_.speeds;
  std::map<std::string, recipe::MeasuredHost> hosts;
  for (const plan::Plan::Process& process : plan_.processes) {
    const auto busy = busy_.find(process.name);
    const double expected = expected_.at(process.name);
    if (busy == busy_.end() || expected <= 0 || median_of(busy->second) <= 0) continue;
    const plan::ComputeSpeed planned = plan::compute_speed(plan_, process);
    const double flops = planned.flops_per_second * expected / median_of(busy->second);
    const auto [at, added] = hosts.try_emplace(process.host);
    recipe::MeasuredHost& host = at->second;
    if (!added && host.flops_per_second <= flops) continue;  // the slowest of its processes counts
    if (const auto* known = plan_.speeds.host(process.host); known != nullptr) host = *known;
    host.name = process.host;
    host.flops_per_second = flops;
    host.backward = planned.backward;
    host.threads = process.threads;
    if (!host.gpu_memory) host.gpu_memory = plan_.hosts.at(process.host_index).gpus;
  }
  for (const auto& [name, host] : hosts) {
    std::erase_if(table.hosts, [&host = host](const recipe::MeasuredHost& old) {
      return old.name == host.name;
    });
    table.hosts.push_back(host);
  }
  std::vector<recipe::MeasuredLink> links;
  for (const auto& [path, rates] : rates_) {
    links.push_back({plan_.hosts.at(path.first).name, plan_.hosts.at(path.second).name,
                     8 * median_of(rates), 0,
                     plan::path_speed(plan_, path.first, path.second).seconds});
  }
  table.links.put(links);
  return table;
}

bool replan_pays(const ReplanCosts& costs) {
  const double saved =
      (costs.step_seconds - costs.other_step_seconds) * static_cast<double>(costs.steps);
  return costs.step_seconds >= kLeastGain * costs.other_step_seconds &&
         saved >= kMargin * costs.restart_seconds;
}

void Replan::begin(const plan::RunFile& run) {
  run_ = run;
  speeds_.emplace(run_->plan, model_.compute_seconds(run_->plan));
}

void Replan::training(store::Step /*from*/, store::Step /*to*/) {
  start_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

void Replan::step(const StepLine& line) { speeds_->add(line); }

void Replan::checkpointed(store::Step step) {
  // At a checkpoint, because a change of the layout costs the steps since the last one.
  if (next_ || answer_.valid() || !speeds_->known()) return;
  const ReplanCosts costs{speeds_->step_seconds(), 0, run_->plan.steps - number(step),
                          start_seconds_ + speeds_->step_seconds()};
  // A search takes seconds, and this is the coordinator's thread.
  answer_ = std::async(std::launch::async, [this, costs, table = speeds_->table()] {
    return better_run(table, costs);
  });
}

// Both layouts are forecast with the same speeds, and what the forecast leaves out of a step, the
// other layout is assumed to have as well.
Replan::Answer Replan::better_run(const recipe::LinkTable& speeds, ReplanCosts costs) const {
  try {
    const plan::RunFile now = model_.planned_again(*run_, run_->plan.recipe, &speeds);
    plan::RunFile other = model_.planned_again(*run_, open_recipe(run_->plan), &speeds);
    costs.other_step_seconds = costs.step_seconds * other.plan.step_seconds / now.plan.step_seconds;
    if (!replan_pays(costs)) return {};
    std::string sentence = fmt::format(
        "by measured speeds a step takes {:.3g} s with another layout (layers: {}), not {:.3g} s "
        "(layers: {}); over {} steps that saves more than the change costs, about {:.0f} s",
        costs.other_step_seconds, hosts_text(other.plan), costs.step_seconds,
        hosts_text(run_->plan), costs.steps, costs.restart_seconds);
    return {std::move(other), std::move(sentence)};
  } catch (const base::UserError&) {
    return {};  // no other layout can be planned now
  }
}

std::string Replan::take_request() {
  if (!answer_.valid() || answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return "";
  }
  Answer answer = answer_.get();
  next_ = std::move(answer.run);
  return answer.sentence;
}

}  // namespace strait::run
