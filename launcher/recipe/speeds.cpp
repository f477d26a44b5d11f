#include "launcher/recipe/speeds.h"

#include "framework/net/flow_count.h"
#include "launcher/recipe/known_gpus.h"

namespace strait::plan {

namespace {

// What training reaches of a GPU's published figure. Assumed: what large models are reported with.
constexpr double kReached = 0.45;
// What all cores of a large CPU reach: a host that states more computes on a GPU.
constexpr double kMostFlopsOfCpu = 5e12;

// As the recipe lists it. Null: it lists no hosts.
const recipe::RecipeHost* listed(const Plan& plan, std::size_t host) {
  const auto& list = plan.recipe.hosts.list;
  const std::string& name = plan.hosts.at(host).name;
  if (host < list.size() && list[host].name == name) return &list[host];
  const auto found = std::ranges::find(list, name, &recipe::RecipeHost::name);
  return found == list.end() ? nullptr : &*found;
}

double bytes_of_megabits(double megabits) { return megabits * 1e6 / 8; }

// By what the recipe says of this host alone.
StatedLine own_line(const Plan& plan, std::size_t host) {
  StatedLine line;
  const recipe::RecipeHost* const own = listed(plan, host);
  if (own == nullptr) return line;
  if (own->uplink_megabits) line.up = line.down = bytes_of_megabits(*own->uplink_megabits);
  if (own->downlink_megabits) line.down = bytes_of_megabits(*own->downlink_megabits);
  return line;
}

// Links are shaped one by one, so they share no line.
PathSpeed simulated_speed(const net::PathConditions& simulated) {
  PathSpeed speed;
  const double rate = simulated.mean_bytes_per_second();
  if (rate > 0) speed.bytes_per_second = std::min(rate, kLoopbackBytesPerSecond);
  speed.seconds = std::chrono::duration<double>(simulated.delay).count();
  speed.stated = rate > 0;
  return speed;
}

double assumed_gpu_flops(const Plan& plan, std::size_t host) {
  const recipe::Dtype dtype = plan.recipe.model.dtype;
  const double published = published_flops(plan.hosts.at(host).device, dtype);
  if (published > 0) return kReached * published;
  return dtype == recipe::Dtype::bfloat16 ? kAssumedFlopsOfGpu : kAssumedFlopsOfGpuInFloat32;
}

// Whether the host's memory is a GPU's, also where only its stated speed says so.
bool has_memory_of_gpu(const Plan& plan, std::size_t host) {
  if (computes_on_gpus(plan, host)) return true;
  if (plan.hosts.at(host).gpus || plan.recipe.model.device == recipe::Device::cpu) return false;
  const recipe::RecipeHost* const own = listed(plan, host);
  return own != nullptr && own->tflops && *own->tflops * 1e12 > kMostFlopsOfCpu;
}

}  // namespace

double published_flops(std::string_view device, recipe::Dtype dtype) {
  const recipe::KnownGpu* const known = recipe::known_gpu(device);
  if (known == nullptr) return 0;
  const bool tensor = dtype == recipe::Dtype::bfloat16 && known->tensor_tflops > 0;
  return 1e12 * (tensor ? known->tensor_tflops : known->float32_tflops);
}

StatedLine stated_line(const Plan& plan, std::size_t host) {
  StatedLine line = own_line(plan, host);
  const auto& all = plan.recipe.hosts.link_megabits;
  if (!line.up && all) line.up = bytes_of_megabits(*all);
  if (!line.down && all) line.down = bytes_of_megabits(*all);
  return line;
}

PathSpeed path_speed(const Plan& plan, std::size_t from, std::size_t to) {
  const net::PathConditions& simulated = plan.recipe.hosts.simulate;
  if (simulated.any() && plan.recipe.hosts.simulate_link.empty()) return simulated_speed(simulated);
  PathSpeed speed;
  if (from == to && plan.recipe.hosts.shared_memory) {
    speed.in_memory = true;
    speed.bytes_per_second = speed.uplink = speed.downlink = kMemoryLinkBytesPerSecond;
  }
  const recipe::MeasuredLink* link =
      plan.speeds.link(plan.hosts.at(from).name, plan.hosts.at(to).name);
  // On one machine a stated line is that of each process; of several hosts, none is inside a host.
  const bool inside = from == to && plan.hosts.size() > 1;
  const auto line = [&](std::size_t host) {
    if (inside) return StatedLine();
    return link != nullptr ? own_line(plan, host) : stated_line(plan, host);
  };
  const StatedLine sends = line(from);
  const StatedLine receives = line(to);
  if (link != nullptr) {
    // One thread encrypts everything that a process sends, so a wider path does not help.
    const auto reached = [](double bits) { return std::min(bits / 8, kLoopbackBytesPerSecond); };
    const double all = std::max(link->bits_per_second, link->flows_bits_per_second);
    // A link opens further flows while twice as many carry clearly more (net::FlowCount).
    const bool opens = all > net::FlowCount::kHelps * link->bits_per_second;
    speed.bytes_per_second = reached(opens ? all : link->bits_per_second);
    speed.seconds = link->seconds;
    speed.measured = true;
    speed.uplink = reached(all);
  } else if (from != to && (!sends.up || !receives.down)) {
    speed.bytes_per_second = speed.uplink = kAssumedLineBytesPerSecond;
    speed.seconds = kAssumedLineSeconds;
  } else if (sends.up && receives.down) {
    speed.bytes_per_second = *sends.up;
    speed.stated = true;
  }
  speed.downlink = receives.down.value_or(speed.uplink);
  speed.uplink = sends.up.value_or(speed.uplink);
  speed.bytes_per_second = std::min({speed.bytes_per_second, speed.uplink, speed.downlink});
  return speed;
}

bool shares_memory(const Plan& plan, const Plan::Link& link) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const std::string& only = hosts.simulate_link;
  const bool simulated = hosts.simulate.any() && (only.empty() || only == link.name);
  return hosts.shared_memory && !simulated &&
         plan.process(link.connects).host_index == plan.process(link.listens).host_index;
}

PathSpeeds direct_speeds(const Plan& plan) {
  return [&plan](const Plan::Link& /*link*/, std::size_t from, std::size_t to) {
    return path_speed(plan, from, to);
  };
}

bool assumes_lines(const Plan& plan) {
  for (std::size_t from = 0; from < plan.hosts.size(); ++from) {
    for (std::size_t to = 0; to < plan.hosts.size(); ++to) {
      if (from == to) continue;
      const PathSpeed speed = path_speed(plan, from, to);
      if (!speed.measured && !speed.stated) return true;
    }
  }
  return false;
}

PathSpeed relayed_speed(const PathSpeed& direct, std::size_t links) {
  // All relayed links share the launcher's line, and each byte goes to it and away again.
  PathSpeed relayed = direct;
  relayed.bytes_per_second /= static_cast<double>(std::max<std::size_t>(links, 1));
  relayed.seconds *= 2;
  relayed.measured = relayed.stated = false;
  return relayed;
}

bool computes_on_gpus(const Plan& plan, std::size_t host) {
  const Plan::Host& known = plan.hosts.at(host);
  if (known.gpus) return !known.gpus->empty();
  if (plan.recipe.model.device == recipe::Device::cpu) return false;
  const recipe::RecipeHost* const own = listed(plan, host);
  return plan.recipe.model.device == recipe::Device::cuda ||
         (own != nullptr && (!own->device.empty() || !own->devices.empty()));
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
  if (computes_on_gpus(plan, host)) speed.flops_per_second = assumed_gpu_flops(plan, host);
  const recipe::MeasuredHost* known = plan.speeds.host(plan.hosts.at(host).name);
  if (known == nullptr || known->flops_per_second == 0) {
    const recipe::RecipeHost* const own = listed(plan, host);
    speed.stated = own != nullptr && own->tflops;
    if (speed.stated) speed.flops_per_second = *own->tflops * 1e12;
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
  return compute_speed(plan, process.host_index, process.threads);
}

std::string text_of_rate(double bytes_per_second) {
  const double bits = bytes_per_second * 8;
  return bits < 1e9 ? fmt::format("{:.3g} Mbit/s", bits / 1e6)
                    : fmt::format("{:.3g} Gbit/s", bits / 1e9);
}

double copy_speed(const Plan& plan, std::size_t host) {
  const recipe::MeasuredHost* known = plan.speeds.host(plan.hosts.at(host).name);
  const bool measured = known != nullptr && known->memory_bytes_per_second > 0;
  const double assumed =
      has_memory_of_gpu(plan, host) ? kAssumedMemoryOfGpu : kAssumedMemoryBytesPerSecond;
  const double both = measured ? known->memory_bytes_per_second : assumed;
  return both / 2;  // a copy reads and writes each byte
}

}  // namespace strait::plan
