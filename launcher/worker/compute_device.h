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
at::Device choose_device(recipe::Device requested, const std::optional<Accelerators>& here,
                         std::int64_t index, const std::string& process);

// Bytes of each GPU that this process can use, as the driver says; empty: none, or not known.
std::vector<std::int64_t> accelerator_memory();

// The most that tensors of this process have taken there so far; 0 on the CPU, and where the
// device's allocator does not count. Any thread; does not wait for the device.
std::int64_t peak_device_memory(at::Device device);

// For the error of a process that found no memory: what was planned, and what there was, on its
// host and on its GPU.
std::string memory_text(const plan::StageJob& job);

// What this process can compute on, and whether a small product of matrices is right there: a
// sentence for each of libtorch, the driver's GPUs, the CPU and the accelerators.
struct DeviceCheck {
  bool works = true;
  std::string text;
};
std::vector<DeviceCheck> check_devices();

// Algorithms of libtorch on a GPU that give the same bits each time, as they do on the CPU. For the
// process; call it before there is any work.
void use_deterministic_algorithms();

// Of this stage process. UserError: as choose_device() and plan::check_gpu_memory() say.
at::Device compute_device(const plan::StageJob& job);

}  // namespace strait::worker
