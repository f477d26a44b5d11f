#include <fmt/format.h>

#include "launcher/base/text.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {
namespace {

// "  a keeps 3 GB of waiting activations in host memory: 0.02 s of transfers for each micro-batch
// (...)".
std::string text_of_waiting(const plan::Plan& plan) {
  if (plan.processes.empty()) return "";
  const plan::Plan::Process& most =
      *std::ranges::max_element(plan.processes, {}, &plan::Plan::Process::waiting_bytes);
  if (most.waiting_bytes == 0) return "";
  const double seconds = static_cast<double>(most.waiting_bytes) /
                         static_cast<double>(most.in_flight) / plan::kAssumedPcieBytesPerSecond;
  return fmt::format(
      "  {} keeps {} of waiting activations in host memory: {} of transfers for each micro-batch, "
      "during its compute (assumed {:.3g} GB/s over PCIe)\n",
      most.host, base::byte_text(most.waiting_bytes), text_of_seconds(one_digit(seconds)),
      plan::kAssumedPcieBytesPerSecond / 1e9);
}

// "  the CPU of a makes its off-loaded update in 3 s (...), and 0.9 s of transfers (...)", and
// what the disk of a takes for it. No speed of these is measured.
std::string text_of_optimizer(const plan::Plan& plan) {
  if (plan.processes.empty()) return "";
  const auto bytes = [](const auto& one) { return one.offloaded_bytes + one.disk_bytes; };
  const plan::Plan::Process& most = *std::ranges::max_element(plan.processes, {}, bytes);
  if (bytes(most) == 0) return "";
  std::string text;
  if (plan::computes_on_gpus(plan, most.host_index)) {
    const StateBytes state = state_bytes(plan.recipe, true);
    const OffloadSeconds seconds =
        offload_seconds(plan.recipe, bytes(most) / (state.offloaded + state.on_disk));
    text = fmt::format(
        "  the CPU of {} makes its off-loaded update in {} (assumed {:.3g} GB/s of memory), and {} "
        "of transfers at the same time (assumed {:.3g} GB/s over PCIe)\n",
        most.host, text_of_seconds(one_digit(seconds.update)),
        plan::kAssumedMemoryBytesPerSecond / 1e9, text_of_seconds(one_digit(seconds.transfer)),
        plan::kAssumedPcieBytesPerSecond / 1e9);
  }
  // All processes of a host make their updates at the same time.
  std::map<std::string, std::int64_t> on_disk;
  for (const plan::Plan::Process& one : plan.processes) on_disk[one.host] += one.disk_bytes;
  const auto& [host, taken] =
      *std::ranges::max_element(on_disk, {}, &std::pair<const std::string, std::int64_t>::second);
  if (taken == 0) return text;
  return text + fmt::format(
                    "  the disk of {} is read and written for {} in each update, as far as its "
                    "memory cannot hold {} (assumed {:.3g} GB/s)\n",
                    host, text_of_seconds(one_digit(disk_seconds(taken))), base::byte_text(taken),
                    plan::kAssumedDiskBytesPerSecond / 1e9);
}

}  // namespace

std::string offload_text(const plan::Plan& plan) {
  return text_of_waiting(plan) + text_of_optimizer(plan);
}

}  // namespace strait::planner
