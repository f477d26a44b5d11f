#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/stage_job.h"
#include "launcher/recipe/recipe_values.h"

namespace strait::worker {

// The accelerators that this process can use: GPUs, or the device that a plugin registers with
// libtorch. CUDA_VISIBLE_DEVICES decides which GPUs these are.
struct Accelerators {
  at::DeviceType type = at::kCUDA;
  std::int64_t count = 0;
};
// Nullopt: there is none.
std::optional<Accelerators> accelerators_here();

// The device of the process with number `index` on its host: processes take its accelerators in
// turn, and share them where there are fewer. Pure. UserError, with `process` as its subject: the
// recipe asks for a GPU, and there is none.
at::Device choose_device(recipe::Device wish, const std::optional<Accelerators>& here,
                         std::int64_t index, const std::string& process);

// UserError: the processes of the plan that share this one's device, one of so many on its host,
// need more memory there than the device has. Pure. Codecs' caches and copies for checkpoints are
// in the host's memory.
void check_device_memory(const plan::Plan& plan, net::ProcessName name, std::int64_t devices,
                         std::int64_t bytes);

// What this process can compute on, and whether a small product of matrices is right there: a
// sentence for each of libtorch, the driver's GPUs, the CPU and the accelerators.
struct DeviceCheck {
  bool works = true;
  std::string text;
};
std::vector<DeviceCheck> check_devices();

// Of this stage process. UserError as above.
at::Device compute_device(const plan::StageJob& job);

}  // namespace strait::worker
