#include "launcher/run/slow_observer.h"

#include "launcher/plan/speeds.h"

namespace strait::run {
namespace {

bool knows_speed(const plan::Plan& plan, const plan::PathSpeed& speed) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const bool simulated = hosts.simulate_link.empty() && hosts.simulate.bits_per_second > 0;
  return speed.measured || simulated || hosts.link_megabits.has_value();
}

std::map<net::ProcessName, SlowSteps::Host> hosts_of_processes(const plan::Plan& plan) {
  std::map<net::ProcessName, SlowSteps::Host> hosts;
  for (const plan::Plan::Process& process : plan.processes) {
    hosts[process.name] = {process.host, plan.hosts.at(process.host_index).cores};
  }
  return hosts;
}

// Of what `sender` sends. Links between processes of one host, and simulated ones, have lines of
// their own.
ExpectedSpeeds::Link expected_link(const plan::Plan& plan, net::ProcessName sender,
                                   net::ProcessName receiver, const plan::Plan::Link& link) {
  ExpectedSpeeds::Link expected;
  const std::size_t from = plan.process(sender).host_index;
  const std::size_t to = plan.process(receiver).host_index;
  if (from != to) {
    expected.from = plan.hosts.at(from).name;
    expected.to = plan.hosts.at(to).name;
  }
  const plan::PathSpeed speed = plan::path_speed(plan, from, to);
  if (!knows_speed(plan, speed)) return expected;
  // A boundary's messages may go one by one, with an answer each; a round of replicas has a few.
  constexpr std::int64_t kTripsOfRound = 4;
  const std::int64_t trips =
      link.use == plan::Plan::Use::boundary ? plan.micro_batches : kTripsOfRound;
  const double round_trip = speed.seconds + plan::path_speed(plan, to, from).seconds;
  expected.bytes_per_second = speed.bytes_per_second;
  expected.waiting = static_cast<double>(trips) * round_trip;
  return expected;
}

}  // namespace

ExpectedSpeeds expected_speeds(const plan::Plan& plan, const ModelQuestions& model) {
  ExpectedSpeeds expected;
  const std::map<net::ProcessName, double> seconds = model.compute_seconds(plan);
  for (const plan::Plan::Process& process : plan.processes) {
    const bool measured = plan::compute_speed(plan, process).measured;
    expected.processes[process.name] = {seconds.at(process.name), measured, process.host};
  }
  for (const plan::Plan::Link& link : plan.links) {
    expected.links[{link.name, link.connects}] =
        expected_link(plan, link.connects, link.listens, link);
    expected.links[{link.name, link.listens}] =
        expected_link(plan, link.listens, link.connects, link);
  }
  return expected;
}

SlowObserver::SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
                           std::vector<RunObserver*> observers)
    : slow_(expected_speeds(plan, model)),
      slow_steps_(hosts_of_processes(plan)),
      observers_(std::move(observers)) {}

void SlowObserver::step(const StepLine& line) {
  observers_.launcher_event({"slow", slow_steps_.add(line)});
  const std::vector<SlowParts::Change> changes = slow_.add(line);
  if (changes.empty()) return;
  for (const auto& change : changes) {
    observers_.launcher_event({change.slow ? "slow" : "not_slow", change.sentence});
  }
  observers_.notify(&RunObserver::slow_parts, slow_.sentences());
}

}  // namespace strait::run
