#pragma once

#include <c10/core/Device.h>

#include "launcher/recipe/recipe_values.h"
#include "launcher/recipe/stage_job.h"

namespace strait::worker {

// The accelerators that this process can use: GPUs, or the device that a plugin registers with
// libtorch. CUDA_VISIBLE_DEVICES selects the GPUs.
struct Accelerators {
  at::DeviceType type = at::kCUDA;
  std::int64_t count = 0;
};
// Nullopt: there are none.
std::optional<Accelerators> accelerators_here();

// The device of the process with number `index` on its host. Accelerators are assigned round robin,
// and shared if there are fewer than processes. Pure. UserError, with `process` as its subject: the
// recipe asks for a GPU, and there is none.
at::Device choose_device(recipe::Device requested, const std::optional<Accelerators>& here,
                         std::int64_t index, const std::string& process);

// Bytes of each GPU that this process can use, as the driver reports them. Empty: none, or not
// known.
std::vector<std::int64_t> accelerator_memory();

// Peak memory of this process's tensors on the device so far. 0 on the CPU, and if the device's
// allocator does not count. Any thread; does not wait for the device.
std::int64_t peak_device_memory(at::Device device);

// For the error of a process that ran out of memory: what was planned, and what was there, on its
// host and on its GPU.
std::string memory_text(const plan::StageJob& job);

// What this process can compute on, and whether a small matrix product is correct there: one
// sentence each for libtorch, the driver's GPUs, the CPU and the accelerators.
struct DeviceCheck {
  bool works = true;
  std::string text;
};
std::vector<DeviceCheck> check_devices();

// Makes libtorch use algorithms on GPUs that give the same bits every time, as on the CPU. Applies
// to the whole process; call it before any work.
void use_deterministic_algorithms();

// The device of this stage process. UserError: see choose_device() and plan::check_gpu_memory().
at::Device compute_device(const plan::StageJob& job);

}  // namespace strait::worker
