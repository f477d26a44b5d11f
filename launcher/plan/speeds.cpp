#include "launcher/plan/speeds.h"

#include <algorithm>
#include <chrono>

namespace strait::plan {

PathSpeed path_speed(const Plan& plan, std::size_t from, std::size_t to) {
  PathSpeed speed;
  const net::PathConditions& simulated = plan.recipe.hosts.simulate;
  if (simulated.any() && plan.recipe.hosts.simulate_link.empty()) {
    const double rate = simulated.mean_bytes_per_second();
    if (rate > 0) speed.bytes_per_second = std::min(rate, kAssumedLinkBytesPerSecond);
    speed.seconds = std::chrono::duration<double>(simulated.delay).count();
    speed.stated = rate > 0;
    return speed;
  }
  const recipe::MeasuredLink* link =
      plan.speeds.link(plan.hosts.at(from).name, plan.hosts.at(to).name);
  if (link != nullptr) {
    // One thread encrypts everything that a process sends, so a wider path does not help.
    speed = {std::min(link->bits_per_second / 8, kAssumedLinkBytesPerSecond), link->seconds, true};
  } else if (plan.recipe.hosts.link_megabits) {
    speed.bytes_per_second = *plan.recipe.hosts.link_megabits * 1e6 / 8;
    speed.stated = true;
  }
  return speed;
}

PathSpeed relayed_speed(const PathSpeed& direct, std::size_t links) {
  // All relayed links share the launcher's line, and each byte goes to it and away again.
  return {direct.bytes_per_second / static_cast<double>(std::max<std::size_t>(links, 1)),
          2 * direct.seconds, false};
}

bool computes_on_gpus(const Plan& plan, std::size_t host) {
  const auto& gpus = plan.hosts.at(host).gpus;
  return gpus && !gpus->empty();
}

ComputeSpeed compute_speed(const Plan& plan, std::size_t host, std::int64_t threads,
                           std::int64_t processes) {
  const auto cores = static_cast<double>(plan.hosts.at(host).cores);
  const auto running = [cores](std::int64_t wanted, std::int64_t shared_by) {
    const auto all = static_cast<double>(wanted);
    return cores == 0 ? all : std::min(all, cores / static_cast<double>(shared_by));
  };
  ComputeSpeed speed;
  speed.flops_per_second = kAssumedFlopsPerThread * running(threads, processes);
  if (computes_on_gpus(plan, host)) {
    const bool narrow = plan.recipe.model.dtype == recipe::Dtype::bfloat16;
    speed.flops_per_second = narrow ? kAssumedFlopsOfGpu : kAssumedFlopsOfGpuInFloat32;
  }
  const recipe::MeasuredHost* known = plan.speeds.host(plan.hosts.at(host).name);
  if (known == nullptr || known->flops_per_second == 0) {
    const auto& listed = plan.recipe.hosts.list;
    const auto found =
        std::ranges::find(listed, plan.hosts.at(host).name, &recipe::RecipeHost::name);
    speed.stated = found != listed.end() && found->tflops;
    if (speed.stated) speed.flops_per_second = *found->tflops * 1e12;
    return speed;
  }
  speed.flops_per_second = known->flops_per_second;
  if (!computes_on_gpus(plan, host)) {
    // Measured alone and with other threads: scaled to the cores that this process will have.
    speed.flops_per_second *= running(threads, processes) / running(known->threads, 1);
  }
  if (known->backward > 0) speed.backward = known->backward;
  speed.measured = true;
  return speed;
}

ComputeSpeed compute_speed(const Plan& plan, const Plan::Process& process) {
  return compute_speed(
      plan, process.host_index, process.threads,
      std::ranges::count(plan.processes, process.host_index, &Plan::Process::host_index));
}

double copy_speed(const Plan& plan, std::size_t host) {
  const recipe::MeasuredHost* known = plan.speeds.host(plan.hosts.at(host).name);
  const bool measured = known != nullptr && known->memory_bytes_per_second > 0;
  const double both = measured ? known->memory_bytes_per_second : kAssumedMemoryBytesPerSecond;
  return both / 2;  // a copy reads and writes each byte
}

}  // namespace strait::plan
