#include "launcher/launch/slow_observer.h"

#include "launcher/plan/speeds.h"

namespace strait::launch {
namespace {

bool knows_speed(const plan::Plan& plan, const plan::PathSpeed& speed) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const bool simulated = hosts.simulate_link.empty() && hosts.simulate.bits_per_second > 0;
  return speed.measured || simulated || hosts.link_megabits.has_value();
}

std::map<net::ProcessName, control::SlowSteps::Host> hosts_of_processes(const plan::Plan& plan) {
  std::map<net::ProcessName, control::SlowSteps::Host> hosts;
  for (const plan::Plan::Process& process : plan.processes) {
    hosts[process.name] = {process.host, plan.hosts.at(process.host_index).cores};
  }
  return hosts;
}

}  // namespace

control::ExpectedSpeeds expected_speeds(const plan::Plan& plan, const ModelQuestions& model) {
  control::ExpectedSpeeds expected;
  const std::map<net::ProcessName, double> seconds = model.compute_seconds(plan);
  for (const plan::Plan::Process& process : plan.processes) {
    const bool measured = plan::compute_speed(plan, process).measured;
    expected.processes[process.name] = {seconds.at(process.name), measured, process.host};
  }
  for (const plan::Plan::Link& link : plan.links) {
    if (link.use != plan::Plan::Use::boundary) continue;
    const std::size_t upper = plan.process(link.connects).host_index;
    const std::size_t lower = plan.process(link.listens).host_index;
    const auto expect = [&](net::ProcessName sender, std::size_t from, std::size_t to) {
      const plan::PathSpeed speed = plan::path_speed(plan, from, to);
      if (!knows_speed(plan, speed)) return;
      const double back = plan::path_speed(plan, to, from).seconds;
      expected.links[{link.name, sender}] = {
          speed.bytes_per_second, static_cast<double>(plan.micro_batches) * (speed.seconds + back)};
    };
    expect(link.connects, upper, lower);
    expect(link.listens, lower, upper);
  }
  return expected;
}

SlowObserver::SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
                           std::vector<control::RunObserver*> observers)
    : slow_(expected_speeds(plan, model)),
      slow_steps_(hosts_of_processes(plan)),
      observers_(std::move(observers)) {}

void SlowObserver::step(const control::StepLine& line) {
  observers_.launcher_event({"slow", slow_steps_.add(line)});
  const std::vector<control::SlowParts::Change> changes = slow_.add(line);
  if (changes.empty()) return;
  for (const auto& change : changes) {
    observers_.launcher_event({change.slow ? "slow" : "not_slow", change.sentence});
  }
  observers_.notify(&control::RunObserver::slow_parts, slow_.sentences());
}

}  // namespace strait::launch
